"""How a network cuts space: one traversal, a geometry for each dimension."""
