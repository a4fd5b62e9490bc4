"""ACAS Xu against its perturbed copy, and its monotonicity: published questions of VNN-COMP 2026."""

from pathlib import Path

import numpy as np
import pytest

import reluscope as rs

pytestmark = [pytest.mark.needs_data, pytest.mark.slow]

FILES = Path(__file__).parents[1] / "formats" / "vnnlib2"


@pytest.fixture
def nets(data_folder):
    nets = data_folder / "nets"
    (path,) = (nets / "acasxu" / "onnx").glob("*_2_2_*.onnx")
    return {"f": rs.load(path), "g": rs.load(nets / "vnncomp2026" / "onnx" / "ACASXU_2_2_perturbed.onnx")}


def test_the_perturbed_copy_is_equal_within_the_published_limit(nets):
    """1e6 draws find no difference above 0.02: the meant question has the answer 0, proved."""
    event = rs.vnnlib(FILES / "isomorphic_corrected.vnnlib")
    answer = rs.probability(nets, rs.Uniform(*event.boxes[0]), event, guarantee="sound")
    assert (answer.lower, answer.upper, answer.guarantee) == (0.0, 0.0, "sound")


def test_how_often_the_advisory_differs(nets):
    law = rs.Uniform(*rs.vnnlib(FILES / "isomorphic_corrected.vnnlib").boxes[0])
    answer = rs.probability(nets, law, "argmin f != argmin g", guarantee="sound", budget="20000 regions")
    X = law.sample(1_000_000, 0)
    p = (nets["f"](X).argmin(axis=1) != nets["g"](X).argmin(axis=1)).mean()
    error = 5 * np.sqrt(p / 1e6)
    assert answer.lower - error <= p <= answer.upper + error and 0.015 < p < 0.025


def test_monotonicity_in_the_distance(nets):
    """P(dy3/dx0 < 0) and P over pairs, exactly, against draws."""
    event = rs.vnnlib(FILES / "monotonic_corrected.vnnlib")
    net = nets["f"]
    lower, upper = (side.copy() for side in event.boxes[0])
    upper[5] = upper[0]
    falls = rs.monotone(net, rs.Uniform(lower[:5], upper[:5]), 0, 3, places=0, guarantee="exact").falls[0]
    X = rs.Uniform(lower[:5], upper[:5]).sample(200_000, 0)
    p = (net.jacobian(X)[:, 3, 0] < 0).mean()
    assert falls.guarantee == "exact" and abs(falls.value - p) < 5 * np.sqrt(p / 200_000)
    pair = rs.Uniform(lower, upper)
    answer = rs.probability(net, pair, event, budget="60s", rng=0)
    U = pair.sample(1_000_000, 0)
    Z = np.concatenate([U[:, 5:], U[:, 1:5]], axis=1)
    p = ((U[:, 5] <= U[:, 0]) & (net(U[:, :5])[:, 3] < net(Z)[:, 3])).mean()
    error = 5 * np.sqrt(p / 1e6)
    assert answer.lower - error <= p <= answer.upper + error
