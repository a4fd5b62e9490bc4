"""VNN-LIB properties: meaning, numbers, errors, and the real files."""

from __future__ import annotations

import csv
import gzip
import json
import os
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reluscope.errors import InputError, InputLimitError, UnsupportedError
from reluscope.events import Event
from reluscope.formats.vnnlib import vnnlib
from reluscope.limits import Limits
from reluscope.network import Network

DATA = os.environ.get("RELUSCOPE_DATA")


def declare(n_inputs: int, n_outputs: int) -> str:
    names = [f"X_{i}" for i in range(n_inputs)] + [f"Y_{j}" for j in range(n_outputs)]
    return "".join(f"(declare-const {name} Real)\n" for name in names)


def read(asserts: str, n_inputs: int = 2, n_outputs: int = 2, **options) -> Event:
    return vnnlib(declare(n_inputs, n_outputs) + asserts, **options)


# -- meaning --


def test_box_and_output_rows() -> None:
    p = read(
        "(assert (<= X_0 0.5))(assert (>= X_0 -0.25))(assert (>= X_1 1e-3))(assert (<= Y_1 Y_0))(assert (>= Y_0 3))"
    )
    assert (p.n_inputs, p.n_outputs, len(p.cases)) == (2, 2, 1)
    (case,) = p.cases
    np.testing.assert_array_equal(case.lower, [-0.25, 1e-3])
    np.testing.assert_array_equal(case.upper, [0.5, np.inf])
    np.testing.assert_array_equal(case.G, [[-1, 1], [-1, 0]])
    np.testing.assert_array_equal(case.g, [0, -3])
    assert not case.strict.any() and not case.reads_inputs.any() and case.G.any(axis=1).all()
    assert case.A.shape == (2, 2) and not case.A.any()
    assert repr(p) == "Event('the property text', 1 case)"
    assert repr(case) == "Case(1 of 2 inputs bounded, 2 rows)"


def test_tightest_bound_wins_and_equality_pins() -> None:
    p = read("(assert (<= X_0 5))(assert (<= X_0 2))(assert (<= X_0 3))(assert (>= X_0 -1))(assert (= X_1 0.1))")
    np.testing.assert_array_equal(p.cases[0].upper, [2, 0.1])
    np.testing.assert_array_equal(p.cases[0].lower, [-1, 0.1])
    assert p.contains([0, 0.1], [9, 9]) is True
    assert p.contains([0, 0.2], [9, 9]) is False


def test_boxes_times_outputs() -> None:
    p = read(
        "(assert (or (and (<= X_0 1) (>= X_0 0)) (and (<= X_0 3) (>= X_0 2))))"
        "(assert (or (<= Y_0 0) (and (>= Y_1 1) (<= Y_1 2))))"
    )
    assert len(p.cases) == 4 and len(p.boxes) == 2 and [len(g) for g in p.by_box] == [2, 2]
    assert p.cases[0].lower is p.cases[1].lower  # boxes are shared, not copied
    X = np.array([[0.5, 0], [1.5, 0], [2.5, 0], [0.5, 0], [2.5, 9]])
    Y = np.array([[-1, 5], [-1, 5], [1, 1.5], [1, 5], [0, 0]])
    np.testing.assert_array_equal(p.contains(X, Y), [True, False, True, False, True])


def test_strict_rows() -> None:
    p = read("(assert (< Y_0 1))(assert (> X_0 0))(assert (<= X_0 1))")
    assert p.cases[0].strict.all() and p.cases[0].lower[0] == 0.0
    X = np.array([[0.0, 0], [1e-300, 0], [1, 0], [1, 0]])
    Y = np.array([[0, 0], [0, 0], [1, 0], [np.nextafter(1, 0), 0]])
    np.testing.assert_array_equal(p.contains(X, Y), [False, True, False, True])


