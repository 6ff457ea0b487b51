"""The clients that `install` supports: their configuration files and how these are edited."""
