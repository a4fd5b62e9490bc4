"""
What the model would say after each block
=========================================

``plot_logit_lens`` draws the most probable class after each block at each position.
"""

import matplotlib.pyplot as plt
import numpy as np

from reluscope.lens.logits import LogitLens
from reluscope.plot import plot_logit_lens

rng = np.random.default_rng(0)
logits = rng.normal(size=(4, 6, 10)) * np.arange(1, 5)[:, None, None]
log_p = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
found = LogitLens(tuple(f"block {k}" for k in range(4)), log_p, ("norm", "head"), 0.0)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_logit_lens(found, ax=ax)
