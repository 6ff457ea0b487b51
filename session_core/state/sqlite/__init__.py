"""SQLite engine of the state database."""
