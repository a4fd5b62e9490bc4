"""Networks at many points: plain, in single precision, and aimed at rare events.

- `small`: a small ReLU network at many points, compiled
- `single`: the same in single precision, with a second look in double near thresholds
- `aimed`: points aimed at rare levels and events by importance sampling
"""

from reluscope.measure.points.aimed import (
    LEAST_OWN,
    MORE_OWN,
    MOST_AIMS,
    MOST_DIMENSIONS,
    RARE,
    AimedPoints,
    aimed_points,
    aims_pay,
    warm_up,
)
from reluscope.measure.points.single import SIDE, SingleForms
from reluscope.measure.points.small import SmallForms

__all__ = [
    "LEAST_OWN",
    "MORE_OWN",
    "MOST_AIMS",
    "MOST_DIMENSIONS",
    "RARE",
    "SIDE",
    "AimedPoints",
    "SingleForms",
    "SmallForms",
    "aimed_points",
    "aims_pay",
    "warm_up",
]
