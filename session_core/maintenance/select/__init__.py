"""Select the members of a plan: one module for each kind, over one snapshot of the home."""
