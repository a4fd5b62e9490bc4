"""
The coefficient of one input
============================

``plot_profile`` draws the local coefficient of one input in every row, and its mean along the input.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

import reluscope as rs
from reluscope.plot import plot_profile

data = load_diabetes()
model = rs.ReluRegressor(hidden=(16,), epochs=200, random_state=0).fit(data.data, data.target)
u = rs.unwrap(model, data.data, data.target, feature_names=data.feature_names)
figure, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
plot_profile(u, feature="bmi", ax=ax)
