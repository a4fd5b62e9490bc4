"""Networks at many points: plain, in single precision, and aimed at rare events.

- `small`: a small ReLU network at many points, compiled
- `single`: the same in single precision, with a second look in double near thresholds
- `aimed`: points aimed at rare levels and events by importance sampling
- `strata`: points in boxes, most of them where the border of an event passes
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
from reluscope.measure.points.single import SIDE, SingleForms, evaluator
from reluscope.measure.points.small import SmallForms
from reluscope.measure.points.strata import Space, Strata, Tree, Worked, informed, warm_up_strata

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
    "Space",
    "Strata",
    "Tree",
    "Worked",
    "aimed_points",
    "aims_pay",
    "evaluator",
    "informed",
    "warm_up",
    "warm_up_strata",
]
