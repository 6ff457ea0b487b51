"""The migrations of the schema: numbered files that are only added to."""
