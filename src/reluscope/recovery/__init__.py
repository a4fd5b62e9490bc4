"""A network from queries: `recover`, the black box `Oracle`, and what comes back.

`recover.py` is the call; `oracle.py` counts and limits queries; `view.py` is the first look; `critical.py`, `peel.py`,
`signs.py`, `refine.py` and `exact.py` find weights; `walk.py` walks from region to region (`surrogate.py` holds the
result); `pieces.py` fits local linear models to samples; `align.py` compares with a known network.
"""

from reluscope.recovery.oracle import Oracle, QueryLimitError
from reluscope.recovery.recover import Comparison, Recovered, Sampled, recover
from reluscope.recovery.surrogate import Surrogate

__all__ = ["Comparison", "Oracle", "QueryLimitError", "Recovered", "Sampled", "Surrogate", "recover"]
