"""Plans, undo batches, trash and the audit log of a home, stored outside its database."""
