"""What every member of a kind must do: one check per kind, run over all of its members.

`check_law(law)` takes any input law and fails at the first thing that a law promises and this one breaks. (The
library's own `reluscope.inputs.check_law` only looks at an argument: is it a law, and does it fit the network?)
`check_geometry(cells)` does so for the geometries of `reluscope.cells`, from one bounded starting cell.
`check_answer(answer)` does so for an `Answer` or `Answers`.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest

from reluscope.answer import Answer, Answers, Status
from reluscope.cells.split import Geometry, Split
from reluscope.errors import InputError
from reluscope.inputs import Law, law_from_dict, standard
from reluscope.inputs import check_law as check_argument
from reluscope.network import Network

# Each statistical comparison is a z-score beyond 6: a false alarm once in 5e8. `check_law` makes some 100 of them.
Z = 6.0
DRAWS = 20_000


def check_law(law: Law, seed: int = 0) -> None:
    """Everything that `Law` promises, for one law."""
    x = law.sample(DRAWS, seed)
    _shapes(law, x, seed)
    _moments(law, x)
    _support(law, x)
    _restriction(law, x)
    _distribution(law, x)
    _parts(law, x)
    _noise(law, seed)
    _plain_data(law, seed)
    _frozen(law)
    _standard_coordinates(law, seed)
    _refusals(law)


def _agree(value: np.ndarray, rows: np.ndarray, what: str) -> None:
    """The mean of independent rows is `value`, within Z standard errors."""
    error = rows.std(axis=0) / np.sqrt(len(rows))
    scale = 1e-12 * (1 + np.abs(rows).max(axis=0))
    apart = np.abs(rows.mean(axis=0) - value)
    assert (apart <= Z * error + scale).all(), f"{what}: off by {apart.max():.3g}"


def _agree_share(p: np.ndarray | float, hits: np.ndarray, what: str) -> None:
    """Shares of draws against probabilities, with the standard error of the stated probability (and a count of 1)."""
    n = len(hits)
    error = np.sqrt(np.asarray(p) * (1 - np.asarray(p)) / n) + Z / n
    apart = np.abs(hits.mean(axis=0) - p)
    assert (apart <= Z * error).all(), f"{what}: off by {np.max(apart):.3g}"


def _closed_form(law: Law) -> bool:
    """Whether mean and covariance have closed forms; a Gaussian truncated in correlated inputs says if it has none."""
    try:
        law.mean
    except InputError as error:
        assert "no closed form" in str(error)
        return False
    return True


def _shapes(law: Law, x: np.ndarray, seed: int) -> None:
    n = law.n
    assert isinstance(n, int) and n >= 1
    assert x.shape == (DRAWS, n) and x.dtype == np.float64 and np.isfinite(x).all()
    np.testing.assert_array_equal(law.sample(5, seed), law.sample(5, np.random.default_rng(seed)))
    np.testing.assert_array_equal(law.sample(5, seed), law.sample(5, np.random.SeedSequence(seed)))
    assert law.sample(0, seed).shape == (0, n)
    assert repr(law).startswith(type(law).__name__ + "(") and len(repr(law)) < 200 and "\n" not in repr(law)
    for box in (law.support(), law.far_box()):
        assert [side.shape for side in box] == [(n,), (n,)]
    if _closed_form(law):
        assert law.mean.shape == law.variance.shape == (n,) and law.cov.shape == (n, n)


def _moments(law: Law, x: np.ndarray) -> None:
    if not _closed_form(law):
        return
    _agree(law.mean, x, "mean")
    apart = x - law.mean
    _agree(law.cov, apart[:, :, None] * apart[:, None, :], "cov")
    np.testing.assert_allclose(law.variance, np.diag(law.cov), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(law.cov, law.cov.T, rtol=1e-12, atol=1e-15)


def _support(law: Law, x: np.ndarray) -> None:
    lower, upper = law.support()
    assert (lower <= upper).all()
    rounding = 1e-14 * (1 + np.abs(x).max(axis=0))
    assert ((x >= lower - rounding) & (x <= upper + rounding)).all(), "a draw lies outside the support"
    fixed = lower == upper
    assert (np.ptp(x, axis=0)[~fixed] > 0).all(), "an input that never moves has a support with two sides"
    low, high = law.far_box()
    assert np.isfinite(low).all() and np.isfinite(high).all()
    assert (low >= lower).all() and (high <= upper).all() and (low <= high).all(), "the far box leaves the support"
    assert ((x >= low - rounding) & (x <= high + rounding)).all(), "a draw lies outside the far box"


def _restriction(law: Law, x: np.ndarray) -> None:
    lower, upper = law.support()
    everywhere = law.restrict(-np.inf, np.inf)
    middle = np.median(x, axis=0)
    low, high = np.where(lower < upper, np.quantile(x, 0.2, axis=0), lower), np.where(lower < upper, middle, upper)
    half = law.restrict(low, high)
    if half is None:
        closed = law.independent_inputs and law.atoms is None and not law.is_mixture
        assert not closed and (everywhere is None or law.is_mixture), (
            "a law with independent inputs can be restricted to a box"
        )
        return
    assert everywhere is not None and abs(everywhere.log_mass) <= 1e-9
    assert 0 < half.relative_error < 1e-9
    inside = ((x >= low) & (x <= high)).all(axis=1)
    _agree_share(np.exp(half.log_mass), inside, "mass of the box")
    own = half.law.support()
    assert (own[0] >= np.maximum(low, lower)).all() and (own[1] <= np.minimum(high, upper)).all()
    y = half.law.sample(2000, 1)
    assert ((y >= low - 1e-12) & (y <= high + 1e-12)).all(), "a draw of the restricted law lies outside the box"
    if inside.sum() > 100:
        error = np.sqrt(x[inside].var(axis=0) / inside.sum() + y.var(axis=0) / len(y))
        assert (np.abs(x[inside].mean(axis=0) - y.mean(axis=0)) <= Z * error + 1e-12).all()
    # Twice is once: the masses multiply.
    again = half.law.restrict(np.where(lower < upper, 0.5 * (low + high), low), high)
    once = law.restrict(np.where(lower < upper, 0.5 * (low + high), low), high)
    assert again is not None and once is not None
    np.testing.assert_allclose(half.log_mass + again.log_mass, once.log_mass, rtol=1e-9, atol=1e-9)
    # Nothing is there.
    finite = np.isfinite(upper)
    if finite.any():
        assert law.restrict(np.where(finite, upper + 1.0, -np.inf), np.inf) is None
    if (lower < upper).any():
        assert law.restrict(np.where(lower < upper, middle, lower), np.where(lower < upper, middle, upper)) is None


def _distribution(law: Law, x: np.ndarray) -> None:
    """`cdf` of each input against the draws, and its limits."""
    for i in range(law.n):
        t = np.quantile(x[:, i], [0.1, 0.5, 0.9])
        try:
            value = law.cdf(t, i)
        except InputError as error:
            assert "no closed form" in str(error) and not law.independent_inputs
            continue
        assert value.shape == (3,) and (np.diff(value) >= 0).all()
        _agree_share(value, x[:, i : i + 1] <= t, f"cdf of input {i}")
        _agree_share(law.cdf(t, i, strict=True), x[:, i : i + 1] < t, f"strict cdf of input {i}")
        lower, upper = (side[i] for side in law.support())
        assert law.cdf([-np.inf, upper, np.inf], i).tolist() == pytest.approx([0.0, 1.0, 1.0], abs=1e-15)
        assert law.cdf(lower, i, strict=True) == 0.0 and law.cdf(0.0, i).shape == ()
        if np.isfinite(upper - lower):  # the box is the smallest: there is mass right at its sides
            inwards = 1e-3 * (upper - lower)
            assert law.cdf(lower + inwards, i) > 0 and law.cdf(upper - inwards, i, strict=True) < 1


def _parts(law: Law, x: np.ndarray) -> None:
    weights = [w for w, _ in law.components]
    assert all(w >= 0 for w in weights) and abs(sum(weights) - 1) < 1e-12
    assert all(isinstance(part, Law) and part.n == law.n for _, part in law.components)
    assert law.is_mixture or (len(law.components) == 1 and law.components[0][1] is law)
    if _closed_form(law):
        mean = sum(w * part.mean for w, part in law.components)
        np.testing.assert_allclose(mean, law.mean, rtol=1e-12, atol=1e-12)
    if law.gaussians:
        assert abs(sum(w for w, _ in law.gaussians) - 1) < 1e-12 and all(w > 0 for w, _ in law.gaussians)
        np.testing.assert_allclose(sum(w * g.mean for w, g in law.gaussians), law.mean, rtol=1e-12, atol=1e-12)
        second = sum(w * (g.cov + np.outer(g.mean, g.mean)) for w, g in law.gaussians)
        np.testing.assert_allclose(second - np.outer(law.mean, law.mean), law.cov, rtol=1e-9, atol=1e-9)
    if law.atoms is not None:
        points, p = law.atoms
        assert points.shape == (len(p), law.n) and abs(p.sum() - 1) < 1e-12 and (p >= 0).all()
        assert (x[:, None] == points[None]).all(axis=2).any(axis=1).all(), "a draw is none of the points"
    else:
        assert law.unrestricted.unrestricted is law.unrestricted
        low, high = law.support()
        wide = law.unrestricted.support()
        assert (wide[0] <= low).all() and (wide[1] >= high).all()
    if law.independent_inputs and _closed_form(law):
        np.testing.assert_array_equal(law.cov, np.diag(law.variance))


def _noise(law: Law, seed: int) -> None:
    if law.noise is None:
        with pytest.raises(InputError, match=type(law).__name__):
            law.from_noise(np.zeros((1, law.n)))
        return
    kind, k = law.noise
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((7, k)) if kind == "normal" else rng.random((7, k))
    np.testing.assert_array_equal(law.from_noise(z), law.sample(7, seed))


def _plain_data(law: Law, seed: int) -> None:
    data = json.loads(json.dumps(law.to_dict(), allow_nan=False))
    assert data["law"] == law.kind
    for back in (law_from_dict(data), type(law).from_dict(data), pickle.loads(pickle.dumps(law)), copy.deepcopy(law)):
        assert type(back) is type(law) and repr(back) == repr(law)
        np.testing.assert_array_equal(back.support(), law.support())
        # A covariance goes through its square root: draws agree up to rounding.
        np.testing.assert_allclose(back.sample(5, seed), law.sample(5, seed), rtol=1e-9, atol=1e-9)


def _frozen(law: Law) -> None:
    assert dataclasses.is_dataclass(law)
    for field in dataclasses.fields(law):
        value = getattr(law, field.name)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(law, field.name, value)
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[...] = 0
    with pytest.raises(TypeError, match="abstract"):
        Law()  # type: ignore[abstract]


def _standard_coordinates(law: Law, seed: int) -> None:
    """The components in the coordinates of an identity network give back the law: draws, mean and covariance."""
    rng = np.random.default_rng(seed)
    net = Network([(np.eye(law.n), None), (np.eye(law.n), None)])
    parts = standard(law, net)
    assert abs(sum(c.weight for c in parts) - 1) < 1e-12
    mean, second = np.zeros(law.n), np.zeros((law.n, law.n))
    exact = True
    for c in parts:
        x = law.sample(200, rng) if len(parts) == 1 else c.to_x(rng.standard_normal((200, c.network.n_inputs)), rng)
        np.testing.assert_allclose(c.network(c.to_u(x)), net(x), rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(c.to_x(c.to_u(x)), x, rtol=1e-7, atol=1e-7)
        if c.kind != "gaussian" or c.source is not None:  # a function of a Gaussian is none
            exact = False
            continue
        centre = c.to_x(np.zeros(c.network.n_inputs))
        L = c.to_x(np.eye(c.network.n_inputs)) - centre if c.r else np.zeros((1, law.n))
        mean += c.weight * centre
        second += c.weight * (L.T @ L + np.outer(centre, centre))
    if exact:
        np.testing.assert_allclose(mean, law.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(second - np.outer(mean, mean), law.cov, rtol=1e-7, atol=1e-7)
    if law.keeps_axes:
        (c,) = parts
        x = law.sample(50, rng)
        u, free = c.to_u(x)[:, : c.r], np.flatnonzero(law.variance > 0)
        assert u.shape == (50, len(free))
        slopes = [np.corrcoef(u[:, k], x[:, i])[0, 1] for k, i in enumerate(free)]
        np.testing.assert_allclose(slopes, 1.0, rtol=1e-9)  # each coordinate is one input, shifted and scaled


def _refusals(law: Law) -> None:
    """Bad arguments are refused by name."""
    n = law.n
    for words, call in {
        "n must be": lambda: law.sample(-1),
        "rng must be": lambda: law.sample(1, rng="seed"),
        "lower must": lambda: law.restrict(np.zeros(n + 1), 1.0),
        "upper must": lambda: law.restrict(0.0, np.full(n, np.nan)),
        "lower must not exceed upper": lambda: law.restrict(1.0, 0.0),
        "input must be": lambda: law.cdf(0.0, n),
        "t must": lambda: law.cdf("low"),
        "X must": lambda: law.log_density(np.zeros((2, n + 1))),
        "the key 'law'": lambda: law_from_dict({**law.to_dict(), "law": "no such law"}),
        "unknown 'extra'": lambda: law_from_dict({**law.to_dict(), "extra": 1}),
        "the law has": lambda: check_argument(law, Network([(np.ones((1, n + 1)), None)])),
        "net must be a Network": lambda: check_argument(law, None),
        "law must be an input law": lambda: check_argument(law.to_dict()),
    }.items():
        with pytest.raises(InputError, match=words):
            call()
    other = next(c for c in Law.__subclasses__() if c is not type(law))
    with pytest.raises(InputError, match=f"must describe a {other.__name__}"):
        other.from_dict(law.to_dict())


# -- geometries ----------------------------------------------------------------------------------------------------

UNITS = 5
BREAKS = np.array([[-0.2, 0.3], [0.0, np.inf], [0.1, 0.4], [0.0, np.inf], [np.inf, np.inf]])
"""Break points of the units that cut: units of three, two and one piece."""
FIRST_LABEL = 7


def check_geometry(cell: Geometry, seed: int = 0) -> None:
    """Everything that `Geometry` promises, from one bounded starting cell: a box, perhaps cut by half-spaces."""
    assert len(cell) == 1
    d, rng = cell.dimension, np.random.default_rng(seed)
    middle, size = cell.interior()[0], float(cell.reach().max())
    directions = rng.standard_normal((d, UNITS)) / size
    maps = np.concatenate([directions, -(middle @ directions)[None]])[None]
    maps[0, -1, 1] += 1e-3
    found = _cut(cell, maps)
    assert len(found.cells) > 3, "the units of this seed cut nothing"
    _shape_of(cell, found.cells)
    _conserved(cell, found, maps, rng)
    _rows_hold(found, maps)
    _facet_labels(cell, found, maps)
    _batches(cell, found.cells, rng)
    _cut_again(found, rng)
    _degenerate(cell, maps)
    _empty(found.cells)


def _cut(cells: Geometry, maps: np.ndarray, tolerance: float = 1e-12, breaks: np.ndarray = BREAKS) -> Split[Geometry]:
    maps = np.ascontiguousarray(np.broadcast_to(maps, (len(cells), *maps.shape[1:])))
    return cells.split(maps, np.full((len(cells), maps.shape[2]), tolerance), breaks, FIRST_LABEL)


def _values(maps: np.ndarray, X: np.ndarray) -> np.ndarray:
    return X @ maps[0, :-1] + maps[0, -1]


def _shape_of(cell: Geometry, cells: Geometry) -> None:
    """Vertices, corners, reach and inner points agree, and nothing leaves the starting cell."""
    points, offsets = cells.corners()
    assert offsets[0] == 0 and offsets[-1] == len(points) and len(offsets) == len(cells) + 1
    reach, inside, volumes = cells.reach(), cells.interior(), cells.volumes()
    assert reach.shape == inside.shape == (len(cells), cells.dimension) and volumes.shape == (len(cells),)
    assert (volumes > 0).all() and (reach <= cell.reach() * (1 + 1e-9)).all()
    for i in range(len(cells)):
        mine = points[offsets[i] : offsets[i + 1]]
        np.testing.assert_allclose(np.sort(mine, axis=0), np.sort(cells.vertices(i), axis=0), atol=1e-9)
        assert len(cells.rays_of(i)) == 0
        np.testing.assert_allclose(np.abs(mine).max(axis=0), reach[i], rtol=1e-7, atol=1e-9)
        assert (mine.min(axis=0) < inside[i]).all() and (inside[i] < mine.max(axis=0)).all()


def _conserved(cell: Geometry, found: Split[Geometry], maps: np.ndarray, rng: np.random.Generator) -> None:
    """The children are the parent: volumes add up, and every point is in the child that its pieces name, once."""
    np.testing.assert_allclose(found.cells.volumes().sum(), cell.volumes()[0], rtol=1e-9)
    assert (found.parent == 0).all()
    assert len(np.unique(found.piece, axis=0)) == len(found.piece)
    points, _ = cell.corners()
    X = rng.dirichlet(np.ones(len(points)), 300) @ points
    piece = (_values(maps, X)[:, :, None] > BREAKS).sum(axis=2)
    known = {tuple(row) for row in found.piece.tolist()}
    assert {tuple(row) for row in piece.tolist()} <= known


def _rows_hold(found: Split[Geometry], maps: np.ndarray) -> None:
    """On every child each unit stays between the break points of its piece; `top` bounds it on the parent."""
    edges = np.concatenate([np.full((UNITS, 1), -np.inf), BREAKS, np.full((UNITS, 1), np.inf)], axis=1)
    units = np.arange(UNITS)
    points, offsets = found.cells.corners()
    owner = np.repeat(np.arange(len(found.cells)), np.diff(offsets))
    h, piece = _values(maps, points), found.piece[owner].astype(int)
    assert (h >= edges[units, piece] - 1e-9).all() and (h <= edges[units, piece + 1] + 1e-9).all()
    inside = _values(maps, found.cells.interior())
    assert ((inside > edges[units, found.piece]) & (inside < edges[units, found.piece.astype(int) + 1])).all()
    assert found.top.shape == (1, UNITS) and (np.abs(h) <= found.top[0] * (1 + 1e-9)).all()


def _facet_labels(cell: Geometry, found: Split[Geometry], maps: np.ndarray) -> None:
    """A facet's label names the break point, or the side of the domain, on which the facet lies."""
    labels, offsets = found.cells.facet_labels()
    points = found.cells.facet_points()
    assert len(labels) == len(points) == offsets[-1] and len(offsets) == len(found.cells) + 1
    assert (np.diff(offsets) >= min(2, cell.dimension + 1)).all()
    unit, step = np.divmod(labels - FIRST_LABEL, BREAKS.shape[1])
    cut = labels >= 0
    assert cut.any() and (unit[cut] < UNITS).all()
    h = _values(maps, points)[np.flatnonzero(cut), unit[cut]]
    np.testing.assert_allclose(h, BREAKS[unit[cut], step[cut]], atol=1e-9)
    outer, _ = cell.facet_labels()
    assert set(labels[~cut].tolist()) == set(outer.tolist())
    corners, _ = cell.corners()
    for i in range(cell.dimension):
        for side, end in ((0, corners[:, i].min()), (1, corners[:, i].max())):
            if (mine := labels == -1 - 2 * i - side).any() and (outer < -2 * cell.dimension).sum() == 0:
                np.testing.assert_allclose(points[mine, i], end, atol=1e-9)
    moved, _ = found.cells.relabelled(lambda old: np.where(old >= 0, old + 100, old).astype(np.int32)).facet_labels()
    np.testing.assert_array_equal(moved, np.where(cut, labels + 100, labels))


