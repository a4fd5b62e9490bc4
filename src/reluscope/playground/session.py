"""What the playground looks at: the networks that are open, and the frozen record of one view of a network.

A page sends its whole view with every question, so the server keeps nothing about a page but the networks themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, integer, real_array
from reluscope.errors import InputError
from reluscope.inputs import Law
from reluscope.limits import DEFAULT_LIMITS, Limits
from reluscope.network import Network

VARY = ("own", "shown", "all")
COLOURS = ("output", "largest", "smallest", "mass")

MOST_WINNERS = 10
"""Outputs that can be distinguished by colour."""

MOST_INPUTS = 10_000
MOST_WORK = 500_000_000
"""Products of a network's Jacobian (parameters times outputs, or inputs if those are fewer) at one point."""

_MOST_OPEN = 6
_MOST_EVENT = 4000
_SIGMAS = 3.5
_MOST_LINES = 160
"""First-layer units that may switch in the first view."""


@dataclass(frozen=True, eq=False)
class Opened:
    """A network that is open, with what is known of its inputs. `code` are the lines of Python that make it.

    The lines define `net`, and `law` when the network comes with one.
    """

    key: str
    net: Network
    title: str
    about: str
    code: str
    law: Law | None = None
    events: tuple[str, ...] = ()
    data: FloatArray | None = None
    """Rows of inputs to show and to count."""
    data_name: str = ""
    classes: npt.NDArray[np.int64] | None = None
    """The class of each row, where it is known."""

    def mean_and_sd(self) -> tuple[FloatArray, FloatArray]:
        """Where the inputs live, as far as is known: 0 and 1 when nothing is."""
        if self.law is None:
            return np.zeros(self.net.n_inputs), np.ones(self.net.n_inputs)
        return np.asarray(self.law.mean), np.sqrt(np.asarray(self.law.variance))

    def start(self) -> tuple[FloatArray, FloatArray]:
        """The `at` and `sd` of a view of the law as it came: every spread is positive, so that it can be changed."""
        at, sd = self.mean_and_sd()
        return at, np.where(sd > 0, sd, np.where((sd > 0).any(), sd.max(), 1.0))


@dataclass(frozen=True, eq=False)
class View:
    """One view of a network: the plane (or line) of the inputs `axes` through `at`, a law, an event, a colouring.

    `vary` says which law: the network's own, moved to the mean `at` and stretched to the standard deviations `sd`
    (`"own"`); independent Gaussians around `at` with `sd` in the shown inputs, the others held (`"shown"`); or in all
    of them (`"all"`). `lower` and `upper` are the corners of what is shown.
    """

    opened: Opened
    axes: tuple[int, ...]
    at: FloatArray
    sd: FloatArray
    vary: str
    lower: FloatArray
    upper: FloatArray
    event: str
    output: int = 0
    colour: str = "output"
    layers: int = 0
    """How many hidden layers cut the picture; 0 for all of them."""
    unit: int = 0
    """The unit of the layer after those, whose value is shown."""
    live: bool = False
    """Whether a slider is being moved: answers may then take less time, and be less narrow."""

    @property
    def net(self) -> Network:
        """The network."""
        return self.opened.net

    @property
    def variances(self) -> list[float]:
        """Variances of the Gaussian, one per input; 0 for inputs that are held."""
        return [s * s if self.vary == "all" or i in self.axes else 0.0 for i, s in enumerate(self.sd.tolist())]

    def law(self) -> Any:
        """The law of the inputs."""
        if self.vary == "own":
            assert self.opened.law is not None
            change = self.change()
            return self.opened.law.move(**change) if change else self.opened.law
        from reluscope.inputs import Gaussian

        return Gaussian(self.at.tolist(), self.variances)

    def change(self) -> dict[str, list[float]]:
        """What `Law.move` takes to make the network's own law the one shown; empty where it is as it came."""
        at, sd = self.opened.start()
        out = {} if np.array_equal(self.at, at) else {"mean": self.at.tolist()}
        return out if np.array_equal(self.sd, sd) else out | {"scale": (self.sd / sd).tolist()}

    @property
    def whole(self) -> bool:
        """Whether the plane is the input space itself."""
        return self.axes == tuple(range(self.net.n_inputs))

    def frame(self) -> tuple[FloatArray, FloatArray]:
        """`(A, c)`: the point u of the plane is the input `A u + c`."""
        A = np.zeros((self.net.n_inputs, len(self.axes)))
        A[list(self.axes), range(len(self.axes))] = 1.0
        c = self.at.copy()
        c[list(self.axes)] = 0.0
        return A, c

    def plane(self) -> Network:
        """The network on the plane."""
        return self.net if self.whole else self.net.after(*self.frame())

    def input_at(self, u: FloatArray) -> FloatArray:
        """The input (inputs,) of a point (axes,) of the plane."""
        x = self.at.copy()
        x[list(self.axes)] = u
        return x

    def part(self, layers: int) -> Network:
        """The first hidden layers on the plane, with the values of the layer after them as outputs."""
        from reluscope.answers.outputs import truncated_network

        return truncated_network(self.plane(), layers)

    def plane_key(self) -> Hashable:
        """What the picture of the regions depends on."""
        _, c = self.frame()
        return self.opened.key, self.axes, c.tobytes(), self.lower.tobytes(), self.upper.tobytes()

    def law_key(self) -> Hashable:
        """What numbers about the law depend on."""
        if self.vary == "own":
            return self.opened.key, "own", self.at.tobytes(), self.sd.tobytes(), self.live
        return self.opened.key, self.at.tobytes(), tuple(self.variances), self.live


