"""The migrations of the schema as numbered SQL files, and the runner that applies them."""
