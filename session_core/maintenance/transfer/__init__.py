"""Export sessions to files and import them."""
