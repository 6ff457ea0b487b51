"""Where the server meets the SDK, and where the eras of the protocol differ.

What is private to the SDK is touched in `private` alone, and `tests/serve/test_sdk.py` fails when
it changes.
"""
