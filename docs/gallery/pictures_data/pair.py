"""
The contribution of two inputs
==============================

``plot_pair`` draws the mean joint contribution of two inputs on a grid of quantiles.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

import reluscope as rs
from reluscope.plot import plot_pair

data = load_diabetes()
model = rs.ReluRegressor(hidden=(16,), epochs=200, random_state=0).fit(data.data, data.target)
u = rs.unwrap(model, data.data, data.target, feature_names=data.feature_names)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_pair(u, first="bmi", second="s5", ax=ax)
