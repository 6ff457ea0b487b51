"""The HTTP transports and what guards them."""
