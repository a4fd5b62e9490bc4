"""
Importance of the inputs
========================

``plot_importance`` draws the share of the variance of the output that each input contributes.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

import reluscope as rs
from reluscope.plot import plot_importance

data = load_diabetes()
model = rs.ReluRegressor(hidden=(16,), epochs=200, random_state=0).fit(data.data, data.target)
u = rs.unwrap(model, data.data, data.target, feature_names=data.feature_names)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_importance(u, ax=ax)