def view(opened: Opened, data: Any) -> View:
    """A `View` from what a page sent; an `InputError` names what is wrong."""
    if not isinstance(data, dict):
        raise InputError(f"a view must be an object, got {describe(data)}")
    n, m = opened.net.n_inputs, opened.net.n_outputs
    axes = _axes(data.get("axes"), n)
    vary = choice(data.get("vary"), "vary", VARY)
    if vary == "own" and opened.law is None:
        raise InputError("vary 'own' needs a network that comes with a law; choose 'shown' or 'all'")
    at, sd = _numbers(data.get("at"), "at", n), _numbers(data.get("sd"), "sd", n)
    if (sd < 0).any() or (vary == "own" and not (sd > 0).all()):
        wanted = "be positive" if vary == "own" else "not be negative"
        raise InputError(f"sd must {wanted}, got {sd.min():g} at index {int(np.argmin(sd))}")
    lower, upper = (_numbers(data.get(side), side, len(axes)) for side in ("lower", "upper"))
    if not (lower < upper).all():
        raise InputError("lower must be below upper in every shown input")
    event = data.get("event", "")
    if not isinstance(event, str) or len(event) > _MOST_EVENT:
        raise InputError(f"event must be text of at most {_MOST_EVENT:,} characters, got {describe(event)}")
    hidden = len(opened.net.hidden)
    layers = integer(data.get("layers", 0), "layers", low=0, high=hidden) % max(hidden, 1)
    return View(
        opened, axes, at, sd, vary, lower, upper, event.strip(),
        integer(data.get("output", 0), "output", low=0, high=m - 1),
        choice(data.get("colour", "output"), "colour", COLOURS),
        layers, integer(data.get("unit", 0), "unit", low=0, high=opened.net.layers[layers].width - 1 if layers else 0),
        data.get("live") is True,
    )  # fmt: skip


def first_view(opened: Opened) -> View:
    """Where to begin: the two inputs that move the outputs most, around the mean."""
    net = opened.net
    if net.n_inputs > MOST_INPUTS:
        raise InputError(
            f"the playground takes networks of at most {MOST_INPUTS:,} inputs, got {net.n_inputs:,}; ask in Python, "
            "as in rs.probability(net, law, event, budget='60s')"
        )
    at, known = opened.start()
    sd = opened.mean_and_sd()[1]
    axes = _liveliest(net, at, sd if (sd > 0).any() else known)
    half = _SIGMAS * known[list(axes)]
    smallest = net.schema is not None and net.schema.rule == "smallest"
    arg = "argmin" if smallest else "argmax"
    event = opened.events[0] if opened.events else "y[0] > 0" if net.n_outputs == 1 else f"{arg} == {arg} at mean"
    if net.n_outputs == 1 or net.n_outputs > MOST_WINNERS:
        colour = "output"
    else:
        colour = "smallest" if smallest else "largest"
    middle = at[list(axes)]
    vary = "shown" if opened.law is None else "own"
    made = View(opened, axes, at, known, vary, middle - half, middle + half, event, 0, colour)
    zoom = _zoom(made)
    return replace(made, lower=middle - zoom * half, upper=middle + zoom * half)


def jacobian_work(net: Network) -> int:
    """Products that the Jacobian takes at one point."""
    return net.n_parameters * min(net.n_inputs, net.n_outputs)


def switching_lines(shown: View) -> int:
    """How many units of the first layer switch somewhere in the view."""
    gap, reach = _gaps(shown)
    return int((gap < reach).sum())


