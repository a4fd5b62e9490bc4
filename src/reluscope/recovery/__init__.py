"""A network from queries: `recover`, the black box `Oracle`, and what comes back.

`recover.py` is the call; `oracle.py` counts and limits queries; `view.py` is the first look; `critical.py`,
`one_layer.py`, `peel.py`, `signs.py`, `refine.py` and `exact.py` find weights; `fan.py` finds functions without biases
in the plane; `labels.py` finds decision boundaries; `walk.py` walks from region to region (`surrogate.py` holds the
result); `samples.py` fits linear models to samples; `align.py` compares with a known network.
"""

from reluscope.recovery.labels import Boundary
from reluscope.recovery.oracle import BlackBox, Oracle, QueryLimitError
from reluscope.recovery.recover import Comparison, Recovered, Sampled, recover
from reluscope.recovery.samples import LocalFit
from reluscope.recovery.surrogate import Surrogate

__all__ = [
    "BlackBox",
    "Boundary",
    "Comparison",
    "LocalFit",
    "Oracle",
    "QueryLimitError",
    "Recovered",
    "Sampled",
    "Surrogate",
    "recover",
]
