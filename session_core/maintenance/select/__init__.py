"""Select the members of plans from one snapshot of the home."""
