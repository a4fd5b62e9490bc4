"""Every picture is drawn, on the Axes it was given, and refuses what it cannot show."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import reluscope as rs
from nets import random_net
from reluscope.errors import InputError
from reluscope.plot.local_models import KINDS


def unwrapped(task, inputs=2):
    outputs = 3 if task == "multiclass" else 1
    net = random_net((inputs, 6, 5, outputs), 0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, inputs))
    eta = net(X) + 0.5 * rng.normal(size=(150, outputs))
    y = {"regression": eta[:, 0], "binary": (eta[:, 0] > 0).astype(int), "multiclass": eta.argmax(axis=1), "none": None}
    return rs.unwrap(net, X, y[task])


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass", "none"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_each_kind(kind, task):
    u = unwrapped(task)
    ax = Figure().add_subplot()
    if task == "none" and kind in ("performance", "bubble"):
        with pytest.raises(InputError, match="needs a response"):
            u.plot(kind, ax)
        return
    assert u.plot(kind, ax) is ax
    assert ax.get_xlabel() and ax.has_data()


def test_pictures_of_other_records():
    u = unwrapped("binary")
    m = u.merge(most=6)
    for picture in (
        lambda ax: u.explain(0).plot(ax),
        lambda ax: u.explain(0).plot(ax, centred=False),
        lambda ax: u.explain([9.0, 9.0]).plot(ax),
        lambda ax: u.intervals(0, penalty=1.0).plot(ax),
        lambda ax: m.plot("dendrogram", ax),
        lambda ax: m.plot("validation", ax),
        lambda ax: m.plot("regions", ax),
    ):
        ax = Figure().add_subplot()
        assert picture(ax) is ax and ax.has_data()
    path = rs.l1_path(u.X, u.response.code, [0.0, 0.01], hidden=(4,), epochs=5, progress=None)
    ax = Figure().add_subplot()
    assert path.plot(ax) is ax and len(ax.figure.axes) == 2


def test_what_cannot_be_drawn():
    u = unwrapped("binary", 3)
    with pytest.raises(InputError, match="2 inputs"):
        u.plot("regions")
    with pytest.raises(InputError, match="kind must be one of"):
        u.plot("pie")
    with pytest.raises(InputError, match="no dendrogram"):
        u.prune(3).plot("dendrogram")
    with pytest.raises(InputError, match="nothing was cross-validated"):
        u.merge(2).plot("validation")
    many = unwrapped("binary", 8)  # a waterfall with more features than bars
    assert "others" in "".join(t.get_text() for t in many.explain(0).plot(top=3).get_yticklabels())
