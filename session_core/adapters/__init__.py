"""Session interfaces of agent SDKs over a home, one module for each SDK.

No adapter imports another.
"""