def _same_cells(one: Geometry, other: Geometry) -> None:
    assert type(one) is type(other) and len(one) == len(other)
    np.testing.assert_array_equal(one.interior(), other.interior())
    np.testing.assert_array_equal(one.volumes(), other.volumes())
    for a, b in zip(one.facet_labels(), other.facet_labels(), strict=True):
        np.testing.assert_array_equal(a, b)


def _batches(cell: Geometry, cells: Geometry, rng: np.random.Generator) -> None:
    """Slices, choices and concatenations take cells apart and put them together again."""
    n = len(cells)
    _same_cells(type(cells).join([cells.part(0, 2), cells.part(2, n)]), cells)
    _same_cells(cells.part(1, 3), cells.take(np.array([1, 2])))
    _same_cells(cells.part(0, n), cells.take(np.arange(n)))
    order = rng.permutation(n)
    mixed = cells.take(order)
    np.testing.assert_array_equal(mixed.interior(), cells.interior()[order])
    _same_cells(mixed.take(np.argsort(order)), cells)
    _same_cells(type(cells).join([cells.part(int(i), int(i) + 1) for i in order]), mixed)
    _same_cells(type(cells).join([cells, cells.part(0, 0)]), cells)
    assert len(type(cells).join([cell, cell])) == 2


def _cut_again(found: Split[Geometry], rng: np.random.Generator) -> None:
    """Cutting a batch is cutting its cells one by one, in their order."""
    cells = found.cells
    n, d = len(cells), cells.dimension
    normal = rng.standard_normal((n, d))
    offset = -np.einsum("nd,nd->n", normal, cells.interior())
    maps = np.ascontiguousarray(np.concatenate([normal, offset[:, None]], axis=1)[:, :, None])
    tolerance, zero = np.full((n, 1), 1e-12), np.zeros((1, 1))
    again = cells.split(maps, tolerance, zero, FIRST_LABEL)
    assert np.bincount(again.parent, minlength=n).tolist() == [2] * n
    halves = np.bincount(again.parent, again.cells.volumes())
    np.testing.assert_allclose(halves, cells.volumes(), rtol=1e-8)
    for i in (0, n - 1):
        alone = cells.part(i, i + 1).split(maps[i : i + 1], tolerance[:1], zero, FIRST_LABEL)
        mine = np.flatnonzero(again.parent == i)
        np.testing.assert_array_equal(alone.piece, again.piece[mine])
        np.testing.assert_allclose(alone.cells.volumes(), again.cells.volumes()[mine], rtol=1e-9)


