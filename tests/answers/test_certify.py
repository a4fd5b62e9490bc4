"""Certificates of data sets: exact masses, closed forms and draws; tables, budgets, labels, pictures, the command."""

import json
import time

import numpy as np
import pytest
from scipy.stats import norm

import reluscope as rs
from conformance import check_answer
from nets import integer_net, random_net
from reluscope.answer import Status
from reluscope.cli import main
from reluscope.errors import InputError

BUMP = rs.Network([([[1.0], [1.0], [1.0]], [-1.0, -1.1, -1.2]), ([[-40.0, 80.0, -40.0]], [1.0])])
"""`y = 1`, but for a dip below 0 inside (1, 1.2): the decision at 0 changes in a shell, and is kept beyond."""


def changed(net, x, sigma, guarantee="exact", scale=1.0):
    """P(decision changes) by enumeration."""
    y = net(x)
    event = f"argmax != {np.argmax(y)}" if net.n_outputs > 1 else f"y[0] {'<=' if y[0] > 0 else '>'} 0"
    law = rs.Gaussian(x, np.broadcast_to((sigma * np.asarray(scale)) ** 2, x.shape))
    return rs.probability(net, law, event, guarantee=guarantee)


def small_nets():
    yield random_net((1, 8, 3), 0)
    yield random_net((1, 6, 6, 1), 1)
    yield random_net((2, 10, 10, 3), 2)
    yield random_net((2, 8, 8, 1), 3, activation="leaky_relu")
    yield random_net((2, 8, 2), 4, activation="hardtanh")
    yield random_net((3, 8, 2), 5)
    yield integer_net((2, 6, 3), 6)
    yield integer_net((1, 5, 5, 2), 7)
    yield BUMP


@pytest.mark.parametrize("budget", [None, "2000 regions"])
def test_brackets_hold_exact_masses(budget):
    held = proved = 0
    for seed, net in enumerate(small_nets()):
        X = np.random.default_rng(seed).normal(size=(3, net.n_inputs))
        sigma = [0.02, 0.1, 0.5, 2.0]
        found = rs.certify(net, X, sigma, probability=1e-3, budget=budget)
        check_answer(found.change)
        for i, x in enumerate(X):
            for k, s in enumerate(sigma):
                truth = changed(net, x, s)
                assert truth.guarantee == "exact"
                assert found.change.lower[i, k] <= truth.upper and truth.lower <= found.change.upper[i, k], (net, x, s)
                held += 1
                proved += found.change.upper[i, k] < 1e-3
    assert held == 9 * 3 * 4 and proved > 40


def test_largest_sigma_holds_for_all_smaller_ones():
    """Also where the probability is not monotone in sigma."""
    asked = 0
    for seed, net in enumerate(small_nets()):
        X = np.random.default_rng(seed).normal(size=(2, net.n_inputs))
        if net is BUMP:
            X = np.array([[0.0], [0.5]])
        for p in (1e-6, 0.02):
            found = rs.certify(net, X, 0.1, probability=p, box=None)
            for x, largest in zip(X, found.largest, strict=True):
                for share in (1.0, 0.9, 0.6, 0.3) if largest > 0 else ():
                    assert changed(net, x, share * largest).lower <= p, (net, x, share)
                    asked += 1
    assert asked > 100


def test_a_shell_that_strong_noise_jumps_over():
    """P(change) is 0.047 at 1, and 0.0016 at 50: there a proof may succeed, but not one that holds for less noise."""
    assert changed(BUMP, np.zeros(1), 1.0).lower > 0.03 and changed(BUMP, np.zeros(1), 50.0).upper < 0.002
    found = rs.certify(BUMP, [[0.0]], [1.0, 50.0], probability=0.01, budget="1000 regions")
    assert 0.3 < found.largest[0] < 0.5
    assert found.share([0.3, 1.0]).tolist() == [1.0, 0.0]
    assert found.share(50.0) == float(found.certified[0, 1]) and found.share(49.9) == 0.0


