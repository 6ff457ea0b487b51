"""Raw rows, exactly as they are stored: read, inserted, updated and deleted."""