def _degenerate(cell: Geometry, maps: np.ndarray) -> None:
    """What only touches a cell does not cut it, and what cuts twice at one place cuts once."""
    one = np.zeros((1, 1))
    points, _ = cell.corners()
    touching = maps[:, :, :1].copy()
    touching[0, -1, 0] = -(points @ touching[0, :-1, 0]).max()  # zero at one vertex, negative inside
    assert _cut(cell, touching, 1e-12, one).piece.tolist() == [[0]]
    assert _cut(cell, -touching, 1e-12, one).piece.tolist() == [[1]]
    flat = np.zeros_like(touching)
    assert _cut(cell, flat, 1e-12, one).piece.tolist() == [[0]]  # on the break point all over: the piece below
    flat[0, -1, 0] = 1.0
    assert _cut(cell, flat, 1e-12, one).piece.tolist() == [[1]]
    twice = np.concatenate([maps[:, :, 1:2], maps[:, :, 1:2], -maps[:, :, 1:2]], axis=2)
    assert sorted(_cut(cell, twice, 1e-12, np.zeros((3, 1))).piece.tolist()) == [[0, 0, 1], [1, 1, 0]]
    wide = float(np.abs(_values(maps, points)).max())
    assert len(_cut(cell, maps[:, :, :1], 2 * wide, one).cells) == 1  # all of it within the tolerance