@pytest.mark.parametrize("n", [1, 7])
def test_linear_networks_are_known_in_closed_form(n):
    w = np.random.default_rng(n).normal(size=(1, n))
    net = rs.Network([(w, [0.3])])
    X = np.random.default_rng(1).normal(size=(5, n))
    found = rs.certify(net, X, [0.1, 0.3], probability=1e-6)
    away = np.abs(net(X)[:, 0]) / np.linalg.norm(w)
    truth = norm.sf(away[:, None] / found.sigma)
    assert (found.change.upper >= truth * (1 - 1e-12)).all()
    assert np.allclose(found.change.upper, truth, rtol=1e-6, atol=1e-290)
    limit = away / norm.isf(1e-6)
    assert (found.largest <= limit * (1 + 1e-9)).all() and (found.largest >= limit / 1.011).all()


def test_units_that_never_switch_cost_nothing():
    net = rs.Network([(np.eye(4), np.full(4, 100.0)), ([[1.0, -1.0, 0.0, 0.0], [0.0] * 4], None)])
    found = rs.certify(net, [[1.0, 0.0, 0.0, 0.0]], 0.1)
    assert found.change.upper[0, 0] == pytest.approx(norm.sf(1 / 0.1 / np.sqrt(2)), rel=1e-6)


def test_more_dimensions_against_draws():
    """200,000 draws and six standard errors: false alarms once in 1e8, twice the probability would be noticed."""
    rng = np.random.default_rng(0)
    net = random_net((20, 24, 24, 4), 8)
    X = rng.normal(size=(4, 20))
    p = 2e-3
    found = rs.certify(net, X, [0.05, 0.15], probability=p, budget="1000 regions")
    assert (found.largest > 0).sum() >= 3
    for i, x in enumerate(X):
        for sigma, bound in [(found.largest[i], p), *zip(found.sigma, found.change.upper[i], strict=True)]:
            Z = rng.normal(size=(200_000, 20))
            rate = (net(x + sigma * Z).argmax(axis=1) != found.decision[i]).mean()
            assert rate <= bound + 6 * np.sqrt(max(bound, 1e-5) / len(Z))


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_badly_scaled_networks(size):
    base = random_net((2, 8, 8, 3), 11)
    scale = size ** np.random.default_rng(0).uniform(-1, 1, 8)
    first, second, last = base.layers
    net = rs.Network(
        [
            (first.dense() * scale[:, None], first.bias * scale),
            (second.dense() / scale, second.bias),
            (last.dense(), last.bias),
        ]
    )
    X = np.random.default_rng(1).normal(size=(4, 2))
    found = rs.certify(net, X, [0.05, 0.3], box=None)
    for i, x in enumerate(X):
        for k, s in enumerate(found.sigma):
            assert changed(net, x, s).lower <= found.change.upper[i, k]
    plain = rs.certify(base, X, [0.05, 0.3], box=None)
    assert np.allclose(found.largest, plain.largest, rtol=0.05)


def test_tables_are_monotone_and_small_noise_is_certified():
    net = random_net((12, 16, 16, 3), 3)
    X = np.random.default_rng(2).normal(size=(6, 12))
    sigma = [0.4, 0.01, 0.02, 0.05, 0.1, 0.2]
    found = rs.certify(net, X, sigma, probability=1e-4)
    assert found.sigma.tolist() == sorted(sigma) and found.change.shape == (6, 6)
    upper = found.change.upper
    assert (np.diff(upper, axis=1) >= 0).all() and upper[:, 0].max() < 1e-4 and upper[:, -1].min() > 1e-4
    assert (found.certified == (found.sigma <= found.largest[:, None])).all()
    curve = found.share(np.linspace(0, 1, 50))
    assert curve[0] == 1.0 and curve[-1] == 0.0 and (np.diff(curve) <= 0).all()
    alone = rs.certify(net, X[2], 0.02, probability=1e-4)
    assert len(alone) == 1 and alone.largest[0] == pytest.approx(found.largest[2], rel=0.03)
    assert repr(found).startswith("Certificates(6 rows, P(change) <= 0.0001 proved for 100 % at sigma 0.01")


