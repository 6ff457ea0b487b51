"""The summary without a model: the passages worth most, word for word, within a length."""
