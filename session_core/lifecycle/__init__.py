"""Agent cache, agent turns and the handling of session starts and ends."""
