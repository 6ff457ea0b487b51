"""The state engine over PostgreSQL."""
