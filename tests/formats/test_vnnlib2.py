"""VNN-LIB 2.0: what is read, what is written, what is refused and how."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.errors import InputError, InputLimitError, ReluscopeWarning, UnsupportedError
from reluscope.events import tensor_values

HERE = Path(__file__).parent / "vnnlib2"
HEAD = "(vnnlib-version <2.0>)\n"
ONE = HEAD + "(declare-network f (declare-input X real [2,3]) (declare-output Y float32 [2]))\n"
TWO = (
    HEAD
    + "(declare-network f (declare-input X real [3]) (declare-output Y real [2]))\n"
    + "(declare-network g (declare-input Z real [3]) (declare-output W real [2]))\n"
)
SAME = TWO + "".join(f"(assert (== X[{i}] Z[{i}]))\n(assert (<= -1 X[{i}]))(assert (<= X[{i}] 1))\n" for i in range(3))


def same(a, b):
    assert (a.n_inputs, a.n_outputs, len(a.cases)) == (b.n_inputs, b.n_outputs, len(b.cases))
    for c, d in zip(a.cases, b.cases, strict=True):
        for name in ("lower", "upper", "A", "G", "g", "strict"):
            np.testing.assert_array_equal(getattr(c, name), getattr(d, name), err_msg=name)
    return True


# -- reading --


def test_entries_count_in_row_major_order_and_rows_are_those_of_version_1():
    text = (
        "(assert (and (<= X[1,2] 0.5) (> (+ X[0,0] (* 2 X[0,1])) (- Y[1] 0.25 1))))(assert (or (< Y[0] 1) (>= Y[1] 2)))"
    )
    found = rs.vnnlib(ONE + text)
    names = {f"X[{i},{j}]": f"X_{3 * i + j}" for i, j in itertools.product(range(2), range(3))} | {
        "Y[0]": "Y_0",
        "Y[1]": "Y_1",
    }
    for new, old in names.items():
        text = text.replace(new, old)
    declared = "".join(f"(declare-const {name} Real)" for name in names.values())
    assert same(found, rs.vnnlib(declared + text))
    assert found.relation.free == tuple(names)[:6] and found.relation.networks[0].tensors[1].dtype == "float32"


def test_scalars_spaces_types_hidden_tensors_and_node_names():
    text = HEAD + (
        '; a comment\r\n( declare-network f ( declare-input X Real [ ] "in" )\n'
        '(declare-hidden H bfloat16 [2, 2] "relu_1")'
        '(declare-output Y float8e4m3fnuz [1 , 2] "out"))(assert (<= X 1))(assert (== Y [ 0 , 1 ] -2.5e-1))'
    )
    found = rs.vnnlib(text)
    (case,) = found.cases
    assert (found.n_inputs, found.n_outputs, case.upper.tolist()) == (1, 2, [1.0])
    assert case.G.tolist() == [[0, 1], [0, -1]] and case.g.tolist() == [-0.25, 0.25]
    hidden = found.relation.networks[0].tensors[1]
    assert (hidden.shape, hidden.node) == ((2, 2), "relu_1")


def test_unequal_is_both_sides():
    found = rs.vnnlib(ONE + "(assert (!= Y[0] 1))")
    rows = [(c.G.tolist(), c.g.tolist(), c.strict.tolist()) for c in found.cases]
    assert len(rows) == 2 and ([[1.0, 0.0]], [1.0], [True]) in rows and ([[-1.0, 0.0]], [-1.0], [True]) in rows


def test_several_inputs_of_a_network_stand_one_after_the_other():
    text = HEAD + "(declare-network f (declare-input A real [2]) (declare-input B real []) (declare-output Y real [1]))"
    found = rs.vnnlib(text + "(assert (<= B 3))(assert (>= A[1] -1))")
    assert found.cases[0].upper.tolist() == [np.inf, np.inf, 3.0] and found.cases[0].lower[1] == -1


def test_equations_between_inputs_are_solved():
    equal = ["Z[0] (+ (* 2 X[0]) 1)", "(+ X[1] Z[1]) Z[2]", "X[2] Z[2]", "X[0] X[1]"]
    rows = "".join(f"(assert (== {both}))" for both in equal)
    found = rs.vnnlib(TWO + rows + "(assert (and (<= Z[0] 3) (>= Z[1] 0) (< (+ Z[0] Y[0]) W[1])))")
    relation = found.relation
    rng = np.random.default_rng(0)
    for u in rng.normal(size=(5, len(relation.free))):
        x = relation.A @ u + relation.c
        assert np.allclose(x[3], 2 * x[0] + 1) and np.allclose(x[1] + x[4], x[5]) and x[2] == x[5] and x[0] == x[1]
    assert len(relation.free) == 2
    f, g = random_net((3, 4, 2), 0), random_net((3, 5, 5, 2), 1)
    both = found.network({"f": f, "g": g})
    U = rng.normal(size=(200, 2))
    full = U @ relation.A.T.toarray() + relation.c
    y, w = f(full[:, :3]), g(full[:, 3:])
    np.testing.assert_allclose(both(U), np.concatenate([y, w], axis=1), atol=1e-12)
    truth = (full[:, 3] <= 3) & (full[:, 4] >= 0) & (full[:, 3] + y[:, 0] < w[:, 1])
    assert 0 < truth.sum() < 200 and np.array_equal(found.holds(both, U), truth)


def test_equations_of_one_network_stay_rows():
    found = rs.vnnlib(ONE + "(assert (== X[0,0] X[0,1]))(assert (<= Y[0] 1))")
    assert found.n_inputs == 6 and len(found.cases[0].g) == 3


# -- questions --


def test_a_property_of_two_networks_is_the_same_question_as_text():
    f, g = random_net((3, 6, 2), 0), random_net((3, 4, 4, 2), 1)
    prop = rs.vnnlib(SAME + "(assert (or (> (- Y[0] W[0]) 0.5) (< (- Y[0] W[0]) -0.5)))")
    law = rs.Uniform([-1] * 3, [1] * 3)
    nets = {"f": f, "g": g}
    a, b = rs.probability(nets, law, prop), rs.probability(nets, law, "abs(f.y[0] - g.y[0]) > 0.5")
    assert a.guarantee == b.guarantee == "exact" and abs(a.value - b.value) < 1e-12 and 0.05 < a.value < 0.95
    found = rs.witness(nets, law, prop, rng=0)
    values = {t.name: v for _, t, v in tensor_values(prop.relation, found.x, found.y)}
    assert np.array_equal(values["X"], values["Z"]) and np.allclose(values["Y"], f(found.x))
    assert abs(values["Y"][0] - values["W"][0]) > 0.5


def test_equal_networks_are_given_once_and_their_law_is_of_the_free_inputs():
    text = SAME.replace("(declare-network g ", "(declare-network g (equal-to f) ").replace(
        "(assert (== X[0] Z[0]))", ""
    )
    prop = rs.vnnlib(text + "(assert (and (<= Z[0] X[0]) (>= Z[0] -1) (> W[1] Y[1])))")
    net = random_net((3, 6, 2), 3)
    assert prop.relation.free == ("X[0]", "X[1]", "X[2]", "Z[0]")
    law = rs.Uniform([-1] * 4, [1] * 4)
    answer = rs.probability(net, law, prop)
    U = law.sample(200_000, 0)
    X, Z = U[:, :3], U[:, [3, 1, 2]]
    share = ((Z[:, 0] <= X[:, 0]) & (net(Z)[:, 1] > net(X)[:, 1])).mean()
    assert answer.guarantee == "exact" and abs(answer.value - share) < 5 * np.sqrt(share / 200_000)
    same_by_name = rs.probability({"f": net}, law, prop)
    assert same_by_name.value == answer.value
    with pytest.raises(InputError, match=r"equations of the property leave 4: X\[0\], X\[1\], X\[2\], Z\[0\]"):
        rs.probability(net, rs.Uniform([-1] * 6, [1] * 6), prop)
    with pytest.raises(InputError, match="must be equal to f"):
        prop.network({"f": net, "g": random_net((3, 6, 2), 4)})


@pytest.mark.parametrize(
    "nets, text",
    [
        ({"f": (3, 4, 2)}, "network 'g', which is not given"),
        ({"f": (3, 4, 2), "h": (3, 4, 2)}, "no network 'h'; it speaks of f, g"),
        ({"f": (3, 4, 2), "g": (3, 5, 2)}, "must have the structure of f"),
        ({"f": (3, 4, 2), "g": (2, 4, 2)}, "has 2 inputs and 2 outputs, the property says 3 and 2"),
    ],
)
def test_networks_must_fit_their_declarations(nets, text):
    prop = rs.vnnlib(SAME.replace("network g ", "network g (isomorphic-to f) ") + "(assert (> Y[0] W[0]))")
    with pytest.raises(InputError, match=text):
        prop.network({name: random_net(widths, 0) for name, widths in nets.items()})


# -- writing --


@pytest.mark.parametrize("version", [1, 2])
def test_events_are_written_and_read_back_equal(tmp_path, version):
    texts = [
        "y[0] > 1",
        "0.1 <= x[0] < 0.3 and x[1] + 2 * x[2] <= 1e-7 and y[0] - 3 * y[1] >= 1.25e30",
        "(x[0] < 1 and y[1] >= y[0]) or (x[0] > 2 and y[1] == 0.1) or argmax == 1",
        "x[1] > -0.5 or x[1] < -0.7",
    ]
    for text in texts:
        event = rs.event(text, 3, 2)
        event.to_vnnlib(tmp_path / "p.vnnlib", version=version)
        assert same(rs.vnnlib(tmp_path / "p.vnnlib"), event), text
    with pytest.raises(InputError, match="Jacobian or of units"):
        rs.event("J[0,0] > 1", 3, 2).to_vnnlib(tmp_path / "q.vnnlib")
    with pytest.raises(InputError, match="version must be"):
        event.to_vnnlib(tmp_path / "q.vnnlib", version=3)
    assert not (tmp_path / "q.vnnlib").exists()


def test_what_never_and_what_always_happens_is_written(tmp_path):
    never, always = replace(rs.event("y[0] > 1", 3, 2), cases=()), rs.event("true", 3, 2)
    never.to_vnnlib(tmp_path / "p.vnnlib")
    with pytest.warns(ReluscopeWarning, match="can never happen"):
        assert rs.vnnlib(tmp_path / "p.vnnlib").cases == ()
    always.to_vnnlib(tmp_path / "p.vnnlib")
    assert same(rs.vnnlib(tmp_path / "p.vnnlib"), always)


def test_properties_of_several_networks_are_written(tmp_path):
    for source in (HERE / "isomorphic_corrected.vnnlib", HERE / "monotonic_corrected.vnnlib"):
        event = rs.vnnlib(source)
        event.to_vnnlib(tmp_path / "p.vnnlib", version=2)
        back = rs.vnnlib(tmp_path / "p.vnnlib")
        assert same(event, back) and back.relation.networks == event.relation.networks
        assert (back.relation.A != event.relation.A).nnz == 0 and np.array_equal(back.relation.c, event.relation.c)
        with pytest.raises(InputError, match="speaks of one network"):
            event.to_vnnlib(tmp_path / "q.vnnlib", version=1)
    skewed = rs.vnnlib(TWO + "(assert (== Z[0] (+ (* 2.5 X[0]) X[1] -0.125)))(assert (> Y[0] W[0]))")
    skewed.to_vnnlib(tmp_path / "p.vnnlib")
    back = rs.vnnlib(tmp_path / "p.vnnlib")
    assert same(skewed, back) and np.array_equal(back.relation.c, skewed.relation.c)
    assert (back.relation.A != skewed.relation.A).nnz == 0


# -- the published files --


def test_a_contradiction_is_said_and_is_answered_by_zero():
    words = r"acasxu.vnnlib can never happen: rows 1 and 2 contradict each other: .*line 30, column 14.*column 41"
    with pytest.warns(ReluscopeWarning, match=words):
        event = rs.vnnlib(HERE / "isomorphic_acasxu.vnnlib")
    nets = {"f": random_net((5, 4, 5), 0), "g": random_net((5, 4, 5), 1)}
    answer = rs.probability(nets, rs.Uniform([0] * 5, [1] * 5), event)
    assert (answer.value, answer.upper, answer.guarantee) == (0.0, 0.0, "exact")
    assert "rows 1 and 2 contradict each other" in answer.note
    meant = rs.vnnlib(HERE / "isomorphic_corrected.vnnlib")
    assert len(meant.cases) == 10 and len(meant.boxes) == 1 and meant.n_inputs == 5


def test_an_infix_comparison_is_an_error_with_its_place():
    with pytest.raises(
        InputError, match=r"line 30, column 10 of monotonic_acasxu.vnnlib: Y_f\[3\] stands where an oper"
    ):
        rs.vnnlib(HERE / "monotonic_acasxu.vnnlib")
    meant = rs.vnnlib(HERE / "monotonic_corrected.vnnlib")
    assert meant.relation.free == (*(f"X_f[{i}]" for i in range(5)), "X_g[0]")
    assert meant.cases[0].lower[3] == meant.cases[0].upper[3] == 0.227272727


def test_products_of_variables_are_refused_by_name_and_the_linear_part_is_offered():
    path = HERE / "adaptive_cruise_control.vnnlib"
    with pytest.raises(UnsupportedError, match=r"line 15, column 50 of .*: \(\* X\[0,1\] X\[0,1\]\) is a product"):
        rs.vnnlib(path)
    part = rs.vnnlib(path, linear_part=True)
    assert "5 comparisons with products of variables were taken to hold" in part.note and "upper bound" in part.note
    rng = np.random.default_rng(0)
    x = np.stack([rng.uniform(20, 40, 2000), rng.uniform(-40, 0, 2000)], axis=1)
    y = rng.choice([0.0, 1.0], size=(2000, 1)) * rng.uniform(-120, 120, size=(2000, 1))
    inside = part.contains(x, y)
    assert (inside | ~_acc(x, y)).all() and 0 < _acc(x, y).sum() < inside.sum()


def _acc(x, y):
    """The property as it is written, by hand."""
    a, v, u = x[:, 0], x[:, 1], y[:, 0]
    safe = (a > 0) & (a * 200 >= v * v)
    stopped = np.where(u > 0, (-v <= 0.1 * u) & (-v >= 0), np.where(u < 0, (-v >= 0.1 * u) & (-v <= 0), True))
    reached = np.where(u > 0, 2 * a * u <= v * v, np.where(u < 0, 2 * a * u >= v * v, True))
    ahead = 200 * (a + 0.1 * v + 0.005 * u) <= (v + 0.1 * u) ** 2
    last = (u >= 100) | (u < -100) | (u == 0) | ahead | (stopped & reached)
    out = (u < -100.001) | (u > 100.001) | ((u < 100) & ((u != 0) | ((a + 0.1 * v) * 200 <= v * v)) & last)
    return safe & out


def test_the_linear_part_is_for_version_2():
    with pytest.raises(InputError, match="linear_part is for properties of version 2"):
        rs.vnnlib("(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= Y_0 0))", linear_part=True)


# -- refusals and limits --

SCALARS = "(declare-input A real []) (declare-output B real [])"
BAD = {
    "no version": ("(vnnlib-version)", r"line 1, column 1 .*the version has the form"),
    "version twice": (HEAD + HEAD, "stands once"),
    "network later": (ONE + f"(assert (<= Y[0] 1))(declare-network g {SCALARS})", "before the first assert"),
    "no network": (HEAD, "declares no network"),
    "no assertion": (ONE, "asserts nothing"),
    "no output": (HEAD + "(declare-network f (declare-input X real [2]))", "at least one input and one output"),
    "no shape": (HEAD + "(declare-network f (declare-input X real))", r"\(declare-input X real \[1,5\]\)"),
    "hidden without node": (HEAD + "(declare-network f (declare-hidden X real [1]))", "node"),
    "empty tensor": (HEAD + "(declare-network f (declare-input X real [2,0]))", "no entries"),
    "unknown type": (HEAD + "(declare-network f (declare-input X float99 [2]))", "no element type"),
    "network twice": (TWO.replace("network g", "network f"), "declared twice"),
    "tensor twice": (TWO.replace("input Z", "input X"), "declared twice"),
    "like a stranger": (TWO.replace("network g", "network g (equal-to h)"), "declared before, got h"),
    "like two": (TWO.replace("network g", "network g (equal-to f) (isomorphic-to f)"), "twice"),
    "other size": (TWO.replace("network g", "network g (equal-to f)").replace("Z real [3]", "Z real []"), "sizes"),
    "version 1 inside": (HEAD + "(declare-const X_0 Real)", "belongs to VNN-LIB 1.0"),
    "rank": (ONE + "(assert (<= X[1] 1))", r"line 3, column 9 .*X\[1\] does not exist: X has the shape \[2, 3\]"),
    "range": (ONE + "(assert (<= X[0,3] 1))", "does not exist"),
    "negative index": (ONE + "(assert (<= X[0,-1] 1))", "say which entry"),
    "no index": (ONE + "(assert (<= X 1))", r"say which entry, as in X\[0,0\]"),
    "unknown tensor": (ONE + "(assert (<= V[0] 1))", "neither a number"),
    "three operands": (ONE + "(assert (<= X[0,0] X[0,1] (+ 1 2)))", "compares two expressions, got 3"),
    "logic of numbers": (ONE + "(assert (and 1 2))", "takes constraints"),
    "sum of constraints": (ONE + "(assert (<= (+ (<= Y[0] 1)) 2))", "takes numbers"),
    "infix": (ONE + "(assert (1 < Y[0]))", "operator first"),
    "unclosed": (ONE + "(assert (<= Y[0] 1)", "never closed"),
    "closed twice": (ONE + "(assert (<= Y[0] 1)))", "too many"),
    "outside": (ONE + "oops", "outside of any"),
    "bare constraint": (ONE + "(<= Y[0] 1)", r"inside \(assert"),
    "nested declaration": (ONE + "(assert (declare-input X real [1]))", "not known here"),
    "assert inside": (ONE + "(assert (and (assert (<= Y[0] 1))))", "not known here"),
    "overflow": (ONE + "(assert (<= Y[0] 1e999))", "too large"),
    "digits": (ONE + f"(assert (<= Y[0] {'9' * 5000}))", "characters"),
    "endless product": (ONE + f"(assert (<= Y[0] (* {'1.23456789012345678901 ' * 2000})))", "too long"),
    "no inputs left": (
        HEAD + "(declare-network f (declare-input A real []) (declare-output B real []))"
        "(declare-network g (declare-input C real []) (declare-output D real []))"
        "(assert (== A C))(assert (== A (+ C C)))",
        "fix all inputs",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "message"), BAD.values(), ids=BAD.keys())
def test_bad_properties(source, message):
    with pytest.raises(InputError, match=message) as caught:
        rs.vnnlib(source)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text, words",
    [
        (ONE.replace("X real", "X int32") + "(assert (<= Y[0] 1))", "declared as int32: whole numbers"),
        (ONE.replace("X real", "X complex64") + "(assert (<= Y[0] 1))", "declared as complex64"),
        (ONE + "(assert (not (<= Y[0] 1)))", "not is not known here"),
        (ONE + "(assert (<= (/ Y[0] 2) 1))", "/ is not known here"),
        (ONE + "(assert (<= (* X[0,0] Y[0] 2) 1))", r"\(\* X\[0,0\] Y\[0\] 2\) is a product"),
        (
            ONE.replace("(declare-output", '(declare-hidden H real [2] "r") (declare-output') + "(assert (<= H[0] 1))",
            "hidden tensor",
        ),
    ],
)
def test_what_is_not_read_is_unsupported(text, words):
    with pytest.raises(UnsupportedError, match=words):
        rs.vnnlib(text)


@pytest.mark.parametrize(
    "rows, words",
    [
        ("(assert (<= X[0,0] 0))(assert (>= X[0,0] 1))", "no input is at least 1.0 and at most 0.0"),
        ("(assert (< Y[0] 0))(assert (> Y[0] 0))", "rows 1 and 2 contradict each other"),
        ("(assert (< Y[0] Y[1]))(assert (or (< Y[1] Y[0]) (and (<= Y[0] 1) (>= Y[0] 2))))", "contradict each other"),
        ("(assert (< 2 1))", "never holds"),
        ("(assert (<= X[0,0] 0))(assert (or (>= X[0,0] 1) (>= X[0,0] 2)))", "bounds contradict"),
    ],
)
def test_what_can_never_happen_is_said(rows, words):
    with pytest.warns(ReluscopeWarning, match=words):
        event = rs.vnnlib(ONE + rows)
    assert event.cases == () and words in event.note


def test_contradictory_equations():
    with pytest.warns(ReluscopeWarning, match="equations between inputs contradict"):
        rs.vnnlib(TWO + "(assert (== X[0] Z[0]))(assert (== X[0] (+ Z[0] 1)))(assert (<= Y[0] 1))")


def test_contradictory_disjuncts_are_left_out():
    event = rs.vnnlib(ONE + "(assert (< Y[0] Y[1]))(assert (or (< Y[1] Y[0]) (<= Y[0] 1)))")
    assert len(event.cases) == 1 and event.note == ""


BOMBS = {
    "tokens": (ONE + "(assert (<= (+ 1 1 1 1 1 1 1 1) 9))", {"tokens": 20}),
    "depth": (ONE + "(assert " + "(and " * 50 + "(<= Y[0] 1)" + ")" * 51, {"depth": 20}),
    "entries of a tensor": (HEAD + "(declare-network f (declare-input X real [1000000,1000000]))", {}),
    "entries of all tensors": (ONE, {"elements": 5}),
    "many tensors": (
        HEAD + "(declare-network f " + "".join(f"(declare-input X{i} real [])" for i in range(50)) + ")",
        {"tensors": 10},
    ),
    "disjuncts": (ONE + "(assert (or (<= Y[0] 1) (>= Y[0] 2)))" * 40, {}),
    "bytes": (ONE, {"text_bytes": 10}),
    "time": (ONE + "(assert (or (<= Y[0] 1) (>= Y[0] 2)))" * 10, {"seconds": 1e-9}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "limits"), BOMBS.values(), ids=BOMBS.keys())
def test_limits_hold(text, limits):
    with pytest.raises(InputLimitError):
        rs.vnnlib(text, limits=rs.Limits(**limits))


def test_long_files_take_linear_work():
    n = 3000
    text = HEAD + f"(declare-network f (declare-input X real [{n}]) (declare-output Y real [1]))"
    text += "".join(f"(assert (>= X[{i}] -0.1{i}))\n(assert (<= X[{i}] 0.1{i}))\n" for i in range(n))
    event = rs.vnnlib(text + "(assert (<= Y[0] 0))", limits=rs.Limits(tokens=10 * n))
    assert event.cases[0].upper[7] == 0.17 and len(event.cases[0].g) == 1


# -- the real files --


@pytest.mark.needs_data
def test_the_ten_properties_of_acas_xu_are_those_of_version_1(data_folder):
    nets = data_folder / "nets"
    for k in range(1, 11):
        old = rs.vnnlib(nets / f"acasxu/vnnlib/prop_{k}.vnnlib")
        assert same(rs.vnnlib(nets / f"vnncomp2026/vnnlib2/acasxu_prop_{k}.vnnlib"), old)
