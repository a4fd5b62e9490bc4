"""Live torch modules through forward hooks, against the same network loaded exactly."""

import numpy as np
import pytest

import reluscope as rs
from reluscope.errors import InputError

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture
def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)).double()


def test_hooks_see_what_the_exact_network_sees(perceptron):
    X = np.random.default_rng(0).normal(size=(600, 4))  # more than one batch of the hooks
    caught, exact = rs.layers(perceptron, X), rs.layers(rs.load(perceptron), X, jacobians=0)
    assert [row.name for row in caught.rows] == ["input", "1", "3", "output"]
    assert caught.rows[3].mean_norm == pytest.approx(exact.rows[3].mean_norm) and caught.rows[3].activity is None
    for k in (0, 1, 2):
        for column in ("units", "mean_norm", "stable_rank", "stable_rank_uncentred", "nonzero_eigenvalues", "active"):
            assert getattr(caught.rows[k], column) == pytest.approx(getattr(exact.rows[k], column))
        if k:  # the rows of hidden layers
            assert np.allclose(caught.activity[k], exact.activity[k])
    assert caught.network is None
    assert "torch module" in repr(caught)


def test_the_eight_panels_of_a_module(perceptron):
    pytest.importorskip("matplotlib")
    assert rs.layers(perceptron, np.random.default_rng(0).normal(size=(50, 4))).plot().shape == (2, 4)


def test_convolutions_are_seen_by_channels_and_flags_are_restored():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 5, 3), nn.BatchNorm2d(5), nn.GELU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(180, 3)
    )
    net.train()
    X = np.random.default_rng(0).normal(size=(30, 1, 8, 8))
    found = rs.layers(net, X)
    assert [(row.kind, row.channels, row.units) for row in found.rows] == [
        ("input", None, 64),
        ("GELU", 5, 180),
        ("output", None, 3),
    ]
    assert len(found.activity[1]) == 5
    assert net.training
    assert all(m.training for m in net.modules())
    assert not any(m._forward_hooks for m in net.modules())
    named = rs.layers(net, X, modules=["0", "5"])
    assert [row.name for row in named.rows] == ["input", "0", "5"]


def test_modules_without_activation_modules_and_shared_ones():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 5), nn.Linear(5, 5)

        def forward(self, x):
            x = torch.relu(self.a(x))
            return self.b(torch.relu(self.b(x)))

    found = rs.layers(Functional(), np.random.default_rng(0).normal(size=(20, 3)))
    assert [row.name for row in found.rows] == ["input", "a", "b", "b"]


def test_bad_input(perceptron):
    X = np.zeros((4, 4)) + np.arange(4)[:, None]
    for call in (
        lambda: rs.layers(perceptron, X, modules=["nope"]),
        lambda: rs.layers(perceptron, X, box=(-1, 1)),
        lambda: rs.layers(perceptron, np.zeros((4, 7))),
        lambda: rs.layers(perceptron, np.zeros(4)),
    ):
        with pytest.raises(InputError):
            call()
    assert not any(m._forward_hooks for m in perceptron.modules())
