"""Restore a batch by undoing its steps, the newest first."""
