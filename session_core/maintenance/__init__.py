"""Report, plan, apply and restore: the health of a home, its cleanup, and the undo."""
