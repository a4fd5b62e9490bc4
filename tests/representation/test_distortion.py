"""Closed forms of distortion, corrected and as printed."""

import math

import mpmath
import numpy as np
import pytest

from nets import random_net
from reluscope.errors import InputError
from reluscope.representation.claims import check_claims, violated_share
from reluscope.representation.distortion import (
    distortion,
    expected_distortion,
    half_mean,
    relu_distance_factor,
    simulate,
)

FALSE_AS_PRINTED = {
    "Lemma 4.3.11",
    "Prop. 4.3.12",
    "Prop. 4.3.17 (linear)",
    "Prop. 4.3.17 (ReLU)",
    "Rem. 4.3.18",
    "Prop. 2.3.7 (proof)",
    "Lemma 4.3.6 (1)",
    "Lemma 4.3.6 (2)",
    "Lemma 4.3.7",
    "Rem. 4.3.8",
    "Theorem 5 (limit)",
    "4.5.2 stable rank",
}


def test_corrected_constants_are_pinned():
    assert [half_mean(n) for n in (1, 2, 3)] == pytest.approx([1 / 2, 1 / math.pi, 1 / 4], rel=1e-14)
    assert relu_distance_factor(1) == pytest.approx(0.25)
    assert round(relu_distance_factor(2), 4) == 0.2974
    assert relu_distance_factor(3) == pytest.approx(0.3125)
    assert relu_distance_factor(10**6) == pytest.approx(0.5 - 0.5 / math.pi, abs=1e-6)
    assert round(0.5 - 0.5 / math.pi, 4) == 0.3408
    assert expected_distortion(10**6).distance == pytest.approx(1 - 1 / math.pi, abs=1e-6)
    assert round(1 - 1 / math.pi, 4) == 0.6817
    for n in (1, 2, 7, 50):
        mu = mpmath.gamma(mpmath.mpf(n) / 2) / (2 * mpmath.sqrt(mpmath.pi) * mpmath.gamma(mpmath.mpf(n + 1) / 2))
        assert half_mean(n) == pytest.approx(float(mu), rel=1e-13)
        assert expected_distortion(n).distance == pytest.approx(float(1 - 2 * n * mu**2), rel=1e-12)
        assert expected_distortion(n).magnitude == pytest.approx(1.0)
        assert expected_distortion(n, variance=3.0).linear_distance == pytest.approx(3.0 * n)


@pytest.mark.parametrize("act", ["relu", "leaky_relu", "abs", "identity"])
@pytest.mark.parametrize("shape", [(1, 1), (4, 2), (3, 6)])
def test_sphere_forms_against_draws(act, shape):
    M = np.random.default_rng(7).normal(size=shape)
    exact, drawn = distortion(M, activation=act), simulate(M, 60_000, activation=act, rng=1)
    for name in ("magnitude", "linear_magnitude", "distance", "linear_distance"):
        # Six standard errors over 48 comparisons: a false alarm in 1e7 runs.
        assert abs(getattr(exact, name) - getattr(drawn, name)) <= 6 * getattr(drawn, f"{name}_error") + 1e-12


@pytest.mark.parametrize("act", ["relu", "leaky_relu", "hardtanh", "relu6"])
def test_normal_forms_with_biases_against_draws(act):
    net = random_net((4, 5, 3), 3, act, bias=1.0)
    exact, drawn = distortion(net, law="normal"), simulate(net, 60_000, law="normal", rng=2)
    for name in ("magnitude", "linear_magnitude", "distance", "linear_distance"):
        assert abs(getattr(exact, name) - getattr(drawn, name)) <= 6 * getattr(drawn, f"{name}_error")


def test_normal_and_sphere_agree_without_bias_up_to_the_mean_length():
    # For homogeneous units |x| only scales: E|z|^2 under N(0, I) is n times that on the sphere.
    M = np.random.default_rng(0).normal(size=(4, 5))
    assert distortion(M, law="normal").magnitude == pytest.approx(5 * distortion(M).magnitude)
    # The mean of one unit is 1/sqrt(2 pi) of its length: Var relu = 1/2 - 1/(2 pi).
    assert distortion(np.eye(3), law="normal").distance == pytest.approx(0.5 - 0.5 / math.pi, rel=1e-13)


def test_every_printed_claim_is_checked_by_name():
    claims = check_claims(draws=60_000, rng=0)
    assert len({c.name for c in claims}) == len(claims)
    assert {c.name for c in claims if not c.holds} == FALSE_AS_PRINTED
    assert all(c.right_holds for c in claims)
    share = next(c for c in claims if c.name == "Lemma 4.3.7")
    assert 0.15 < share.measured < 0.3
    assert share.right_value != share.measured  # by quadrature, not by the same draws
    assert all(set(c.to_dict()) >= {"name", "printed", "holds"} for c in claims)


@pytest.mark.parametrize("n", [3, 5, 8])
def test_angles_that_grow_in_spite_of_the_condition(n):
    # Plain vectors and angles, none of the library's.
    rng = np.random.default_rng(n)
    a, b = rng.normal(size=(2, 100_000, n))
    a[:, :-1] /= np.linalg.norm(a[:, :-1], axis=1, keepdims=True)
    b[:, :-1] /= np.linalg.norm(b[:, :-1], axis=1, keepdims=True)
    s, t, flat = a[:, -1], b[:, -1], (a[:, :-1] * b[:, :-1]).sum(axis=1)
    full = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    holds = s * t / (abs(s) + abs(t) + abs(s * t)) >= flat
    share = (full < flat)[holds].mean()
    # Six standard errors, and 1e-3 for the quadrature.
    assert abs(share - violated_share(n)) < 6 * np.sqrt(share / holds.sum()) + 1e-3
    assert not (full < flat)[holds & ((a * b).sum(axis=1) >= 0)].any()
    disagree = (full**2 >= flat**2) != (full >= flat)
    assert abs(disagree.mean() - 0.5) < 6 * 0.5 / np.sqrt(len(a))
    assert not disagree[(full >= 0) & (flat >= 0)].any()


def test_layers_of_networks_and_words():
    net = random_net((3, 4, 2), 0, bias=1.0)
    assert distortion(net).note == "the bias is left out"
    assert distortion(net.layers[0]).to_dict()["units"] == 4
    assert distortion(net, index=1).linear_magnitude == distortion(net, index=1).magnitude
    assert "mean |z|^2" in str(distortion(np.eye(2)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: distortion([1.0, 2.0]),
        lambda: distortion(np.zeros((0, 2))),
        lambda: distortion(np.eye(2), law="cube"),
        lambda: distortion(np.eye(2), activation="hardtanh"),
        lambda: distortion(random_net((2, 2, 1)), index=9),
        lambda: half_mean(0),
        lambda: expected_distortion(2, variance=-1.0),
        lambda: simulate(np.eye(2), 1),
    ],
)
def test_bad_input_is_one_clear_error(call):
    with pytest.raises(InputError):
        call()
