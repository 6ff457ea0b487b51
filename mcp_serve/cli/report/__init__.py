"""The report of `stats`, for a terminal and as an HTML page."""