def test_rows_that_mix_inputs_and_outputs() -> None:
    p = read("(assert (<= (+ (* 2 X_0) (- Y_1 3)) (/ X_1 4)))")
    (case,) = p.cases
    np.testing.assert_array_equal(case.A, [[2, -0.25]])
    np.testing.assert_array_equal(case.G, [[0, 1]])
    assert case.g[0] == 3 and case.reads_inputs.all() and case.G.any(axis=1).all()
    assert p.contains([1, 4], [0, 2]) and not p.contains([1, 4], [0, 2.1])


def test_rows_on_inputs_alone() -> None:
    (case,) = read("(assert (<= (+ X_0 X_1) 1))(assert (<= Y_0 0))").cases
    np.testing.assert_array_equal(case.reads_inputs, [True, False])
    np.testing.assert_array_equal(case.inputs_alone, [True, False])


@pytest.mark.parametrize(
    ("formula", "inside", "outside"),
    [
        ("(not (<= Y_0 1))", [1.5], [1.0]),
        ("(not (or (<= Y_0 1) (>= Y_0 2)))", [1.5], [1.0, 2.0]),
        ("(not (and (> Y_0 1) (< Y_0 2)))", [1.0, 2.0, 5.0], [1.5]),
        ("(not (not (= Y_0 1)))", [1.0], [0.999]),
        ("(not (= Y_0 1))", [0.999, 1.5], [1.0]),
        ("(<= 0 Y_0 1)", [0.0, 0.5, 1.0], [-0.1, 1.1]),
        ("(> 3 Y_0 (- 1))", [0.0, 2.9], [3.0, -1.0]),
        ("(or false (<= Y_0 1))", [0.0], [2.0]),
        ("(and true (<= Y_0 1))", [0.0], [2.0]),
        ("(<= (- Y_0) (* 2 (- 1 0.5)))", [-1.0], [-1.1]),
        ("(<= (+ Y_0 Y_0 (* Y_0 0.5)) 5)", [2.0], [2.1]),
        ("(>= (/ Y_0 -2) 1)", [-2.0], [-1.9]),
        ("(or (<= Y_0 Y_0) (<= Y_0 -5))", [0.0, 100.0], []),
    ],
)
def test_formulas(formula: str, inside: list[float], outside: list[float]) -> None:
    p = read(f"(assert {formula})", 1, 1)
    assert all(p.contains([0.0], [y]) for y in inside)
    assert not any(p.contains([0.0], [y]) for y in outside)


def test_empty_disjuncts_are_left_out() -> None:
    p = read(
        "(assert (<= X_0 1))(assert (>= X_0 0))"
        "(assert (or (and (>= X_0 2) (<= Y_0 0)) (and (< X_0 0) (<= Y_0 0)) (and (<= X_0 0.5) (<= Y_0 0))))"
    )
    assert len(p.cases) == 1 and p.cases[0].upper[0] == 0.5


def test_declare_fun_comments_line_endings_bom_and_other_commands() -> None:
    text = (
        '; a comment with ( and )\n(set-logic QF_LRA)(set-info :source |two\nlines| "a ) b")\n'
        "(declare-fun X_0 () Real)\n(declare-const ; here\n Y_0\tReal)\n"
        "(assert ; between\n (<= X_0 ; inside\n 1.5))(assert (or (<= Y_0 1.)(>= Y_0 +2.5e+1)))\n(check-sat)\n; end"
    )
    for variant in (text, text.replace("\n", "\r\n"), text.replace("\n", "\r"), "\ufeff" + text, text.encode()):
        p = vnnlib(variant)
        assert p.cases[0].upper[0] == 1.5 and [c.g[0] for c in p.cases] == [1.0, -25.0]


