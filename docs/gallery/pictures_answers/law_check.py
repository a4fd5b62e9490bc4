"""
Does a law fit its table?
=========================

``plot_law_check`` draws the gap between law and table for every column, beside what chance would give.
"""

import matplotlib.pyplot as plt
import numpy as np

import reluscope as rs
from reluscope.plot import plot_law_check

rng = np.random.default_rng(0)
income = rng.lognormal(10.0, 0.6, 800)
table = {"income": income, "age": rng.uniform(20, 70, 800), "debt": income * rng.uniform(0, 1, 800)}
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_law_check(rs.fit(table).check(table, draws=20_000, rng=0), ax=ax)
