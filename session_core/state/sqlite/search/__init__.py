"""Full-text search: parse, plan, scan, rank and show."""
