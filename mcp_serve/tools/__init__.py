"""The tools, one module each: arguments in, a mapping out."""
