"""How much probability a cell holds."""
