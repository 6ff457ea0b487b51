"""The sample home of `demo` and the tour through it."""
