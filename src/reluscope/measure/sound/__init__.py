"""Sound brackets of the probability of an event: linear bounds, branch and bound."""