def test_evaluate_on_a_network() -> None:
    net = Network([([[1.0], [-1.0]], [0, 0]), ([[1.0, 1.0]], [0])])  # |x|
    p = read("(assert (<= X_0 2))(assert (>= Y_0 1))", 1, 1)
    np.testing.assert_array_equal(p.holds(net, [[-1.5], [0.5], [1.0], [2.5]]), [True, False, True, False])
    assert p.holds(net, [1.0]) is True
    with pytest.raises(InputError, match="2 inputs and 2 outputs"):
        read("(assert (<= Y_0 1))").holds(net, [[1.0]])


def test_holds_checks_its_arguments() -> None:
    p = read("(assert (<= Y_0 1))")
    for x, y in [([1.0], [1.0, 2.0]), ([[1, 2]], [[1, 2], [3, 4]]), ([np.nan, 1], [1, 2]), ([1, 2], [[1, 2]])]:
        with pytest.raises(InputError):
            p.contains(x, y)
    assert p.contains(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0,)
    assert p.contains(np.zeros((3, 1, 2)), np.zeros((3, 2, 1))).all()


def test_a_case_without_rows_is_the_whole_box() -> None:
    p = read("(assert (or (and (<= X_0 1) (>= X_0 0)) (and (<= X_0 1) (>= X_0 0) (<= Y_0 -9))))")
    assert p.contains([0.5, 0], [5, 5]) and not p.contains([1.5, 0], [-10, 5])


# -- numbers --


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30))
@settings(max_examples=200, deadline=None)
def test_numbers_are_rounded_once(value: Decimal) -> None:
    plain = read(f"(assert (<= Y_0 {value}))", 1, 1)
    assert plain.cases[0].g[0] == float(value)
    moved = read(f"(assert (<= (+ Y_0 1) (+ {value} 1)))", 1, 1)
    assert moved.cases[0].g[0] == float(value)  # exact arithmetic: adding and removing 1 changes nothing


def test_decimal_arithmetic_is_exact() -> None:
    p = read("(assert (<= (+ (* 0.1 Y_0) (* 0.2 Y_0) Y_1) (+ 0.1 0.2)))", 1, 2)
    np.testing.assert_array_equal(p.cases[0].G, [[0.3, 1.0]])
    assert p.cases[0].g[0] == 0.3
    assert read("(assert (<= (* 3 X_0) 1))", 1, 1).cases[0].upper[0] == 1 / 3
    assert read("(assert (<= X_0 (/ 1 3)))", 1, 1).cases[0].upper[0] == 1 / 3
    assert read("(assert (<= X_0 1e-999999999999))", 1, 1).cases[0].upper[0] == 0.0
    assert read("(assert (<= (+ X_0 0) 1e-999999999999))", 1, 1).cases[0].upper[0] == 0.0
    assert read(f"(assert (<= X_0 0.{'3' * 3000}))", 1, 1).cases[0].upper[0] == 1 / 3
    assert read("(assert (<= X_0 5e-324))", 1, 1).cases[0].upper[0] == 5e-324


atoms = st.tuples(st.sampled_from(["<=", ">=", "<", ">"]), st.sampled_from(["X_0", "Y_0", "Y_1"]), st.integers(-3, 3))
formulas = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=8,
)


def _text(f) -> str:
    if f[0] in ("and", "or"):
        return f"({f[0]} {' '.join(map(_text, f[1]))})"
    return f"(not {_text(f[1])})" if f[0] == "not" else f"({f[0]} {f[1]} {f[2]})"


def _truth(f, point: dict[str, np.ndarray]) -> np.ndarray:
    if f[0] in ("and", "or"):
        parts = np.stack([_truth(p, point) for p in f[1]])
        return parts.all(axis=0) if f[0] == "and" else parts.any(axis=0)
    if f[0] == "not":
        return ~_truth(f[1], point)
    left, right = point[f[1]], f[2]
    return {"<=": left <= right, ">=": left >= right, "<": left < right, ">": left > right}[f[0]]


