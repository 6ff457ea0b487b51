"""Apply a plan in steps, each one transaction, with its undo durable before it begins."""
