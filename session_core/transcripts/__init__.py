"""Sessions of other agents, read in place; their files are never changed."""
