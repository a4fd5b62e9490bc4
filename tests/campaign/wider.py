"""Random checks of what stands on events and laws: laws made of laws, several networks, loops, units, records.

Each kind is a generator of words for what is wrong, from one number. References share no engine with the answers:
draws (six standard errors), transformed and rejected draws for laws made of laws, plain simulation for loops,
dense grids for robustness, and the same question in other words.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special, stats

import reluscope as rs
from campaign.checks import check_all
from campaign.geometry import GEOMETRY
from campaign.problems import network
from campaign.references import DEVIATIONS, DRAWS, asked, doubt, held
from reluscope.events import decided
from reluscope.inputs import law_from_dict

LEVEL = 1 - 1e-9
QUICK = "500 regions"


def check_wider(kind: str, seed: int, counts: Counter[str]) -> list[str]:
    """What is wrong with the answers to problem `seed` of this kind."""
    rng = np.random.default_rng([seed, 23, *kind.encode()])
    counts[f"kind {kind}"] += 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [f"{kind} {seed}: {line}" for line in KINDS[kind](rng, counts)]
    except Exception as error:  # any raw error is a failure of the campaign
        return [f"{kind} {seed}: {type(error).__name__}: {error}"]


def batch_of(what: tuple[str, range]) -> tuple[Counter[str], list[str]]:
    """Counts, and what is wrong, over several problems of one kind."""
    kind, seeds = what
    if kind == "events":
        return check_all(seeds)
    counts: Counter[str] = Counter()
    return counts, [line for seed in seeds for line in check_wider(kind, seed, counts)]


# -- references ------------------------------------------------------------------------------------------------------


def _event(net: Any, text: str) -> Any:
    return rs.event(text, net.n_inputs, net.n_outputs, net=net)


def _share(net: Any, text: str, X: Any) -> tuple[float, float, int]:
    """Least and largest share of the rows that are in the event: rounding may leave some open."""
    surely, maybe = decided(net, _event(net, text), X, fractions=False)
    return float(surely.mean()), float(maybe.mean()), len(X)


def _apart(one: Any, two: Any, slack: float = 2e-15) -> bool:
    return bool(max(one.lower, two.lower) > min(one.upper, two.upper) + slack)


def _every_guarantee(
    counts: Counter[str], rng: np.random.Generator, net: Any, law: Any, text: str, X: Any, n: int | None = None
) -> Iterator[str]:
    """Exact, sound, confidence, the complement, and a witness, against draws and each other."""
    low, high, rows = _share(net, text, X)
    rows = n or rows
    found = {}
    for guarantee, options in (
        ("exact", {}), ("sound", {"budget": QUICK}), ("confidence", {"budget": "0.05s", "level": LEVEL}),
    ):  # fmt: skip
        if guarantee == "confidence" and rng.random() < 0.6:
            continue
        answer = asked(counts, lambda g=guarantee, o=options: rs.probability(net, law, text, guarantee=g, rng=1, **o))
        if answer is not None:
            found[guarantee] = answer
            yield from held(f"{guarantee} {text} under {law!r}", answer, low, high, rows)
    for one in found:
        for two in found:
            if one < two and _apart(found[one], found[two]):
                yield f"{text} under {law!r}: {one} {found[one]!r} and {two} {found[two]!r} are disjoint"
    if "exact" in found:
        other = asked(counts, lambda: rs.probability(net, law, f"not ({text})", guarantee="exact"))
        a = found["exact"]
        if other is not None and (a.lower + other.lower > 1 + 1e-14 or a.upper + other.upper < 1 - 1e-14):
            yield f"{text} under {law!r}: {a!r} and {other!r} do not sum to 1"
        if rng.random() < 0.3:
            yield from _witnessed(counts, net, law, text, a, low, rows)


def _witnessed(counts: Counter[str], net: Any, law: Any, text: str, exact: Any, share: float, n: int) -> Iterator[str]:
    found = asked(counts, lambda: rs.witness(net, law, text, 1, budget="0.3s", rng=1))
    if found is None:
        return
    counts["witness searches"] += 1
    for w in found:
        if not decided(net, _event(net, text), w.x[None])[1][0]:
            yield f"{text} under {law!r}: witness {w!r} is not in the event"
        low, high = law.support()
        if (w.x < low).any() or (w.x > high).any():
            yield f"{text} under {law!r}: witness {w!r} is not in the support"
        if exact.upper == 0.0 and w.margin > 1e-6:
            yield f"{text} under {law!r}: witness {w!r}, but the probability is proved to be 0"
    if found.proved_empty and (exact.lower > 1e-290 or share > 0):
        yield f"{text} under {law!r}: proved_empty ({found.note}), but {exact!r}, draws {share:.3g}"


# -- laws ------------------------------------------------------------------------------------------------------------


def _marginals(rng: np.random.Generator, n: int) -> list[Any]:
    makers = [
        lambda: stats.expon(scale=float(rng.choice([0.5, 1.0, 2.0]))), lambda: stats.uniform(-1, 3),
        lambda: stats.poisson(float(rng.choice([0.4, 1.0, 2.0]))), lambda: stats.norm(1, 2), lambda: stats.lognorm(0.5),
        lambda: stats.binom(3, 0.4), lambda: stats.t(4), lambda: rng.integers(0, 4, 50).astype(float),
        lambda: np.round(rng.normal(size=60), 1),
    ]  # fmt: skip
    return [makers[int(rng.integers(len(makers)))]() for _ in range(n)]


def _correlation(rng: np.random.Generator, n: int) -> Any:
    A = rng.normal(size=(n, n)) + np.eye(n)
    C = A @ A.T
    d = np.sqrt(np.diag(C))
    return C / d[:, None] / d if rng.random() < 0.7 else np.eye(n)


def _cov(rng: np.random.Generator, n: int) -> Any:
    A = rng.normal(size=(n, n if rng.random() < 0.8 else 1))
    return A @ A.T if rng.random() < 0.6 else np.diag(rng.choice([0.0, 0.25, 1.0, 4.0], n, p=[0.1, 0.3, 0.3, 0.3]))


def random_law(rng: np.random.Generator, n: int, depth: int = 0) -> Any:
    """Any law with n inputs."""
    mean = rng.integers(-2, 3, n) / 2
    what = rng.integers(8 if depth < 2 else 5)
    if what == 0:
        return rs.Gaussian(mean, _cov(rng, n))
    if what == 1:
        return rs.Uniform(mean - rng.choice([0.0, 0.5, 1.0], n), mean + rng.choice([0.5, 1.0, 2.0], n))
    if what == 2:
        sd = rng.choice([0.5, 1.0, 2.0], n)
        return rs.Truncated(rs.Gaussian(mean, sd**2), mean - rng.choice([0.5, 1.0, inf], n), mean + sd)
    if what == 3:
        points = rng.integers(-2, 3, (int(rng.integers(1, 7)), n)).astype(float)
        return rs.Particles(points, rng.dirichlet(np.ones(len(points))))
    if what == 4 or (what == 7 and n == 1):
        return rs.Copula(_marginals(rng, n), _correlation(rng, n), accuracy=0.02)
    if what in (5, 6):
        parts = [random_law(rng, n, depth + 1) for _ in range(int(rng.integers(2, 4)))]
        return rs.Mixture(rng.dirichlet(np.ones(len(parts))), parts)
    levels = int(rng.integers(2, 4))
    codes = rs.Categorical(list(range(levels)), rng.dirichlet(np.ones(levels)), encoding="codes")
    return rs.product(codes, random_law(rng, n - 1, 2)) if rng.random() < 0.5 else _reversed_product(rng, codes, n)


def _reversed_product(rng: np.random.Generator, codes: Any, n: int) -> Any:
    return rs.product(random_law(rng, n - 1, 2), codes)


def _texts(rng: np.random.Generator, net: Any, X: Any, n: int = 2) -> list[str]:
    """Events with limits that draws make worth asking about: on atoms, on ties, in between."""
    out = []
    for _ in range(n):
        x = X[int(rng.integers(len(X)))]
        y = net(x)
        i, j = int(rng.integers(len(x))), int(rng.integers(len(y)))
        op = str(rng.choice(["<", "<=", ">", ">="]))
        atoms = [f"x[{i}] {op} {float(x[i])!r}", f"y[{j}] {op} {float(y[j])!r}", f"y[{j}] {op} 0"]
        if len(y) > 1:
            atoms.append(f"argmax == {j}")
            atoms.append(f"y[0] {op} y[1]")
        if len(x) > 1:
            atoms.append(f"x[0] - 2 * x[1] {op} {float(x[0] - 2 * x[1])!r}")
        chosen = [str(a) for a in rng.choice(atoms, int(rng.integers(1, 3)), replace=False)]
        out.append(str(rng.choice([" and ", " or "])).join(chosen))
    return out


def _style(rng: np.random.Generator) -> str:
    return str(rng.choice(["integer", "decimal", "random", "degenerate"]))


def _laws(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Any law in any engine; moments, support and cdf against draws; plain data and permutations give the same."""
    n = int(rng.integers(1, 4))
    law = random_law(rng, n)
    counts[f"law {type(law).__name__}"] += 1
    X = law.sample(DRAWS, int(rng.integers(2**31)))
    low, high = law.support()
    if (low > X).any() or (high < X).any():
        yield f"{law!r}: draws outside of the support"
    yield from _moments(counts, law, X)
    net = network(rng, _style(rng), n)
    for text in _texts(rng, net, X):
        yield from _every_guarantee(counts, rng, net, law, text, X)
    text = _texts(rng, net, X, 1)[0]
    one = asked(counts, lambda: rs.probability(net, law, text, guarantee="exact"))
    again = asked(counts, lambda: rs.probability(net, law_from_dict(law.to_dict()), text, guarantee="exact"))
    if (one is None) != (again is None) or (one is not None and _apart(one, again)):
        yield f"{text} under {law!r}: {one!r}, and from plain data {again!r}"
    order = rng.permutation(n)
    turned = asked(counts, lambda: law.marginal(order.tolist()))
    if turned is not None and "x[" not in text and one is not None:
        first = net.layers[0]
        other = rs.Network([(first.dense()[:, order], first.bias, first.units), *net.layers[1:]])
        two = asked(counts, lambda: rs.probability(other, turned, text, guarantee="exact"))
        if two is not None and _apart(one, two):
            yield f"{text} under {law!r}: {one!r}, with inputs {order} {two!r}"