class Shelf:
    """The networks that are open: the built-in ones, one given at the start, and the last few that a page sent."""

    def __init__(self, given: Opened | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self.given = given
        self.limits = limits
        self._open: OrderedDict[str, Opened] = OrderedDict()
        self.trained: Callable[[str], Opened | None] = lambda key: None
        """Where the networks are that are being trained."""

    def example(self, name: Any) -> Opened:
        """A built-in network."""
        from reluscope.examples import NAMES, example

        choice(name, "example", NAMES)
        key = f"example-{name}"
        if key not in self._open:
            found = example(name)
            code = f"built_in = rs.example({name!r})\nnet, law = built_in.network, built_in.law"
            self.keep(Opened(key, found.network, found.name, found.about, code, found.law, found.events))
        return self._open[key]

    def file(self, path: Path, name: str) -> Opened:
        """The network in a file; `name` is what its user calls it."""
        found = from_file(path, name, self.limits)
        self.keep(found)
        return found

    def find(self, key: Any) -> Opened:
        """An open network by its key."""
        if isinstance(key, str) and key.startswith("example-"):
            return self.example(key.removeprefix("example-"))
        if self.given is not None and key == self.given.key:
            return self.given
        if isinstance(key, str) and (found := self.trained(key)) is not None:
            return found
        if not isinstance(key, str) or key not in self._open:
            raise InputError("this network is no longer open; choose it again")
        self._open.move_to_end(key)
        return self._open[key]

    def keep(self, opened: Opened) -> None:
        """Keep a network open, with the last few others."""
        self._open[opened.key] = opened
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)


class Kept:
    """The last few answers by what they depend on, so that a click does not ask again what a slider just asked."""

    def __init__(self, most: int = 6) -> None:
        self._most = most
        self._found: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The answer kept under `key`, or a new one."""
        if key not in self._found:
            self._found[key] = make()
            while len(self._found) > self._most:
                self._found.popitem(last=False)
        self._found.move_to_end(key)
        return self._found[key]


def from_file(path: Path, name: str, limits: Limits = DEFAULT_LIMITS) -> Opened:
    """A network from a file; its key says which network it is, so that a link finds it again."""
    from reluscope.answers.replay import fingerprint
    from reluscope.formats import load

    net = load(path, limits=limits)
    about = f"{net!r}; nothing is known about its inputs, so the law starts as a standard normal one"
    return Opened(f"net-{fingerprint(net)[:24]}", net, name, about, f"net = rs.load({name!r})")


def _axes(value: Any, n: int) -> tuple[int, ...]:
    wanted = min(2, n)
    if not isinstance(value, list) or len(value) != wanted:
        raise InputError(f"axes must list {wanted} of the {n} inputs, got {describe(value)}")
    axes = tuple(integer(i, "axes", low=0, high=n - 1) for i in value)
    if len(set(axes)) != wanted:
        raise InputError(f"axes must be two different inputs, got {axes[0]} twice")
    return axes


def _numbers(value: Any, name: str, n: int) -> FloatArray:
    if not isinstance(value, list):
        raise InputError(f"{name} must be a list of {n} numbers, got {describe(value)}")
    out = real_array(value, name, ndim=1)
    if len(out) != n:
        raise InputError(f"{name} must be a list of {n} numbers, got {len(out)}")
    if (np.abs(out) > 1e100).any():
        raise InputError(f"{name} must be below 1e100 in size, got {np.abs(out).max():g}")
    return out


def _liveliest(net: Network, at: FloatArray, sd: FloatArray) -> tuple[int, ...]:
    """The two inputs whose spread moves the outputs most near the mean, in their own order."""
    if net.n_inputs <= 2 or 16 * jacobian_work(net) > MOST_WORK:
        return tuple(range(min(2, net.n_inputs)))
    points = at + sd * np.random.default_rng(0).standard_normal((16, net.n_inputs))
    effect = np.sqrt((net.jacobian(points) ** 2).sum(axis=(0, 1))) * sd
    first, second = sorted(np.argsort(-effect, kind="stable")[:2].tolist())
    return first, second


def _zoom(shown: View) -> float:
    """By how much to shrink a view until few enough first-layer units switch inside."""
    gap, reach = _gaps(shown)
    zoom = 1.0
    while zoom > 1e-6 and int((gap < zoom * reach).sum()) > _MOST_LINES:
        zoom *= 0.5
    return zoom


def _gaps(shown: View) -> tuple[FloatArray, FloatArray]:
    """For each first-layer unit: how far the middle of the view is from its nearest break, and how far it can move."""
    first = shown.net.layers[0]
    middle, half = 0.5 * (shown.lower + shown.upper), 0.5 * (shown.upper - shown.lower)
    offset = first.affine(shown.input_at(middle)[None])[0]
    gap = np.abs(offset[:, None] - first.units.breaks).min(axis=1, initial=np.inf)
    spread = np.zeros(shown.net.n_inputs)
    spread[list(shown.axes)] = half
    return gap, np.asarray(abs(first.weight) @ spread)
