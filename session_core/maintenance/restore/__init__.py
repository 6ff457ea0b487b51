"""Restore a batch: its steps are undone, the newest first."""
