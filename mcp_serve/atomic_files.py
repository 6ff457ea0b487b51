"""Read and replace files with the functions of the library."""

from session_core._atomic import read_file, write_atomic, write_new_file

__all__ = ["read_file", "write_atomic", "write_new_file"]