def test_noise_that_differs_between_inputs():
    net = random_net((3, 8, 2), 5)
    X = np.random.default_rng(5).normal(size=(3, 3))
    scale = [1.0, 0.2, 0.0]
    found = rs.certify(net, X, 0.3, scale=scale, probability=0.01)
    for i, x in enumerate(X):
        truth = changed(net, x, 0.3, scale=scale)
        assert truth.lower <= found.change.upper[i, 0]
        assert changed(net, x, found.largest[i], scale=scale).lower <= 0.01
    assert (found.largest >= rs.certify(net, X, 0.3, probability=0.01).largest * 0.99).all()
    assert found.box_mass == pytest.approx((1 - 2 * norm.sf(4.5)) ** 2)


def test_inputs_that_the_network_does_not_see():
    net = rs.Network([([[0.0, 1.0]], [0.0]), ([[1.0], [-1.0]], [1.0, 0.0])])
    found = rs.certify(net, [[0.0, 1.0]], 1.0, scale=[1.0, 0.0])
    assert found.change.upper[0, 0] <= 1e-299 and found.largest[0] >= 1.0


def test_labels_mark_wrong_rows():
    net = rs.Network([([[1.0], [-1.0]], None)])
    X = [[5.0], [-5.0], [4.0]]
    found = rs.certify(net, X, 0.1, labels=[0, 1, 1])
    assert found.decision.tolist() == [0, 1, 0] and found.correct.tolist() == [True, True, False]
    assert found.certified[:, 0].tolist() == [True, True, False]
    assert found.share(0.1) == pytest.approx(2 / 3) == found.box_share(0.1)
    assert found.largest[2] > 0  # about the decision, right or wrong
    frame = found.to_pandas()
    assert list(frame) == ["row", "decision", "correct", "change at 0.1 (upper bound)", "largest", "box_largest"]
    assert len(frame) == 3
    sign = rs.certify(rs.Network([([[1.0]], None)]), X, 0.1, labels=[1, 0, 0])
    assert sign.decision.tolist() == [1, 0, 1] and sign.correct.tolist() == [True, True, False]


def test_ties_are_never_certified():
    net = rs.Network([([[1.0], [1.0]], None), ([[1.0, 0.0], [0.0, 1.0]], None)])
    found = rs.certify(net, [[1.0], [-1.0]], 0.1)
    assert not found.certified.any() and (found.largest == 0).all()


def test_boxes_keep_the_decision():
    net = random_net((6, 12, 12, 3), 4)
    X = np.random.default_rng(0).normal(size=(5, 6))
    found = rs.certify(net, X, 0.05, box=3.0)
    rng = np.random.default_rng(1)
    assert (found.box_largest > 0).all()
    for i, x in enumerate(X):
        corners = x + 3.0 * found.box_largest[i] * rng.choice([-1.0, 1.0], size=(2000, 6))
        assert (net(corners).argmax(axis=1) == found.decision[i]).all()
    assert found.box == 3.0 and found.box_mass == pytest.approx((1 - 2 * norm.sf(3.0)) ** 6)
    without = rs.certify(net, X, 0.05, box=None)
    assert without.box_largest is None and without.box_mass is None
    with pytest.raises(InputError, match="box_share"):
        without.box_share(0.1)


# -- budgets -------------------------------------------------------------------------------------------------------


def test_a_budget_that_ends_at_once():
    net = random_net((4, 8, 3), 0)
    X = np.random.default_rng(0).normal(size=(5, 4))
    found = rs.certify(net, X, 0.01, budget="1 regions")
    assert found.change.status is Status.BUDGET and "0 of 5 rows" in found.change.note and found.change.evaluations == 1
    assert (found.change.upper[1:] == 1.0).all() and (found.largest == 0).all() and found.share(0.01) <= 0.2
    assert found.box_largest is None
    assert "budget ended" in repr(found)


