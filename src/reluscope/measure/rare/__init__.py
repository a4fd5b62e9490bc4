"""Rare events: rays that are integrated exactly in few dimensions, populations that climb into them in many.

- `probability`: the probability of an event, with an interval; which engine measures it
- `pieces`: one component of a law as both engines see it
- `by_rays`: importance sampling of rays
- `by_populations`: populations, and what they say
- `ladder`: how populations climb
- `few`: mixtures in a few directions
- `bridge`: the probability from draws of a mixture and points that climbed
- `moments`: moments of the inputs inside an event
"""

from reluscope.measure.rare.moments import RareMoments, largest_moments, own_moments, rare_moments
from reluscope.measure.rare.pieces import RAYS_UP_TO
from reluscope.measure.rare.probability import rare_probability

__all__ = [
    "RAYS_UP_TO",
    "RareMoments",
    "largest_moments",
    "own_moments",
    "rare_moments",
    "rare_probability",
]