def _empty(cells: Geometry) -> None:
    """A batch without cells is a batch."""
    none = cells.take(np.zeros(0, np.int64))
    for empty in (none, cells.part(0, 0)):
        assert len(empty) == 0 and empty.dimension == cells.dimension
        assert empty.interior().shape == empty.reach().shape == (0, cells.dimension)
        assert len(empty.volumes()) == 0 and len(empty.corners()[0]) == 0 and empty.corners()[1].tolist() == [0]
        assert empty.facet_labels()[1].tolist() == [0] and len(empty.facet_points()) == 0
        found = empty.split(np.zeros((0, cells.dimension + 1, 2)), np.zeros((0, 2)), np.zeros((2, 1)), FIRST_LABEL)
        assert len(found.cells) == len(found.parent) == 0 and found.piece.shape == found.top.shape == (0, 2)


# -- answers -------------------------------------------------------------------------------------------------------


def check_answer(answer: Answer | Answers) -> None:
    """Everything that `Answer` and `Answers` promise, for one of them."""
    assert isinstance(answer, (Answer, Answers))
    value, lower, upper = (np.asarray(x) for x in (answer.value, answer.lower, answer.upper))
    assert value.shape == lower.shape == upper.shape
    assert (lower <= value).all() and (value <= upper).all()
    assert answer.guarantee in ("exact", "sound", "confidence")
    assert (answer.level is not None) == (answer.guarantee == "confidence")
    assert answer.level is None or 0.0 < answer.level < 1.0
    assert isinstance(answer.status, Status) and bool(answer.status.advice) == (answer.status is not Status.DONE)
    assert isinstance(answer.method, str) and isinstance(answer.note, str)
    assert answer.seed is None or (isinstance(answer.seed, int) and answer.seed >= 0)
    assert np.array_equal(np.asarray(answer.width), upper - lower, equal_nan=True)
    assert answer.guarantee in repr(answer) and answer.guarantee in str(answer)
    facts = answer.to_dict()
    assert json.loads(json.dumps(facts)) == facts or not np.isfinite(upper - lower).all()
    assert facts["status"] == answer.status.value and facts["advice"] == answer.status.advice
    fields = {f.name for f in dataclasses.fields(answer)}
    assert set(facts) == fields | {"advice"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.guarantee = "exact"  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(answer))
    assert again.to_dict() == facts or not np.isfinite(upper - lower).all()
    if isinstance(answer, Answer):
        _one_answer(answer)
    else:
        _many_answers(answer)