def _moments(counts: Counter[str], law: Any, X: Any) -> Iterator[str]:
    mean, variance = asked(counts, lambda: law.mean), asked(counts, lambda: law.variance)
    if mean is not None and variance is not None:
        error = DEVIATIONS * np.sqrt(np.maximum(X.var(axis=0), variance) / len(X)) + 1e-9 * (1 + np.abs(mean))
        if (np.abs(X.mean(axis=0) - mean) > error).any():
            yield f"{law!r}: mean {mean}, draws {X.mean(axis=0)}"
        fourth = ((X - X.mean(axis=0)) ** 4).mean(axis=0)
        heavy = fourth > 50 * np.maximum(X.var(axis=0), 1e-300) ** 2  # their variance is too hard to see in draws
        off = np.abs(X.var(axis=0) - variance) > DEVIATIONS * np.sqrt(fourth / len(X)) + 1e-9 * (1 + variance)
        if (off & ~heavy).any():
            yield f"{law!r}: variance {variance}, draws {X.var(axis=0)}"
    for i in range(law.n):
        t = X[:3, i]
        for strict in (False, True):
            found = asked(counts, lambda i=i, t=t, s=strict: law.cdf(t, i, strict=s))
            if found is None:
                continue
            for p, v in zip(found.tolist(), t.tolist(), strict=True):
                share = float((X[:, i] < v).mean() if strict else (X[:, i] <= v).mean())
                if abs(share - p) > doubt(share, len(X)):
                    yield f"{law!r}: P(x[{i}] {'<' if strict else '<='} {v!r}) = {p}, draws {share}"


