"""The extractive summarizer: the most important passages of a range, verbatim, within a length."""
