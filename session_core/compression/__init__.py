"""Compression of conversations: plan, summarize, commit and undo."""
