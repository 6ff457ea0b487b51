"""What is kept about a home and not in it: plans, trash, undo batches, the audit log."""
