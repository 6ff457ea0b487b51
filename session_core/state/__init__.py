"""The state database: the conversations of a home."""
