"""Session interfaces of agent SDKs over a home, one module an SDK; none is imported by others."""