@given(st.lists(formulas, min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_normal_form_agrees_with_the_formula(asserts) -> None:
    grid = np.stack(np.meshgrid(*[np.arange(-4, 4.5, 0.5)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    point = dict(zip(["X_0", "Y_0", "Y_1"], grid.T, strict=True))
    want = np.stack([_truth(f, point) for f in asserts]).all(axis=0)
    try:
        p = read("".join(f"(assert {_text(f)})" for f in asserts), 1, 2)
    except InputError:
        assert not want.any()
    else:
        np.testing.assert_array_equal(p.contains(grid[:, :1], grid[:, 1:]), want)


# -- files --


def test_files_plain_and_gzipped(tmp_path: Path) -> None:
    text = declare(1, 1) + "(assert (<= X_0 1))"
    (tmp_path / "a (1).vnnlib").write_text(text)
    (tmp_path / "a.vnnlib.gz").write_bytes(gzip.compress(text.encode()))
    assert vnnlib(tmp_path / "a (1).vnnlib").text == "a (1).vnnlib"
    assert vnnlib(str(tmp_path / "a.vnnlib.gz")).cases[0].upper[0] == 1.0


XY = declare(2, 2)
BAD = {
    "empty": ("", "source must be"),
    "blank": ("\n \n", "empty"),
    "no inputs": ("(declare-const Y_0 Real)(assert (<= Y_0 1))", "declares no X_0"),
    "no outputs": ("(declare-const X_0 Real)(assert (<= X_0 1))", "declares no Y_0"),
    "gap": ("(declare-const X_0 Real)(declare-const X_2 Real)(declare-const Y_0 Real)(assert (<= X_0 1))", "not X_1"),
    "nothing asserted": (XY, "asserts nothing"),
    "undeclared": (XY + "\n(assert (<= X_2 1))", r"line 6 .*X_2 is not declared"),
    "undeclared on the right": (XY + "(assert (<= X_0 Y_7))", "Y_7 is not declared"),
    "undeclared in a sum": (XY + "(assert (<= (+ X_0 Y_9) 1))", "Y_9 is not declared"),
    "used before declared": ("(assert (<= X_0 1))" + XY, "line 1 .*not declared"),
    "declared twice": (XY + "(declare-const X_0 Real)", "twice"),
    "huge index": (XY + "(declare-const X_99999999999999999999 Real)", "variables are called"),
    "leading zero": (XY + "(declare-const X_02 Real)", "variables are called"),
    "other name": (XY + "(declare-const A Real)", "variables are called"),
    "integer sort": (XY + "(declare-const X_2 Int)", "only Real"),
    "function with arguments": (XY + "(declare-fun X_2 (Real) Real)", "Real is not known here"),
    "unclosed": (XY + "(assert (<= X_0 1)", "line 5 .*never closed"),
    "closed too often": (XY + "(assert (<= X_0 1)))", "too many"),
    "loose symbol": (XY + "assert", "outside"),
    "loose constraint": (XY + "(<= X_0 1)", "inside"),
    "empty parentheses": (XY + "(assert ())", "empty parentheses"),
    "assert of a number": (XY + "(assert 3)", "one constraint"),
    "assert of two": (XY + "(assert (<= X_0 1) (<= X_1 1))", "one constraint"),
    "assert inside": (XY + "(assert (and (assert (<= X_0 1))))", "assert"),
    "empty or": (XY + "(assert (or))", "at least one"),
    "or of numbers": (XY + "(assert (or 1 2))", "constraints"),
    "not of two": (XY + "(assert (not (<= X_0 1) (<= X_1 1)))", "one constraint"),
    "one operand": (XY + "(assert (<= X_0))", "two operands"),
    "constraint as a number": (XY + "(assert (<= (<= X_0 1) 1))", "takes numbers"),
    "product of variables": (XY + "(assert (<= (* X_0 Y_0) 1))", "not linear"),
    "division by a variable": (XY + "(assert (<= (/ 1 X_0) 1))", "non-zero number"),
    "division by zero": (XY + "(assert (<= (/ X_0 0) 1))", "non-zero number"),
    "unknown operator": (XY + "(assert (sin X_0))", "sin is not known"),
    "unknown command": (XY + "(push 1)", "push is not known"),
    "unknown symbol": (XY + "(assert (<= X_0 foo))", "neither a number"),
    "nan": (XY + "(assert (<= X_0 nan))", "neither a number"),
    "infinite": (XY + "(assert (<= X_0 inf))", "neither a number"),
    "overflow": (XY + "(assert (<= X_0 1e999))", "too large"),
    "overflow by arithmetic": (XY + "(assert (<= X_0 (* 1e300 1e300)))", "too large"),
    "underflow of a coefficient": (XY + "(assert (<= (+ X_1 (* 1e-300 1e-300 X_0)) 1))", "too small"),
    "5000 digits": (XY + f"(assert (<= X_0 {'9' * 5000}))", "characters"),
    "5000 digits in a sum": (XY + f"(assert (<= (+ X_0 0.{'9' * 5000}) 1))", "characters"),
    "endless exact product": (XY + f"(assert (<= X_0 (* {'1.23456789012345678901 ' * 2000})))", "too long"),
    "contradiction": (XY + "(assert (<= X_1 0))\n(assert (>= X_1 0.5))", r"line 6 .*X_1 .*0\.5"),
    "strict contradiction": (XY + "(assert (< X_1 0))(assert (>= X_1 0))", "never hold"),
    "every disjunct empty": (XY + "(assert (<= X_0 0))(assert (or (>= X_0 1) (>= X_0 2)))", "never hold"),
    "constant contradiction": (XY + "(assert (<= 2 1))", "never hold"),
    "version 3": ("(vnnlib-version <3.0>)\n(declare-network acc)", r"version <3\.0> is not read"),
    "version 2 without header": ("(declare-network acc (declare-input X Real [2]))", r"VNN-LIB 2\.0"),
    "nul": (XY + "\0", "NUL"),
    "quoted name": (XY + "(assert (<= |X_0| 1))", "neither"),
    "unclosed quote": (XY + '(assert "oops', "not expected"),
    "html": ("<html>\n<body>404</body></html>", "outside"),
    "not utf-8": (b"(declare-const X_0 Real)\xff\xfe", "UTF-8"),
    "number": (5, "source must be"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "message"), BAD.values(), ids=BAD.keys())
def test_bad_properties(source, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        vnnlib(source)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["product of variables", "unknown operator", "version 3"])
def test_what_is_not_linear_is_unsupported(name: str) -> None:
    with pytest.raises(UnsupportedError):
        vnnlib(BAD[name][0])


def _two_way(n: int) -> str:
    return declare(1, 1) + "(assert (or (<= Y_0 1) (>= Y_0 2)))" * n


HOSTILE = {
    "200,000 nested": (lambda: declare(1, 1) + "(assert " + "(and " * 200_000, "nesting"),
    "200,000 open": (lambda: "(" * 200_000, "nesting"),
    "normal form of 2^22": (lambda: _two_way(22), "disjuncts"),
    "normal form of 2^2000": (lambda: _two_way(2000), "disjuncts"),
    "large rows times disjuncts": (
        lambda: declare(1, 1) + "(assert (<= Y_0 1))" * 3000 + "(assert (or" + "(<= Y_0 1)" * 8_000 + "))",
        "tokens",
    ),
}


@pytest.mark.parametrize(("make", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_properties_are_refused_quickly(make, message: str) -> None:
    text = make()
    start = time.process_time()
    with pytest.raises(InputLimitError, match=message):
        vnnlib(text)
    assert time.process_time() - start < 20


def test_limits_are_obeyed(tmp_path: Path) -> None:
    text = declare(1, 1) + "(assert (and (<= X_0 1) (or (<= Y_0 1) (>= Y_0 2))))"
    vnnlib(text, limits=Limits(tokens=16, depth=3, disjuncts=2, file_bytes=len(text)))
    for name, value in [("tokens", 5), ("depth", 2), ("disjuncts", 1), ("file_bytes", 50), ("elements", 1)]:
        with pytest.raises(InputLimitError, match=rf"Limits\({name}="):
            vnnlib(text, limits=Limits(**{name: value}))
    bomb = tmp_path / "bomb.vnnlib.gz"
    bomb.write_bytes(gzip.compress(b" " * 10_000_000))
    with pytest.raises(InputLimitError, match="unpacked"):
        vnnlib(bomb, limits=Limits(file_bytes=1_000_000))
    bomb.write_bytes(bomb.read_bytes()[:500])
    with pytest.raises(InputError, match="cut short"):
        vnnlib(bomb)


@pytest.mark.parametrize(
    "piece",
    ["(", ")", " ", ";", "1", "-", "e", "(assert", "(assert (<= X_0 ", "|", '"', "(<= X_0", "X_", "(declare-const "],
)
def test_repeated_pieces_take_linear_time(piece: str) -> None:
    start = time.process_time()
    with pytest.raises(InputError):
        vnnlib("(" + piece * 100_000)
    assert time.process_time() - start < 20


@given(st.text(alphabet='()XY_01<=>+-*. andortse;\n|"', max_size=120))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        vnnlib(XY + "\n" + text)
    except InputError as error:
        assert "\n" not in str(error)


def test_large_files_are_read_fast() -> None:
    n = 20_000
    text = declare(n, 1) + "".join(
        f"(assert (>= X_{i} -0.1234567{i}))\n(assert (<= X_{i} 0.1234567{i}))\n" for i in range(n)
    )
    start = time.process_time()
    p = vnnlib(text)
    seconds = time.process_time() - start
    assert p.cases[0].upper[7] == 0.12345677
    assert seconds / (len(text) / 1e6) < 3.0  # 0.07 s per MB on an idle machine


# -- the real files --


@pytest.mark.needs_data
@pytest.mark.skipif(not DATA, reason="RELUSCOPE_DATA is not set")
def test_every_real_property_is_read() -> None:
    both = sorted(Path(str(DATA), "nets").rglob("*.vnnlib"))
    second = {f for f in both if "(vnnlib-version" in f.read_text()}
    files = [f for f in both if f not in second]
    assert len(files) >= 100
    for file in files:
        p = vnnlib(file)
        text = file.read_text()
        assert p.n_inputs == text.count("(declare-const X_") and p.n_outputs == text.count("(declare-const Y_")
        for lower, upper in p.boxes:
            assert np.isfinite(lower).all() and np.isfinite(upper).all() and (lower <= upper).all()
    boxes = {f.name: (len(vnnlib(f).cases), len(vnnlib(f).boxes)) for f in files if f.parts[-3] == "acasxu"}
    assert boxes["prop_6.vnnlib"] == (8, 2) and boxes["prop_1.vnnlib"] == (1, 1) and boxes["prop_7.vnnlib"] == (2, 1)


@pytest.mark.needs_data
@pytest.mark.skipif(not DATA, reason="RELUSCOPE_DATA is not set")
def test_checked_witnesses_lie_in_the_unsafe_set() -> None:
    nets = Path(str(DATA), "nets")
    witnesses = json.loads((nets / "witnesses.json").read_text())
    with (nets / "expected_verdicts.csv").open() as file:
        verdicts = {(r["benchmark"], r["onnx"], r["vnnlib"]): r["verdict"] for r in csv.DictReader(file)}
    assert len(witnesses) > 50
    for w in witnesses:
        p = vnnlib(nets / w["benchmark"] / w["vnnlib"])
        x, y = np.array(w["x"]), np.array(w["y_float64"])
        assert p.contains(x, y), w
        outside = p.boxes[0][1] + 1.0
        assert not p.contains(outside, y)
        assert verdicts[w["benchmark"], w["onnx"], w["vnnlib"]] == "sat"
