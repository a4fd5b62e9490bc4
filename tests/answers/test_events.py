"""Events from text: meaning checked against Python's own evaluation of the same expression, errors, limits."""

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import reluscope as rs
from nets import random_net
from reluscope.errors import InputError, InputLimitError
from reluscope.events import as_event, event

N_IN, N_OUT = 3, 4


def cases_hold(found, x, y):
    """By the definition of a case, apart from `Event.holds`."""
    for case in found.cases:
        left = case.A @ x + case.G @ y
        rows = all(a < b if s else a <= b for a, b, s in zip(left, case.g, case.strict, strict=True))
        if rows and (case.lower <= x).all() and (case.upper >= x).all():
            return True
    return False


@st.composite
def expressions(draw, depth=2):
    """A condition as (text for us, text for Python)."""
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        kind = draw(st.sampled_from(["compare", "chain", "class", "abs", "max"]))
        if kind == "class":
            k = draw(st.integers(0, N_OUT - 1))
            arg, op = draw(st.sampled_from(["argmax", "argmin"])), draw(st.sampled_from(["==", "!="]))
            return f"{arg} {op} {k}", f"(int(np.{arg}(y)) {op} {k})"
        a, b, c = (draw(linear()) for _ in range(3))
        ops = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
        if kind == "chain":
            one, two = draw(ops), draw(ops)
            return f"{a} {one} {b} {two} {c}", f"({a} {one} {b} {two} {c})"
        op = draw(ops)
        if kind == "abs":
            return f"abs({a}) {op} {b}", f"(abs({a}) {op} {b})"
        if kind == "max":
            name = draw(st.sampled_from(["max", "min"]))
            return f"{c} {op} {name}({a}, {b})", f"({c} {op} {name}({a}, {b}))"
        return f"{a} {op} {b}", f"({a} {op} {b})"
    op = draw(st.sampled_from(["and", "or", "not"]))
    left, python = draw(expressions(depth - 1))
    if op == "not":
        return f"not ({left})", f"(not ({python}))"
    right, other = draw(expressions(depth - 1))
    return f"({left}) {op} ({right})", f"({python} {op} {other})"


@st.composite
def linear(draw):
    # Small whole numbers: every sum is exact in float64, so that both readings agree at ties too.
    terms = [str(draw(st.integers(-3, 3)))]
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from([f"x[{i}]" for i in range(N_IN)] + [f"y[{j}]" for j in range(N_OUT)]))
        factor = draw(st.sampled_from(["", "2*", "-3*", "4*0.5*"]))
        terms.append(f"{factor}{name}")
    return "(" + " + ".join(terms) + ")"


@settings(max_examples=200, deadline=None)
@given(expressions(), st.integers(0, 10**6))
def test_meaning_is_that_of_the_text(pair, seed):
    text, python = pair
    rng = np.random.default_rng(seed)
    try:
        found = event(text, N_IN, N_OUT)
    except InputLimitError:  # a normal form too large to make; hypothesis stops when there are too many
        reject()
    for _ in range(12):
        x, y = rng.integers(-3, 4, N_IN).astype(float), rng.integers(-3, 4, N_OUT).astype(float)
        assert cases_hold(found, x, y) == bool(eval(python, {"x": x, "y": y, "np": np})), (text, x, y)


@settings(max_examples=60, deadline=None)
@given(expressions(1), expressions(1), st.integers(0, 10**6))
def test_events_join(a, b, seed):
    rng = np.random.default_rng(seed)
    try:
        first, second = event(a[0], N_IN, N_OUT), event(b[0], N_IN, N_OUT)
        both, either, no = first & second, first | second, ~first
    except InputLimitError:
        reject()
    for _ in range(8):
        x, y = rng.integers(-3, 4, N_IN).astype(float), rng.integers(-3, 4, N_OUT).astype(float)
        one, two = cases_hold(first, x, y), cases_hold(second, x, y)
        assert cases_hold(both, x, y) == (one and two)
        assert cases_hold(either, x, y) == (one or two)
        assert cases_hold(no, x, y) == (not one)


