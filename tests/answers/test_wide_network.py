"""A 784-512-512-10 network under a Gaussian with the covariance of MNIST images: every answer has its interval."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

import reluscope as rs
from nets import random_net


@pytest.mark.slow
@pytest.mark.skipif("RELUSCOPE_DATA" not in os.environ, reason="needs the folder RELUSCOPE_DATA with mnist/")
def test_wide_network_with_full_covariance():
    from reluscope.reproduce._images import images

    rows = images("mnist").train[:6000]
    law, net = rs.Gaussian.fit(rows), random_net((784, 512, 512, 10), 0)
    y = net(law.sample(20_000, 1))
    c = np.quantile(y[:, 3], [0.1, 0.5, 0.9])
    start = time.process_time()
    found = rs.outputs(net, law, level=1 - 1e-7, rng=0)
    cdf, mean = found.cdf(c, output=3), found.mean
    outputs_cost = time.process_time() - start
    noise = 6 * np.sqrt(0.25 / 20_000)
    assert (cdf.lower - noise <= [0.1, 0.5, 0.9]).all()
    assert (cdf.upper + noise >= [0.1, 0.5, 0.9]).all()
    assert (cdf.upper - cdf.lower < 0.5).all()
    error = 6 * y.std(axis=0) / np.sqrt(20_000)
    assert (np.abs(mean.value - y.mean(axis=0)) <= 0.5 * (mean.upper - mean.lower) + error).all()

    start = time.process_time()
    marginals = rs.linear_models(net, law, level=1 - 1e-7, rng=0).marginals
    functions_cost = time.process_time() - start
    on = net.pattern(law.sample(20_000, 2)).mean(axis=0)
    assert marginals.shape == (1024, 2)
    # 1024 units: 7 standard errors.
    assert (marginals.lower[:, 1] <= on + 7 * np.sqrt(0.25 / 20_000)).all()
    assert (marginals.upper[:, 1] >= on - 7 * np.sqrt(0.25 / 20_000)).all()

    start = time.process_time()
    spectrum = rs.spectrum(net, law, rng=0)
    spectrum_cost = time.process_time() - start
    assert spectrum.ranks == 10
    top = spectrum.quantile(0.5)
    assert 0 < top.lower <= top.value <= top.upper
    assert top.upper - top.lower < 0.2 * top.value
    # A minute of CPU time each; two cores have twice that to give.
    assert max(outputs_cost, functions_cost, spectrum_cost) < 60.0
