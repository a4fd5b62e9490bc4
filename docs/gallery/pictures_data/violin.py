"""
How coefficients vary over the rows
===================================

``plot_violin`` draws the local coefficients of each input over all rows.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

import reluscope as rs
from reluscope.plot import plot_violin

data = load_diabetes()
model = rs.ReluRegressor(hidden=(16,), epochs=200, random_state=0).fit(data.data, data.target)
u = rs.unwrap(model, data.data, data.target, feature_names=data.feature_names)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_violin(u, ax=ax)
