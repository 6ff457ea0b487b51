"""Release artifacts built from `pyproject.toml`: wheel, sdist, bundle and registry entry.

`python -m release` builds them; nothing is published.
"""
