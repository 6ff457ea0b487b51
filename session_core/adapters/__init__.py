"""Session interfaces of agent SDKs over a home, one module an SDK; no module imports another."""