def test_a_budget_splits_units_for_undecided_rows():
    net = random_net((40, 60, 60, 4), 1)
    X = np.random.default_rng(1).normal(size=(4, 40))
    sigma = 1.06 * np.median(rs.certify(net, X, 0.1, box=None).largest)
    before = rs.certify(net, X, sigma, box=None)
    after = rs.certify(net, X, sigma, budget="1500 regions", box=None)
    assert (after.change.upper <= before.change.upper).all()
    assert (after.change.upper < 0.3 * before.change.upper).sum() >= 2
    assert after.certified.sum() > before.certified.sum() and before.change.status is Status.DONE
    assert (after.largest == before.largest).all() and after.share(sigma) > np.mean(after.largest >= sigma)


def test_budgets_hold():
    net = random_net((200, 150, 150, 10), 2)
    X = np.random.default_rng(1).normal(size=(40, 200))
    rs.certify(net, X[:1], 0.1)  # compiles
    start = time.process_time()
    found = rs.certify(net, X, [0.05, 0.1, 0.2], budget="1s")
    assert found.change.status is Status.BUDGET
    assert time.process_time() - start < 6.0  # with a budget of a minute it takes 36 s


def test_interrupted(monkeypatch):
    net = random_net((4, 8, 3), 0)
    X = np.random.default_rng(0).normal(size=(5, 4))
    seen = []

    def stop(done, text):
        seen.append(text)
        if done == 3:
            raise KeyboardInterrupt

    found = rs.certify(net, X, 1e-3, progress=stop)
    assert found.change.status is Status.INTERRUPTED and len(seen) == 3
    assert found.certified[:, 0].tolist() == [True, True, True, False, False]


# -- arguments -----------------------------------------------------------------------------------------------------

NET = random_net((2, 4, 2), 0)
GOOD = {"X": [[0.0, 1.0], [1.0, 0.0]], "sigma": 0.1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"X": [[0.0, 1.0, 2.0]]},
        {"X": np.zeros((0, 2))},
        {"X": [[0.0, np.nan]]},
        {"X": np.zeros((1, 1, 2))},
        {"X": "text"},
        {"sigma": 0.0},
        {"sigma": [-0.1, 0.1]},
        {"sigma": np.nan},
        {"sigma": np.inf},
        {"sigma": []},
        {"sigma": [[0.1]]},
        {"sigma": "0.1"},
        {"probability": 0.0},
        {"probability": 1.0},
        {"probability": 0.5},
        {"probability": -1e-6},
        {"probability": np.nan},
        {"probability": "1e-6"},
        {"labels": [0]},
        {"labels": [0, 2]},
        {"labels": [0, -1]},
        {"labels": [0, 0.5]},
        {"labels": ["a", "b"]},
        {"scale": [1.0]},
        {"scale": [1.0, -1.0]},
        {"scale": [0.0, 0.0]},
        {"scale": 2.0},
        {"box": -1.0},
        {"box": np.inf},
        {"budget": "soon"},
        {"progress": 3},
    ],
)
def test_bad_arguments(wrong):
    (name,) = wrong
    with pytest.raises(InputError, match=name):
        rs.certify(NET, **(GOOD | wrong))


def test_bad_networks_and_overflow():
    with pytest.raises(InputError, match="net must be"):
        rs.certify("net.onnx", [[0.0]], 0.1)
    found = rs.certify(NET, **GOOD)
    with pytest.raises(InputError, match="sigma"):
        found.share(-0.1)


# -- picture and command -------------------------------------------------------------------------------------------


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    from reluscope.plot._axes import save
    from reluscope.plot.certificates import plot_certificates

    net = random_net((6, 12, 12, 3), 4)
    found = rs.certify(net, np.random.default_rng(0).normal(size=(30, 6)), [0.02, 0.05])
    ax = found.plot()
    curve, points, box = ax.get_lines()
    assert curve.get_ydata()[0] == 100.0 == box.get_ydata()[0] and curve.get_ydata()[-1] == 0.0
    assert points.get_ydata().tolist() == (100 * found.share([0.02, 0.05])).tolist()
    # The curve is the share on both sides of every step: a step goes down right of the row's largest sigma.
    x, y = curve.get_data()
    assert np.allclose(y, 100 * found.share(x)) and len(x) > 25
    assert [t.get_text() for t in ax.get_legend().get_texts()][2].startswith("plain CROWN on boxes of 4.5σ (99.99")
    assert plot_certificates(found, ax, color="black") is ax
    save(ax, tmp_path / "curve.png")
    box_of = ax.get_legend().get_window_extent
    assert not box_of().overlaps(ax.get_window_extent().padded(-1.0))  # no legend on a curve
    assert (tmp_path / "curve.png").stat().st_size > 5000
    assert len(rs.certify(net, np.zeros(6), 0.02, box=None).plot().get_lines()) == 2
    with pytest.raises(InputError, match="certificates must be"):
        plot_certificates(3)