def test_forms_that_python_does_not_have():
    y = np.array([1.0, 5.0, 5.0, 0.0])
    x = np.zeros(3)
    assert cases_hold(event("argmax in {1, 3}", 3, 4), x, y)  # of equal outputs the first counts
    assert not cases_hold(event("argmax == 2", 3, 4), x, y)
    assert cases_hold(event("argmax not in {0, 2}", 3, 4), x, y)
    assert cases_hold(event("argmin not in {0, 1, 2}", 3, 4), x, y)
    assert cases_hold(event("Y_1 ≥ 5 && !(X_0 > 0 | x[1] ≠ 0)", 3, 4), x, y)
    minus, hyphen = event("y[0] > −5 − x[0]", 3, 4).cases[0], event("y[0] > -5 - x[0]", 3, 4).cases[0]
    assert minus.A.tolist() == hyphen.A.tolist() and minus.g.tolist() == hyphen.g.tolist()
    assert cases_hold(event("max(y) = 5", 3, 4), x, y)
    assert event("true", 3, 4).cases and not event("not true", 3, 4).cases
    assert len(event("argmax in {0, 1, 2, 3}", 3, 4).cases) == 1


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("|y[0]| > 1", "abs(y[0]) > 1"),
        ("|y0 - y1| <= 2*x2", "abs(y[0] - y[1]) <= 2*x[2]"),
        ("|y[0]| > 1 | x[0] < 0", "abs(y[0]) > 1 or x[0] < 0"),
        ("x0 < 0 || |y1| < 2", "x[0] < 0 or abs(y[1]) < 2"),
        ("1 < |y1| < 2 | |y0|>1|x0>0", "1 < abs(y[1]) < 2 or abs(y[0]) > 1 or x[0] > 0"),
        ("not -|y0| > -1", "not -abs(y[0]) > -1"),
        ("max(|y|, x2) > 1", "max(abs(y), x[2]) > 1"),
    ],
)
def test_bars_and_short_names(text, same):
    a, b = rs.event(text, 3, 2), rs.event(same, 3, 2)
    assert len(a.cases) == len(b.cases)
    for one, other in zip(a.cases, b.cases, strict=True):
        for part in ("lower", "upper", "A", "G", "g", "strict", "F"):
            np.testing.assert_array_equal(getattr(one, part), getattr(other, part))


def test_a_short_name_that_is_given_to_something_else():
    (case,) = rs.event("y0 > 1", 3, 2, names=["a", "y0", "c"]).cases
    assert case.lower[1] == 1
    net = rs.Network([(np.eye(2), [0.0, 0.0])])
    pair = rs.stack({"f": net, "g": net})
    text = "|f.y0 - g.y0| > 1"
    (one, other) = (rs.event(t, pair.n_inputs, pair.n_outputs, net=pair) for t in (text, "abs(f.y[0] - g.y[0]) > 1"))
    np.testing.assert_array_equal(one.cases[0].G, other.cases[0].G)


def test_names_and_bare_variables():
    found = event("speed > 2 and 'left turn' <= 0 and y < 1", 2, 1, names=["speed", "left turn"])
    (case,) = found.cases
    assert case.lower[0] == 2 and case.upper[1] == 0
    assert event("x['speed'] > 2", 2, 1, names={"speed": 1}).cases[0].lower[1] == 2
    assert event("go >= 0", 2, 3, output_names=["stop", "go", "wait"]).cases[0].G.tolist() == [[0, -1, 0]]


def test_constants_are_exact_and_rounded_once():
    third = event("3 * y[0] <= 1", 1, 1).cases[0]
    assert third.G[0, 0] == 1 and third.g[0] == 1 / 3
    assert event("y[0] <= 0.1 + 0.2", 1, 1).cases[0].g[0] == 0.3  # in float64 arithmetic it is not
    assert event("1e-400 < 1", 1, 1).cases


def test_bounds_on_inputs_become_the_box():
    case = event("0 <= x[0] < 1 and x[1] >= -2", 2, 1).cases[0]
    assert case.lower.tolist() == [0, -2] and case.upper.tolist() == [1, np.inf]
    assert case.A.tolist() == [[1, 0]] and case.strict.tolist() == [True]
    assert not event("x[0] > 1 and x[0] < 0", 2, 1).cases
    assert not event("y[0] > 1 and y[0] <= 1", 2, 1).cases


def test_argmax_at_mean():
    net, law = random_net((2, 5, 3), 0), rs.Gaussian([0.3, -0.2])
    k = int(np.argmax(net(law.mean)))
    found = event("argmax != argmax at mean", 2, 3, net=net, law=law)
    assert not found.holds(net, law.mean) and event(f"argmax == {k}", 2, 3).holds(net, law.mean)


