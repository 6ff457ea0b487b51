"""The state database: every conversation of a home."""
