"""Compression of a conversation that can neither lose nor corrupt it."""
