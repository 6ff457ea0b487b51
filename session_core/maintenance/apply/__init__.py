"""Apply a plan in steps: one transaction each, with a durable undo before it begins."""