@pytest.fixture
def files(tmp_path):
    net = random_net((2, 6, 2), 0)
    net.save(tmp_path / "small.npz")
    X = np.random.default_rng(0).normal(size=(6, 2))
    label = net(X).argmax(axis=1)
    label[0] = 1 - label[0]
    rows = [f"{a!r},{b!r},{c}" for (a, b), c in zip(X.tolist(), label.tolist(), strict=True)]
    (tmp_path / "data.csv").write_text("speed,angle,class\n" + "\n".join(rows) + "\n")
    return tmp_path, net, X, label


def test_command(files, capsys):
    folder, net, X, label = files
    arguments = ["certify", str(folder / "small.npz"), "--data", str(folder / "data.csv"), "--target", "class"]
    assert main([*arguments, "--sigma", ".02,.1", "--probability", "1e-3"]) == 0
    text = capsys.readouterr().out
    assert "change at 0.02 (upper bound)" in text and "plain CROWN" in text and "time" in text
    assert main([*arguments, "--sigma", ".02,.1", "--probability", "1e-3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    found = rs.certify(net, X, [0.02, 0.1], probability=1e-3, labels=label)
    assert facts["share"] == found.share(found.sigma).tolist() and facts["rows"] == found.to_dict()
    assert facts["guarantee"] == "sound" and facts["status"] == "done" and facts["enough"] is None
    assert main([*arguments, "--sigma", "1e-4", "--share", "0.8", "--box", "none"]) == 0
    assert "yes" in capsys.readouterr().out
    assert main([*arguments, "--sigma", "1e-4", "--share", "0.9", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["enough"] is False


def test_command_writes_files_and_refuses(files, capsys):
    pytest.importorskip("matplotlib")
    folder = files[0]
    arguments = ["certify", str(folder / "small.npz"), "--data", str(folder / "data.csv")]
    assert main([*arguments, "--target", "class", "--sigma", ".1", "--scale", "1,0", "--out", str(folder / "o")]) == 0
    table = (folder / "o" / "small-certificates.csv").read_text()
    assert table.startswith("row,decision,correct,change at 0.1 (upper bound),largest")
    assert (folder / "o" / "small-certificates.png").exists()
    capsys.readouterr()
    for wrong, message in (
        (["--sigma", ".1"], "name the label column with --target"),
        (["--sigma", "a", "--target", "class"], "--sigma"),
        (["--sigma", "0", "--target", "class"], "sigma must be positive"),
        (["--sigma", ".1", "--target", "class", "--share", "2"], "--share"),
        (["--sigma", ".1", "--target", "nothing"], "no column"),
        (["--sigma", ".1", "--target", "class", "--scale", "1"], "scale must be"),
    ):
        assert main([*arguments, *wrong]) == 2
        assert message in capsys.readouterr().err


# -- a real network ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_mnist_in_two_minutes(data_folder):
    from reluscope.reproduce._images import images

    net = rs.load(data_folder / "nets/mnist_fc/onnx/mnist-net_256x2.onnx")
    data = images("mnist")
    X, label = data.test[:100], data.test_label[:100]
    start = time.process_time()
    found = rs.certify(net, X, [0.02, 0.05], labels=label)
    assert time.process_time() - start < 120
    assert found.share(0.02) >= 0.9 and found.share(0.05) >= 0.3 and found.box_share(0.02) == 0.0
    rng = np.random.default_rng(0)
    for i in range(0, 100, 10):
        Z = rng.standard_normal((2000, 784))
        assert (net(X[i] + found.largest[i] * Z).argmax(axis=1) == found.decision[i]).all()  # p <= 1e-6


# -- which output decides --------------------------------------------------------------------------------------------


def test_the_smallest_output_decides_where_it_is_said_to():
    net = random_net((3, 8, 8, 4), 11)
    X = np.random.default_rng(0).normal(size=(6, 3))
    turned = rs.certify(net.then(-np.eye(4)), X, [0.01, 0.05], decision="largest")
    asked = rs.certify(net, X, [0.01, 0.05], decision="smallest")
    by_rule = rs.certify(net.with_schema(rs.Schema(outputs=["a", "b", "c", "d"], rule="smallest")), X, [0.01, 0.05])
    for found in (asked, by_rule):
        assert found.decision.tolist() == net(X).argmin(axis=1).tolist() == turned.decision.tolist()
        np.testing.assert_array_equal(found.change.upper, turned.change.upper)
        np.testing.assert_array_equal(found.largest, turned.largest)
        np.testing.assert_array_equal(found.box_largest, turned.box_largest)
        assert found.assumption == "" and "assumed" not in str(found) + repr(found)
    plain = rs.certify(net, X, 0.01)
    assert plain.decision.tolist() == net(X).argmax(axis=1).tolist() != asked.decision.tolist()
    words = 'Assumed: the largest output decides. If the smallest does, say decision="smallest"'
    assert plain.assumption.startswith(words) and words in str(plain) and words in repr(plain)
    with pytest.raises(InputError, match="decision must be"):
        rs.certify(net, X, 0.01, decision="least")


def test_one_output_decides_by_its_cutoff():
    net = random_net((2, 6, 1), 3)
    X = np.random.default_rng(1).normal(size=(5, 2))
    cut = float(np.median(net(X))) + 0.1
    found = rs.certify(net.with_schema(rs.Schema(outputs=["score"], rule="above", cutoff=cut)), X, 0.01)
    moved = rs.certify(net.then([[1.0]], [-cut]), X, 0.01)
    assert 0 < found.decision.sum() < 5 and found.assumption == ""
    assert found.decision.tolist() == (net(X)[:, 0] > cut).astype(int).tolist() == moved.decision.tolist()
    np.testing.assert_allclose(found.change.upper, moved.change.upper, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.box_largest, moved.box_largest, rtol=1e-6)
    with pytest.raises(InputError, match="decision is for several outputs"):
        rs.certify(net, X, 0.01, decision="smallest")


def test_the_command_says_which_output_decides(tmp_path, capsys):
    net = random_net((2, 6, 3), 3)
    model, data = tmp_path / "net.npz", tmp_path / "rows.csv"
    net.save(model)
    data.write_text("a,b\n1,2\n-1,0.5\n")
    asked = ["certify", str(model), "--data", str(data), "--sigma", "0.01"]
    assert main(asked) == 0
    assert (
        "Assumed: the largest output decides. If the smallest does, say --decision smallest." in capsys.readouterr().out
    )
    assert main([*asked, "--decision", "smallest", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["assumption"] == ""
    assert facts["rows"]["decision"] == net([[1.0, 2.0], [-1.0, 0.5]]).argmin(axis=1).tolist()
    assert rs.replay(facts["record"], net)


def test_other_questions_about_decisions_say_what_they_assume():
    net = random_net((2, 6, 3), 3)
    law = rs.Gaussian(np.zeros(2))
    ruled = net.with_schema(rs.Schema(outputs=["a", "b", "c"], rule="smallest"))
    assert "Assumed: the largest output decides" in rs.robust(net, law, 0.1, draws=50, rng=0).note
    assert "assumed" not in rs.robust(ruled, law, 0.1, draws=50, rng=0).note
    assert "Assumed: the largest output decides" in rs.agreement(net, net, law, budget="1s", rng=0).alike.note
    assert "assumed" not in rs.agreement(ruled, ruled, law, budget="1s", rng=0).alike.note