def _laws_of_laws(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """given, where, move, marginal against transformed and rejected draws of the law that they are made of."""
    n = int(rng.integers(1, 4))
    law = random_law(rng, n)
    X = law.sample(4 * DRAWS, int(rng.integers(2**31)))
    what = str(rng.choice(["given", "where", "move", "marginal"]))
    counts[f"made by {what}"] += 1
    i = int(rng.integers(n))
    x = X[int(rng.integers(len(X)))]
    if what == "given":
        same = X[:, i] == x[i]
        if same.mean() < 0.02:  # no atom: nothing to compare with
            asked(counts, lambda: law.given({i: float(x[i])}))
            return
        made, Z, words = asked(counts, lambda: law.given({i: float(x[i])})), X[same], f"x[{i}] = {x[i]!r}"
    elif what == "where":
        op = str(rng.choice(["<", "<=", ">", ">="]))
        words = f"x[{i}] {op} {float(x[i])!r}"
        if rng.random() < 0.4:
            k = int(rng.integers(n))
            words += f" and x[{k}] {'>' if op[0] == '<' else '<'}= {float(X[int(rng.integers(len(X))), k])!r}"
        keep = rs.event(words, n, 1).holds(rs.Network([(np.zeros((1, n)), None)]), X)
        if keep.mean() < 0.02:
            return
        made, Z = asked(counts, lambda: law.where(words)), X[keep]
    elif what == "move":
        scale = rng.choice([0.5, 1.0, 2.0], n)
        shift = rng.integers(-2, 3, n) / 4
        old = asked(counts, lambda: law.mean)
        if old is None:
            return
        made, words = asked(counts, lambda: law.move(mean=old + shift, scale=scale)), f"move {shift}, {scale}"
        Z = old + shift + scale * (X - old)
    else:
        order = rng.permutation(n)[: int(rng.integers(1, n + 1))]
        made, Z, words = asked(counts, lambda: law.marginal(order.tolist())), X[:, order], f"marginal {order}"
    if made is None:
        return
    yield from _moments(counts, made, made.sample(DRAWS, int(rng.integers(2**31))))
    net = network(rng, _style(rng), made.n)
    for text in _texts(rng, net, Z):
        if what == "move" and ("x[" in text or law.atoms is not None or not _continuous(law)):
            text = _off_limits(rng, net, Z)  # draws that are moved are rounded: no limits on atoms
        for line in _every_guarantee(counts, rng, net, made, text, Z):
            yield f"{words} of {law!r}: {line}"


def _continuous(law: Any) -> bool:
    return isinstance(law, (rs.Gaussian, rs.Uniform, rs.Truncated)) and bool((law.variance > 0).all())


def _off_limits(rng: np.random.Generator, net: Any, Z: Any) -> str:
    """An event whose limit no row comes near to."""
    j = int(rng.integers(net.n_outputs))
    y = np.unique(np.append(net(Z)[:, j], [-1.0, 1.0]))
    gaps = np.diff(y)
    k = int(rng.choice(np.flatnonzero(gaps > 1e-6)))
    return f"y[{j}] > {float(0.5 * (y[k] + y[k + 1]))!r}"


# -- several networks, loops -----------------------------------------------------------------------------------------


def _perturbed(rng: np.random.Generator, net: Any) -> Any:
    what = rng.integers(3)
    if what == 0:
        return rs.quantised(net, str(rng.choice(["float16", "int8"])))
    layers = []
    for layer in net.layers:
        W = layer.dense() + (0.1 * rng.normal(size=layer.dense().shape) if what == 1 else 0.0)
        layers.append((W, layer.bias + 0.05 * rng.normal(size=layer.width), layer.units))
    return rs.Network(layers)


def _relational(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Two networks on one input, or on one each: events and `agreement` against both of them at draws."""
    n = int(rng.integers(1, 3))
    f = network(rng, _style(rng), n)
    g = _perturbed(rng, f)
    own = rng.random() < 0.3 and n == 1
    law = random_law(rng, 2 * n if own else n, 1)
    X = law.sample(DRAWS, int(rng.integers(2**31)))
    yf, yg = f(X[:, :n]), g(X[:, n:] if own else X)
    m = f.n_outputs
    j = int(rng.integers(m))
    c = float(np.round(np.quantile(np.abs(yf - yg).max(axis=1), 0.6), 3)) + 1e-3
    cases = {
        f"max(abs(f.y - g.y)) > {c!r}": np.abs(yf - yg).max(axis=1) - c,
        f"abs(f.y[{j}] - g.y[{j}]) > {c!r}": np.abs(yf[:, j] - yg[:, j]) - c,
        f"f.y[{j}] > g.y[{j}] + {c!r}": yf[:, j] - yg[:, j] - c,
    }
    if m > 1:
        a, b = np.sort(yf, axis=1), np.sort(yg, axis=1)
        clear = min((a[:, -1] - a[:, -2]).min(), (b[:, -1] - b[:, -2]).min()) > 1e-9
        if clear:
            cases["argmax f != argmax g"] = (yf.argmax(axis=1) != yg.argmax(axis=1)) - 0.5
    for text, margin in cases.items():
        low, high = float((margin > 1e-9).mean()), float((margin > -1e-9).mean())
        for guarantee, options in (("exact", {}), ("sound", {"budget": QUICK})):
            found = asked(
                counts,
                lambda t=text, k=guarantee, o=options: rs.probability({"f": f, "g": g}, law, t, guarantee=k, **o),
            )
            if found is not None:
                yield from held(f"{guarantee} {text} under {law!r}", found, low, high, len(X))
    if own:
        return
    met = asked(counts, lambda: rs.agreement(f, g, law, budget="0.3s", level=LEVEL, rng=1))
    if met is None:
        return
    low, high = _alike(f, g, X)
    yield from held(f"agreement of {f!r} and {g!r} under {law!r}", met.alike, low, high, len(X))
    size = np.abs(yf - yg).max()
    if size > met.worst_bound * (1 + 1e-9) + 1e-12 or met.worst > met.worst_bound:
        yield f"agreement under {law!r}: {met!r}, but a draw differs by {size}"
    if abs(np.abs(f(met.worst_input) - g(met.worst_input)).max() - met.worst) > 1e-9 * (1 + met.worst):
        yield f"agreement under {law!r}: {met!r}, but the worst input differs otherwise"
    for p, values in ((1, np.abs(yf - yg).sum(axis=1)), (2, ((yf - yg) ** 2).sum(axis=1))):
        far = asked(counts, lambda p=p: met.distance(p))
        error = DEVIATIONS * values.std() / np.sqrt(len(X)) + 1e-9 * (1 + values.max())
        error += 20 / len(X) * f.n_outputs * max(met.worst, size) ** p  # what so many draws may not have met
        ends = (far.lower, far.upper) if p == 1 else (far.lower**2, far.upper**2)
        if _skewed(values) or far is None or far.guarantee == "confidence":
            continue
        if not ends[0] - error <= values.mean() <= ends[1] + error:
            yield f"distance({p}) under {law!r}: {far!r}, draws {values.mean() ** (1 / p)}"


def _skewed(values: Any) -> bool:
    """Whether a mean of these draws is not to be trusted at six standard errors."""
    d = values - values.mean()
    return bool((d**4).mean() > 1000 * max((d**2).mean(), 1e-300) ** 2)


def _alike(f: Any, g: Any, X: Any) -> tuple[float, float]:
    """Least and largest share of draws at which two networks decide alike: ties may go either way."""
    yf, yg = f(X), g(X)
    if f.n_outputs == 1:
        doubt = (np.abs(yf[:, 0]) < 1e-9) | (np.abs(yg[:, 0]) < 1e-9)
        same = (yf[:, 0] > 0) == (yg[:, 0] > 0)
    else:
        a, b = np.sort(yf, axis=1), np.sort(yg, axis=1)
        doubt = (a[:, -1] - a[:, -2] < 1e-9) | (b[:, -1] - b[:, -2] < 1e-9)
        same = yf.argmax(axis=1) == yg.argmax(axis=1)
    return float((same & ~doubt).mean()), float((same | doubt).mean())


def _loops(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """A closed loop against plain simulation, step by step."""
    n, T = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    m, k = int(rng.integers(1, 3)), int(rng.integers(0, 2))
    controller = rs.Network(
        [(rng.normal(size=(3, n)), 0.3 * rng.normal(size=3)), (rng.normal(size=(m, 3)), 0.1 * rng.normal(size=m))]
    )
    A, B = np.eye(n) + 0.3 * rng.normal(size=(n, n)), 0.5 * rng.normal(size=(n, m))
    E = 0.3 * rng.normal(size=(n, k)) if k else None
    names = [f"s{i}" for i in range(n)]
    loop = rs.closed_loop(controller, A, B, T, disturbance=E, names=names)
    size = n + k * T
    law = rs.Gaussian(rng.normal(size=size), rng.choice([0.25, 1.0], size))
    X = law.sample(DRAWS, int(rng.integers(2**31)))
    state, states = X[:, :n], []
    for t in range(T):
        state = state @ A.T + controller(state) @ B.T
        if E is not None:
            state = state + X[:, n + t * k : n + (t + 1) * k] @ E.T
        states.append(state)
    Y = np.concatenate(states, axis=1)
    if np.abs(loop(X) - Y).max() > 1e-9 * (1 + np.abs(Y).max()):
        yield f"closed loop: {np.abs(loop(X) - Y).max()} off simulation"
    limit = float(np.quantile(np.abs(Y).max(axis=1), 0.7))
    t = int(rng.integers(1, T + 1))
    cases = {
        f"max(abs(y)) > {limit!r}": np.abs(Y).max(axis=1) - limit,
        f"s0_{t} > {limit / 2!r}": Y[:, (t - 1) * n] - limit / 2,
    }
    for text, margin in cases.items():
        share = float((margin > 0).mean())
        for guarantee, options in (("auto", {"budget": "0.5s", "level": LEVEL}), ("sound", {"budget": QUICK})):
            found = asked(
                counts,
                lambda t=text, g=guarantee, o=options: rs.probability(loop, law, t, guarantee=g, rng=1, **o),
            )
            if found is not None:
                yield from held(f"{guarantee} {text} of a loop of {T} steps", found, share, share, len(X))


# -- ready questions -------------------------------------------------------------------------------------------------


def _robust(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """One input: against decisions on a fine grid around draws. Two: the lower bound against a grid around draws."""
    n = 1 if rng.random() < 0.6 else 2
    net = network(rng, _style(rng), n)
    law = random_law(rng, n, 1)
    r = float(rng.choice([0.05, 0.1, 0.5]))
    found = asked(counts, lambda: rs.robust(net, law, r, rng=1, draws=300, level=LEVEL))
    if found is None:
        return
    counts["robust"] += 1
    N = 2000 if n == 1 else 300
    X = law.sample(N, int(rng.integers(2**31)))
    steps = np.linspace(-r, r, 401) if n == 1 else np.linspace(-r, r, 25)
    grid = steps[:, None] if n == 1 else np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)

    def decisions(Z: Any) -> tuple[Any, Any]:
        y = net(Z)
        if net.n_outputs == 1:
            return (y[:, 0] > 0).astype(int), np.abs(y[:, 0]) > 1e-9
        s = np.sort(y, axis=1)
        return y.argmax(axis=1), s[:, -1] - s[:, -2] > 1e-9

    changed = np.zeros(N, bool)
    own, sure = decisions(X)
    for d in grid * (1 - 1e-9):
        there, certain = decisions(X + d)
        changed |= (there != own) & certain & sure
    seen = float(changed.mean())
    # The grid may miss a change, never invent one: seen is a lower bound of the truth.
    if found.upper + doubt(seen, N) < seen:
        yield f"robust within {r} of {net!r} under {law!r}: {found!r}, seen {seen}"
    if n == 1 and found.guarantee == "exact":
        wide = np.zeros(N, bool)
        for d in np.linspace(-1.02 * r, 1.02 * r, 801):
            there, certain = decisions(X + d)
            wide |= (there != own) | ~certain | ~sure
        most = float(wide.mean())
        thin = 0.02  # a change between two points of the grid and back
        if found.lower - doubt(most, N) - thin > most:
            yield f"robust within {r} of {net!r} under {law!r}: {found!r}, at most {most}"


def _monotone(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Signs of derivatives and of steps, against draws."""
    n = int(rng.integers(1, 3))
    net = network(rng, _style(rng), n)
    law = random_law(rng, n, 1)
    X = law.sample(DRAWS, int(rng.integers(2**31)))
    i, o = int(rng.integers(n)), int(rng.integers(net.n_outputs))
    step = None if rng.random() < 0.5 else float(rng.choice([0.1, 0.5]))
    found = asked(counts, lambda: rs.monotone(net, law, i, o, step=step, places=1, budget="0.6s", level=LEVEL, rng=1))
    if found is None:
        return
    if step is None:
        low, high, _ = _share(net, f"J[{o},{i}] < 0", X)
    else:
        Z = X.copy()
        Z[:, i] += step
        d = net(Z)[:, o] - net(X)[:, o]
        scale = 1e-9 * (1 + np.abs(net(X)[:, o]))
        low, high = float((d < -scale).mean()), float((d < scale).mean())
    yield from held(f"monotone {step} x[{i}] y[{o}] of {net!r} under {law!r}", found.falls[0], low, high, len(X))
    for w in found.places[0]:
        if found.falls[0].upper == 0.0:
            yield f"monotone: {found!r} with {w!r}"


def _certified(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Certificates for rows, against draws of the noise."""
    n = int(rng.integers(1, 4))
    net = network(rng, str(rng.choice(["random", "decimal"])), n)
    if net.n_outputs < 2:
        return
    X = rng.normal(size=(3, n))
    sigma = float(rng.choice([0.05, 0.2, 1.0]))
    found = asked(counts, lambda: rs.certify(net, X, [sigma], budget="0.5s"))
    if found is None:
        return
    for row in range(len(X)):
        own = int(net(X[row]).argmax())
        s = np.sort(net(X[row]))
        if s[-1] - s[-2] < 1e-9:
            continue
        Z = X[row] + sigma * rng.normal(size=(DRAWS, n))
        y = net(Z)
        top = np.sort(y, axis=1)
        near = top[:, -1] - top[:, -2] < 1e-9
        changed = y.argmax(axis=1) != own
        low, high = float((changed & ~near).mean()), float((changed | near).mean())
        a, b = (float(np.asarray(v)[row, 0]) for v in (found.change.lower, found.change.upper))
        if a - doubt(high, DRAWS) > high or b + doubt(low, DRAWS) < low:
            yield f"certify {net!r} at {X[row]}, sigma {sigma}: [{a}, {b}], draws [{low}, {high}]"


# -- the same in other words -----------------------------------------------------------------------------------------


def _in_units(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """An event in the units and names of a schema, and the same one in the network's own numbers."""
    scale, shift = float(rng.choice([1e-3, 0.5, -2.0, 60.0, -0.01])), float(rng.normal())
    levels = ["low", "mid", "top"][: int(rng.integers(2, 4))]
    net = network(rng, "random", 1 + len(levels))
    m = net.n_outputs
    outs = [rs.Output(f"o{j}", scale=float(rng.choice([0.1, 2.0, -3.0])), shift=float(rng.normal())) for j in range(m)]
    if m == 1 and rng.random() < 0.5:
        outs = [rs.Output("o0", link="sigmoid")]
    schema = rs.Schema(
        [rs.Column("a", unit="ft", scale=scale, shift=shift), rs.Column("C", "category", levels=levels)], outs
    )
    named = rs.Network(net.layers, schema=schema)
    law = rs.product(random_law(rng, 1, 1), rs.Categorical(levels, rng.dirichlet(np.ones(len(levels)))))
    X = law.sample(DRAWS, int(rng.integers(2**31)))
    v = (float(X[0, 0]) - shift) / scale
    k, j = int(rng.integers(len(levels))), int(rng.integers(m))
    y = float(np.quantile(net(X)[:, j], 0.4)) + 1.2345e-5  # off the values of dead regions: limits are rounded
    out = outs[j]
    op, turned = (">", "<") if rng.random() < 0.5 else ("<", ">")
    v = float(np.round(v, 4))
    cases = [
        (f"a {op} {v!r} ft", f"x[0] {op if scale > 0 else turned} {scale * v + shift!r}"),
        (f"C == {levels[k]}", f"x[{1 + k}] > 0.5"),
        (f"C != {levels[k]}", f"x[{1 + k}] < 0.5"),
        (f"C in {{{levels[0]}, {levels[1]}}}", "x[1] > 0.5 or x[2] > 0.5"),
    ]
    if out.link == "sigmoid":
        p = float(special.expit(y))
        cases.append((f"o0 {op} {p!r}", f"y[0] {op} {float(special.logit(p))!r}"))
    else:
        t = (y - out.shift) / out.scale
        cases.append((f"o{j} {op} {t!r}", f"y[{j}] {op if out.scale > 0 else turned} {out.scale * t + out.shift!r}"))
    a, b = (cases[int(i)] for i in rng.choice(len(cases), 2, replace=False))
    joined = str(rng.choice([" and ", " or "]))
    for one, two in (a, b, (f"({a[0]}){joined}({b[0]})", f"({a[1]}){joined}({b[1]})")):
        here = asked(counts, lambda t=one: rs.probability(named, law, t, guarantee="exact"))
        raw = asked(counts, lambda t=two: rs.probability(net, law, t, guarantee="exact"))
        if here is None or raw is None:
            if (here is None) != (raw is None):
                yield f"{one} is {here!r}, {two} is {raw!r}"
            continue
        # Limits are rounded once: an atom may sit on one of them.
        if _apart(here, raw, 1e-9):
            yield f"{one}: {here!r}; {two}: {raw!r} under {law!r}"


def _replayed(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """A record of an answer gives the answer again."""
    n = int(rng.integers(1, 3))
    net = network(rng, _style(rng), n)
    law = random_law(rng, n)
    text = _texts(rng, net, law.sample(200, 3), 1)[0]
    options: dict[str, Any] = {"guarantee": "exact"}
    if rng.random() < 0.5:
        options = {"guarantee": "sound", "budget": QUICK}
    answer = asked(counts, lambda: rs.probability(net, law, text, rng=4, **options))
    if answer is None:
        return
    again = rs.replay(json.loads(json.dumps(rs.record(net, law, text, answer, **options))), net)
    if not again.agrees or again.compared != "bit for bit":
        yield f"{text} under {law!r}: replay {again!r}"


def _property_files(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """An event written as VNN-LIB, in both versions, and read back is the same event."""
    n = int(rng.integers(1, 3))
    net = network(rng, _style(rng), n)
    X = rng.integers(-4, 5, (400, n)) / 2 + 0.5 * rng.normal(size=(400, n)) * (rng.random((400, 1)) < 0.5)
    text = _texts(rng, net, X, 1)[0]
    event = _event(net, text)
    low, high = [-3.0] * n, [3.0] * n
    box = " and ".join(f"-3 <= x[{i}] <= 3" for i in range(n))
    boxed = _event(net, f"({text}) and {box}")
    for version in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "p.vnnlib"
            if asked(counts, lambda v=version, p=path: boxed.to_vnnlib(p, version=v) or True) is None:
                continue
            again = asked(counts, lambda p=path: rs.vnnlib(p))
        if again is None:  # version 1 refuses what can never hold
            if boxed.cases:
                yield f"{text}: version {version} cannot be read back"
            continue
        law = rs.Uniform(low, high)
        one = asked(counts, lambda: rs.probability(net, law, event, guarantee="exact"))
        two = asked(counts, lambda e=again: rs.probability(net, law, e, guarantee="exact"))
        if (one is None) != (two is None) or (one is not None and _apart(one, two, 1e-12)):
            yield f"{text}: {one!r}, from version {version} {two!r}"


def _rare(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Rare events in many dimensions with a closed form: a few half-spaces in orthogonal directions."""
    d = int(rng.choice([20, 60, 150]))
    k = int(rng.integers(1, 4))
    Q = np.linalg.qr(rng.normal(size=(d, k)))[0].T
    reach = rng.uniform(2.8, 5.5, k)
    # max_i (q_i x - t_i) > 0 as a ReLU network: the sum of the positive parts.
    net = rs.Network([(Q, -reach), (np.ones((1, k)), None)])
    truth = float(-np.expm1(np.log1p(-stats.norm.sf(reach)).sum()))
    law = rs.Gaussian(np.zeros(d))
    found = rs.probability(
        net, law, "y > 0", guarantee="confidence", interval="finite-sample", level=1 - 1e-6, budget="0.5s",
        rng=int(rng.integers(2**31)),
    )  # fmt: skip
    counts["answers"] += 1
    if not found.lower <= truth * (1 + 1e-9) or not truth * (1 - 1e-9) <= found.upper:
        yield f"{k} half-spaces at {reach} in {d} dimensions: {found!r}, truth {truth:.6g}"


def _fitted(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """A law fitted to a table, in every engine, and its atoms beside the table's own frequencies."""
    n = 400
    group = rng.choice(["a", "b"], n, p=[0.3, 0.7])
    amount = np.where(rng.random(n) < 0.3, 0.0, np.round(rng.lognormal(1.0, 0.8, n), 2)) + (group == "a")
    table: dict[str, Any] = {"G": group, "amount": amount}
    if rng.random() < 0.5:
        table["count"] = rng.poisson(1.0, n).astype(float)
    schema = rs.Schema.of(table)
    law = asked(counts, lambda: rs.fit(table, schema))
    if law is None:
        return
    X = law.sample(DRAWS, int(rng.integers(2**31)))
    low, high = law.support()
    if (low > X).any() or (high < X).any():
        yield f"{law!r}: draws outside of the support"
    net = network(rng, _style(rng), law.n)
    for text in _texts(rng, net, X):
        yield from _every_guarantee(counts, rng, net, law, text, X)
    named = rs.Network(net.layers, schema=schema)
    share = float((group == "a").mean())
    found = asked(counts, lambda: rs.probability(named, law, "G == a", guarantee="exact"))
    if found is not None and abs(found.value - share) > 1e-9:
        yield f"{law!r}: G == a has {found!r}, the table {share}"


def _uneven(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Units scaled by powers of two, and back in the next layer: the same function, so the same answers."""
    n = int(rng.integers(2, 4))
    widths = [n, *(int(w) for w in rng.integers(2, 6, int(rng.integers(1, 3)))), 2]
    layers, other, before = [], [], np.zeros(n, int)
    for inn, out in itertools.pairwise(widths):
        W, b = rng.normal(size=(out, inn)), 0.5 * rng.normal(size=out)
        own = rng.integers(-60, 61, out) if len(layers) + 2 < len(widths) else np.zeros(out, int)
        layers.append((W, b))
        other.append((np.ldexp(W, own[:, None] - before), np.ldexp(b, own)))
        before = own
    net, scaled = rs.Network(layers), rs.Network(other)
    law = random_law(rng, n, 1)
    X = law.sample(DRAWS, int(rng.integers(2**31)))
    text = f"y[0] > y[1] + {float(np.quantile(net(X) @ [1.0, -1.0], 0.7)) + 1.1e-5!r}"
    share = float((net(X) @ [1.0, -1.0] > float(text.split("+")[1])).mean())
    for guarantee, options in (
        ("exact", {}), ("sound", {"budget": QUICK}), ("confidence", {"budget": "0.05s", "level": LEVEL}),
    ):  # fmt: skip
        found = asked(counts, lambda g=guarantee, o=options: rs.probability(scaled, law, text, guarantee=g, rng=1, **o))
        if found is not None:
            yield from held(f"{guarantee} {text} under {law!r}, scaled units", found, share, share, DRAWS)
    lines = asked(counts, lambda: rs.outputs(scaled, law, method="lines", level=LEVEL, budget="0.1s", rng=1))
    if lines is not None:
        t = float(np.quantile(net(X)[:, 0], 0.4)) + 1.1e-5
        share, met = float((net(X)[:, 0] <= t).mean()), lines.cdf(t)
        if met.lower - doubt(share, DRAWS) > share or met.upper + doubt(share, DRAWS) < share:
            yield f"cdf({t!r}) by lines under {law!r}, scaled units: {met!r}, draws {share}"


def _marginal_laws(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Distributions of single inputs and fitted columns, far from 0 and with far bounds: their moments and cdf."""
    place, size = float(rng.choice([0.0, 1e3, -1e6, 1e9])), float(rng.choice([1e-3, 1.0, 40.0]))
    makers = [
        lambda: stats.norm(place, size), lambda: stats.expon(place, size), lambda: stats.uniform(place, size),
        lambda: stats.gamma(float(rng.choice([2.0, 1e2, 1e6])), place, size), lambda: stats.poisson(10 * size),
        lambda: stats.truncexpon(float(rng.choice([3.0, 1e4])), place, size),
        lambda: stats.truncnorm(-float(rng.choice([2.0, 1e3])), 5e2, place, size),
        lambda: stats.beta(3, 50, place, size),
    ]  # fmt: skip
    asked_for = makers[int(rng.integers(len(makers)))]()
    law = asked(counts, lambda: rs.Copula([asked_for], accuracy=2e-3))
    words = f"{asked_for.dist.name}{asked_for.args}"
    if law is not None:
        sd = float(asked_for.std())
        if abs(float(law.mean[0]) - float(asked_for.mean())) > 0.03 * sd:
            yield f"{words}: mean {law.mean}, not {asked_for.mean()}"
        if abs(float(law.variance[0]) / sd**2 - 1) > 0.08:
            yield f"{words}: variance {law.variance}, not {sd**2}"
        t = asked_for.ppf(rng.random(5))
        apart = np.abs(np.asarray(law.cdf(t, 0)) - asked_for.cdf(t)).max()
        if apart > law.cdf_error[0] + 1e-6:
            yield f"{words}: cdf off by {apart}, more than {law.cdf_error[0]}"
    x = place + size * rng.normal(size=int(rng.choice([50, 300])))
    table = {"a": x, "b": rng.normal(size=len(x))}
    law = asked(counts, lambda: rs.fit(table))
    if law is not None:
        sd = float(x.std())
        if abs(float(law.mean[0]) - x.mean()) > 0.15 * sd or not 0.7 < np.sqrt(float(law.variance[0])) / sd < 1.4:
            yield f"fit of {len(x)} rows: {law.mean[0]}, {law.variance[0]}, not {x.mean()}, {sd**2}"


def _at_atoms(counts: Counter[str], net: Any, law: Any, out: Any, o: int) -> Iterator[str]:
    """The cdf on both sides of an atom and at it, against the probability of the same event."""
    for v in out.atoms(o).value[:3].tolist():
        for t in (float(np.nextafter(v, -inf)), v, float(np.nextafter(v, inf))):
            same = asked(counts, lambda t=t: rs.probability(net, law, f"y[{o}] <= {t!r}", guarantee="exact"))
            found = out.cdf(t, o)
            if same is not None and _apart(same, found, 1e-9):
                yield f"cdf({t!r}) of {net!r} under {law!r}: {found!r}, but {same!r}"


def _outputs(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """The law of the output and the linear models, against draws; derivatives against differences."""
    n = int(rng.integers(1, 3))
    net = network(rng, _style(rng), n)
    law = random_law(rng, n, 1)
    X = law.sample(DRAWS, int(rng.integers(2**31)))
    Y = net(X)
    out = asked(counts, lambda: rs.outputs(net, law, rng=1))
    o = int(rng.integers(net.n_outputs))
    scale = 1e-9 * (1.0 + np.abs(Y[:, o]).max())
    if out is not None and out.guarantee == "exact":
        t = float(np.quantile(Y[:, o], rng.uniform(0.05, 0.95)))
        for name, found, low, high in (
            ("cdf", out.cdf(t, o), (Y[:, o] < t - scale).mean(), (Y[:, o] <= t + scale).mean()),
            ("sf", out.sf(t, o), (Y[:, o] > t + scale).mean(), (Y[:, o] > t - scale).mean()),
        ):
            low, high = float(low), float(high)
            if float(found.lower) - doubt(high, DRAWS) > high or float(found.upper) + doubt(low, DRAWS) < low:
                yield f"{name}({t!r}) of {net!r} under {law!r}: {found!r}, draws [{low}, {high}]"
        q = float(rng.uniform(0.1, 0.9))
        place = float(out.quantile(q, o).value)
        slack = doubt(q, DRAWS)
        if (Y[:, o] < place - scale).mean() > q + slack or (Y[:, o] <= place + scale).mean() < q - slack:
            yield f"quantile({q}) of {net!r} under {law!r}: {place}"
        atoms = out.atoms(o)
        yield from _at_atoms(counts, net, law, out, o)
        for value, mass in zip(atoms.value.tolist(), atoms.mass.value.tolist(), strict=True):
            share = float((np.abs(Y[:, o] - value) <= scale).mean())
            if abs(share - mass) > doubt(share, DRAWS):
                yield f"atom {value} of {net!r} under {law!r}: {mass}, draws {share}"
        if not _skewed(Y[:, o]):
            error = DEVIATIONS * Y[:, o].std() / np.sqrt(DRAWS) + 20 / DRAWS * np.abs(Y[:, o]).max() + scale
            if abs(float(out.mean.value[o]) - Y[:, o].mean()) > error:
                yield f"mean of {net!r} under {law!r}: {out.mean.value[o]}, draws {Y[:, o].mean()}"
    models = asked(counts, lambda: rs.linear_models(net, law, rng=1))
    if models is not None and models.masses.guarantee == "exact":
        keys, seen = np.unique(net.key(net.pattern(X)), return_counts=True)
        shares = dict(zip(keys.tolist(), (seen / DRAWS).tolist(), strict=True))
        total = float(models.masses.value.sum())
        if abs(total - 1.0) > 1e-6:
            yield f"linear models of {net!r} under {law!r}: {total} in all"
        if rng.random() < 0.5 and law.atoms is None and not law.point_masses and _continuous(law):
            for key, m in zip(net.key(models.pattern).tolist(), models.masses.value.tolist(), strict=True):
                share = shares.get(key, 0.0)
                if abs(share - m) > doubt(share, DRAWS):
                    yield f"pattern of {net!r} under {law!r}: {m}, draws {share}"
    if isinstance(law, rs.Gaussian) and np.linalg.matrix_rank(law.cov) == n:  # others have derivatives along a line
        text = f"y[{o}] > {float(np.quantile(Y[:, o], 0.6)) + 1.1e-4!r}"
        slope = asked(counts, lambda: rs.sensitivity(net, law, text, rng=1))
        if slope is not None and slope.mean.guarantee == "exact":
            for i in range(n):
                h = 1e-3 * float(law.sd[i]) * np.eye(n)[i]
                ends = [
                    rs.probability(net, rs.Gaussian(law.mean + s * h, law.cov), text, guarantee="exact")
                    for s in (1, -1)
                ]
                rate = (ends[0].value - ends[1].value) / (2e-3 * float(law.sd[i]))
                if abs(rate - float(slope.mean.value[i])) > 2e-3 * (1.0 / float(law.sd[i])):
                    yield f"d/dmean[{i}] of {text} of {net!r} under {law!r}: {slope.mean.value[i]}, difference {rate}"


KINDS: dict[str, Callable[[np.random.Generator, Counter[str]], Iterator[str]]] = {
    "laws": _laws,
    "laws of laws": _laws_of_laws,
    "relational": _relational,
    "loops": _loops,
    "robust": _robust,
    "monotone": _monotone,
    "certified": _certified,
    "in units": _in_units,
    "replayed": _replayed,
    "property files": _property_files,
    "rare": _rare,
    "fitted": _fitted,
    "outputs": _outputs,
    "marginal laws": _marginal_laws,
    "uneven": _uneven,
    **GEOMETRY,
}