def _one_answer(answer: Answer) -> None:
    assert float(answer) == answer.value
    above, below = np.nextafter(answer.upper, np.inf), np.nextafter(answer.lower, -np.inf)
    if np.isfinite(above):
        assert answer < above and answer <= answer.upper and not answer > above and answer.certainly_below(above)
    if np.isfinite(below):
        assert answer > below and answer >= answer.lower and not answer < below and answer.certainly_above(below)
    assert not answer.certainly_below(answer.upper) and not answer.certainly_above(answer.lower)
    if answer.lower < answer.upper:
        with pytest.raises(InputError, match="undecided"):
            bool(answer < answer.upper)
    with pytest.raises(TypeError):
        bool(answer < answer)


def _many_answers(answers: Answers) -> None:
    value = answers.value
    assert np.array_equal(np.asarray(answers), value) and np.asarray(answers, dtype=np.float32).dtype == np.float32
    assert answers.shape == value.shape
    assert answers.certainly_below(np.inf).shape == value.shape
    if not value.ndim:
        assert float(answers) == float(value)
        return
    assert len(answers) == len(value) == len(list(answers))
    part = answers[::-1]
    assert isinstance(part, Answers) and np.array_equal(part.upper, answers.upper[::-1])
    with pytest.raises(IndexError, match="does not exist"):
        answers[len(answers)]
    with pytest.raises(InputError, match="indexed like arrays"):
        answers["a"]
    if value.size:
        first = answers[(0,) * value.ndim]
        assert isinstance(first, Answer) and first.upper == answers.upper.flat[0]
        shared = {f.name for f in dataclasses.fields(answers)} - {"value", "lower", "upper"}
        assert all(getattr(first, name) == getattr(answers, name) for name in shared)
        check_answer(first)
