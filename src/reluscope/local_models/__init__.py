"""A network as local linear models of a data set: table, explanation, importance, inference, merging, L1 training."""
