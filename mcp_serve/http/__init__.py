"""The HTTP transports and their access checks."""
