"""Rare events, by importance sampling of rays that are integrated exactly.

- `probability`: the probability of an event, with an interval
- `moments`: moments of the inputs inside an event
"""

from reluscope.measure.rare.moments import RareMoments, largest_moments, own_moments, rare_moments
from reluscope.measure.rare.probability import rare_probability

__all__ = [
    "RareMoments",
    "largest_moments",
    "own_moments",
    "rare_moments",
    "rare_probability",
]
