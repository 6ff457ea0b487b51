"""The session store: which chat is in which session now."""
