"""Raw rows, exactly as they are stored: read, written back and deleted."""
