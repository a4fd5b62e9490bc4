"""
Merged linear models
====================

``plot_merged`` draws which local models merge, and in which order.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

import reluscope as rs
from reluscope.plot import plot_merged

data = load_diabetes()
model = rs.ReluRegressor(hidden=(16,), epochs=200, random_state=0).fit(data.data, data.target)
u = rs.unwrap(model, data.data, data.target, feature_names=data.feature_names)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_merged(u.merge(4), ax=ax)
