"""Probability of regions and polytopes under any law: the door to the masses of every dimension."""
