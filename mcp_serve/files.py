"""Read and replace files of the server and the command, in the one place of the library for it."""

from session_core._atomic import read_file, write_atomic, write_new_file

__all__ = ["read_file", "write_atomic", "write_new_file"]
