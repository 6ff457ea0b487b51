"""Select the members of a plan, over one snapshot of the home; `sessions` has several kinds."""