def test_features_of_the_function():
    net = random_net((3, 6, 5, 2), 1)
    X = np.random.default_rng(0).normal(size=(200, 3))
    J = net.jacobian(X)
    pattern = net.pattern(X)
    for text, wanted in (
        ("J[1,2] < 0", J[:, 1, 2] < 0),
        ("J[0,0] + 2*J[1,1] >= 0.5", J[:, 0, 0] + 2 * J[:, 1, 1] >= 0.5),
        ("norm(J) > 1", np.linalg.svd(J, compute_uv=False)[:, 0] > 1),
        ("norm1(J) > 1", np.linalg.norm(J, 1, axis=(1, 2)) > 1),
        ("norminf(J) > 1", np.linalg.norm(J, np.inf, axis=(1, 2)) > 1),
        ("fro(J) <= 1", np.linalg.norm(J, axis=(1, 2)) <= 1),
        ("unit[1,3] on", pattern[:, 6 + 3] == 1),
        ("unit[0,0] is off", pattern[:, 0] == 0),
        ("unit[0,0] == 1 and y[0] > J[0,0]", (pattern[:, 0] == 1) & (net(X)[:, 0] > J[:, 0, 0])),
    ):
        found = as_event(text, net)
        assert (found.holds(net, X) == wanted).all() and wanted.any() and not wanted.all(), text
        assert ((~found).holds(net, X) == ~wanted).all()
        with pytest.raises(InputError, match="not a set of inputs and outputs"):
            found.contains(X, net(X))


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("y[0] >", "something is missing", 6),
        ("y[0] y[1]", "join conditions", 5),
        ("y[5] > 1", "output 5 does not exist: there are 4 outputs", 2),
        ("(y[0] > 1", r"expected '\)'", 9),
        ("x[0]*y[0] > 1", "not linear", 4),
        ("foo > 1", "'foo' is not known", 0),
        ("argmax > 2", "compared with ==", 7),
        ("y[0] and y[1] > 0", "condition is expected", 0),
        ("1/0 < y[0]", "non-zero number", 1),
        ("y > 2", "y has 4 entries", 0),
        ("argmax == argmax at mean", "needs the network and the law", 10),
        ("y[0] > 1e999", "too large", 7),
        ("__import__('os')", "not known", 0),
        ("y[0].real > 1", r"'\.' is not expected", 4),
        ("J[0] > 1", "expected ','", 3),
        ("abs(y[0]) + 1 > 2", "compared directly", 10),
        ("x[0] > 0 and |y0 > 2", "close the absolute value", 13),
        ("|y0", "close the absolute value", 0),
        ("y7 > 2", "output 7 does not exist", 0),
        ("y[0] > 1 ; y[1] > 2", "character ';'", 9),
        ("norm(x) > 1", "norm of the Jacobian", 5),
        ("argmax in 3", "a set", 10),
        ("y[-1] > 0", "whole number", 2),
    ],
)
def test_errors_point_at_their_place(text, message, column):
    with pytest.raises(InputError, match=message) as caught:
        event(text, N_IN, N_OUT)
    lines = str(caught.value).split("\n")
    assert lines[1] == f"    {text}"
    assert lines[2].index("^") - 4 == column


def test_limits():
    for text in ("(" * 5000 + "y[0]>1" + ")" * 5000, "-(" * 2000 + "1" + ")" * 2000 + " < y[0]", "9" * 5000 + "<y[0]"):
        with pytest.raises(InputLimitError):
            event(text, 1, 1)
    with pytest.raises(InputLimitError, match="characters"):
        event("y[0]>1 or " * 20_000 + "y[0]>2", 1, 1)
    wide = " and ".join(f"(y[{i}] > {k} or x[{i}] < {k})" for k in range(10) for i in range(3))
    with pytest.raises(InputLimitError, match="disjunct"):
        event(wide, 3, 3, limits=rs.Limits(disjuncts=2000))
    assert len(event(" or ".join(f"y[0] > {k}" for k in range(3000)), 1, 1).cases) == 3000
    assert event("not " * 3000 + "y[0] > 1", 1, 1).cases
    with pytest.raises(InputLimitError, match="too long"):
        event("*".join(["1.2345678901234567e-300"] * 40) + " < y[0]", 1, 1)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="xyJ[]()<>=!&|+-*/0123456789.,{} eandortuif\n'\"\\\x00é", max_size=60))
def test_any_text_is_read_or_refused_politely(text):
    try:
        read = event(text, 2, 2)
    except InputError as error:
        assert str(error)
    else:
        assert isinstance(read, rs.Event)


def test_what_counts_as_an_event():
    net = random_net((2, 4, 3), 0)
    box = "".join(f"(declare-const X_{i} Real)(assert (>= X_{i} 0))(assert (<= X_{i} 1))" for i in range(2))
    prop = rs.vnnlib(box + "".join(f"(declare-const Y_{i} Real)" for i in range(3)) + "(assert (>= Y_0 Y_1))")
    assert as_event(prop, net) is prop
    X = np.random.default_rng(0).normal(size=(100, 2))
    pair = as_event(([[1.0, -1.0, 0.0]], [0.0]), net)
    assert (pair.holds(net, X) == (net(X)[:, 0] <= net(X)[:, 1])).all()
    assert ((as_event(prop, net) & pair).holds(net, X) == (prop.contains(X, net(X)) & pair.holds(net, X))).all()
    for bad in (3, None, ("a",), ([[1.0, 2.0]], [0.0])):
        with pytest.raises(InputError):
            as_event(bad, net)
    with pytest.raises(InputError, match="3 inputs"):
        as_event(event("y[0] > 0", 3, 3), net)
    with pytest.raises(InputError, match="1 hidden layer, counted from 0"):
        as_event("unit[1,0] on", net)
    with pytest.raises(InputError, match="go from 0 to 3"):
        as_event("unit[0,4] on", net)
    assert repr(as_event("y[0] > 0", net)) == "Event('y[0] > 0', 1 case)"
    assert rs.event is event


def test_no_rows_hold_nothing():
    net = rs.Network([([[1.0, 2.0]], [0.0])])
    found = as_event("y[0] > 1", net).holds(net, np.zeros((0, 2)))
    assert found.shape == (0,)
    assert found.dtype == bool
