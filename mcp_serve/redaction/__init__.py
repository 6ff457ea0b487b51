"""Remove secrets from text on its way out."""
