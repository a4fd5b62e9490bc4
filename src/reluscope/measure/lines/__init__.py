"""All regions at once: exact integration along random lines."""
