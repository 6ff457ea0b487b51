"""The session store: which session each chat is in."""
