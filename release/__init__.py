"""What is released, all of it made of `pyproject.toml`: `python -m release`.

Wheel and sdist, a bundle for hosts that install servers with a click, and the entry of the
registry of MCP servers. Nothing of it is published here.
"""
