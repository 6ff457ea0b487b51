"""The clients that `install` knows: where their configuration lies, and how it is changed."""
