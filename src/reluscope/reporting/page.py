"""`report(net, law)`: every question about a network on one page that needs nothing else.

The page is one HTML file that loads nothing, neither scripts nor fonts; its script draws the map, all else can be read
without it. Its tables lie beside it as CSV and
its numbers as JSON. A section that cannot be worked out says why, and the others stand.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import any_array, choice, describe, integer, real, seeded, several, text
from reluscope._columns import check_rows, columns_of
from reluscope._extras import require
from reluscope._version import __version__
from reluscope.answers.probability import GUARANTEES
from reluscope.answers.replay import fingerprint
from reluscope.budget import Budget, parse_budget
from reluscope.cells.domain import box_bounds
from reluscope.errors import InputError, ReluscopeError
from reluscope.inputs import ClassMixtures, Gaussian, Law, Uniform, known_law
from reluscope.network import Network, check_network
from reluscope.progress import meter
from reluscope.reporting import error_rates, levers, outcome, output_laws, region_pictures, sections
from reluscope.reporting.blocks import Figure, Section, Table
from reluscope.reporting.data import fitted_law, law_words
from reluscope.reporting.first_screen import Screen, first_screen
from reluscope.reporting.scene import scene, script
from reluscope.reporting.subject import Subject
from reluscope.reporting.ways_on import Playground, playground_link, python_code
from reluscope.threads import OutOfTimeError, clean_interrupt, deadline
from reluscope.workers import with_jobs

_MORE = 0.3
"""Seconds, and a tenth of the budget, that a section under way may take beyond the budget."""

_OWN, _LEAST_OWN = 0.35, 5.0
"""The share of the budget, and the seconds, that one section may take, so that it leaves time for the others."""

_LEAST_FITTED, _ROWS_PER_SECOND = 2000, 300.0
"""Rows that a law is fitted to at most, by the seconds of the budget: that takes below a tenth of it on a free core."""

_HYPHEN = re.compile(r"(?:(?<![\w.)\]])|(?<=[0-9]e))-(?=[0-9.])")
"""A hyphen before a number is a minus sign, also in an exponent."""

_UNBROKEN = 16
"""Letters of an event up to which it stays on one line."""

_SECTIONS: tuple[tuple[str, str, Callable[[Subject], Section]], ...] = (
    ("events", "How likely are your events", sections.events),
    ("errors", "How often it errs", error_rates.errors),
    ("outcome", "How well it does", outcome.outcome),
    ("local", "Which linear models apply to the data", sections.local_models),
    ("density", "What comes out, and which part is in the event", levers.density),
    ("sensitivity", "What would change it", levers.sensitivity),
    ("sweep", "With less or more noise", levers.sweep),
    ("linear_models", "Which linear models it applies", sections.linear_models),
    ("outputs", "What comes out", output_laws.outputs),
    ("regions", "Where it switches", region_pictures.regions),
    ("units", "Which units work", sections.units),
    ("spectrum", "How sensitive it is", sections.spectrum),
    ("geometry", "What the layers do", sections.layers),
    ("network", "What the network is", sections.network),
)
"""Key, title and function of each section, in the order in which they are worked out: the rows of data first, as what
costs little and belongs to the user, then what stands right under the first screen, then the details."""


@dataclass(frozen=True, repr=False)
class Report:
    """A finished report.

    Attributes
    ----------
    title : str
    law_from : str
        Where the distribution of the inputs comes from, as a sentence.
    sections : tuple of Section
        One per question: answer in words, guarantee, tables and figures.
    origin : dict
        Versions, fingerprint of the network, seed, budget and time.
    seed : int
        `rng=seed` repeats the report.
    records : tuple of dict
        What the probabilities of events, the linear models, the singular values and the error rates were computed
        from, as `reluscope.record` makes it; `reluscope replay report.json` computes them again.
    assumed : bool
        Whether the distribution of the inputs was given by nobody.
    screen : Screen
        What comes first on the page: what, where, how likely.
    scene : str
        The map as JSON, for the page to draw; empty where there is none.
    python : str
        A script that asks the first questions again.
    playground : Playground or None
        Where the playground shows this network, once it is started.
    """

    title: str
    law_from: str
    sections: tuple[Section, ...]
    origin: dict[str, str]
    seed: int
    records: tuple[dict[str, Any], ...] = ()
    assumed: bool = False
    screen: Screen = field(default_factory=Screen)
    scene: str = ""
    python: str = ""
    playground: Playground | None = None

    @property
    def summary(self) -> list[str]:
        """The headlines, each with its guarantee."""
        return [f"{s.headline} [{s.guarantee}]" if s.guarantee else s.headline for s in self.sections if s.headline]

    @property
    def _late(self) -> str:
        """What there was no time for, as a sentence, or nothing."""
        titles = [f"“{s.title}”" for s in self.sections if s.late]
        if not titles:
            return ""
        return f"There was no time for {', '.join(titles)}: give a budget above {self.origin['budget']}."

    def html(self) -> str:
        """The page."""
        jinja = require("jinja2", "report")
        template = files("reluscope.reporting").joinpath("page.html").read_text(encoding="utf-8")
        engine = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined)
        engine.filters["minus"] = self._typeset
        page = engine.from_string(template)
        return str(
            page.render(
                title=self.title,
                law_from=self.law_from,
                assumed=self.assumed,
                screen=self.screen,
                sections=self.sections,
                late=self._late,
                origin=self.origin,
                version=__version__,
                scene=self.scene,
                script=script() if self.scene or self.python else "",
                python=self.python,
                playground=self.playground,
            )
        )

    def _typeset(self, words: str) -> str:
        """Words with minus signs, and no break inside a percentage or a short event."""
        words = _HYPHEN.sub("−", words).replace(" %", "\N{NO-BREAK SPACE}%")
        for event in {c.event for c in self.screen.chances if len(c.event) <= _UNBROKEN}:
            words = words.replace(event, event.replace(" ", "\N{NO-BREAK SPACE}"))
        return words

    def to_dict(self) -> dict[str, Any]:
        """Everything a program would want, fit for JSON."""
        return {
            "title": self.title,
            "law": self.law_from,
            "law_assumed": self.assumed,
            "summary": self.summary,
            "sections": {
                s.key: {"guarantee": s.guarantee, "answer": s.answer, "reason": s.reason, **_plain(s.facts)}
                for s in self.sections
            },
            "origin": self.origin,
            **_shared(self.records),
        }

    def save(self, folder: str | Path) -> list[str]:
        """Write `report.html`, `report.json` and one CSV file per table.

        Parameters
        ----------
        folder : str or Path
            Made if it does not exist.

        Returns
        -------
        list of str
            Names of the files.
        """
        from reluscope._files import atomic_write, make_folder
        from reluscope._tables import write_csv

        folder = make_folder(folder)
        texts = {
            "report.html": self.html(),
            "report.json": json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n",
        }
        for name, content in texts.items():
            with atomic_write(folder / name) as file:
                file.write(content.encode())
        names = list(texts)
        for block in (b for s in self.sections for b in s.blocks if isinstance(b, Table)):
            write_csv(block.columns, folder / f"{block.name}.csv")
            names.append(f"{block.name}.csv")
        return names

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(line)}</li>" for line in self.summary)
        rest = "<small>save(folder) writes the page, its tables and its numbers.</small>"
        return f"<div><b>{escape(self.title)}</b><p>{escape(self.law_from)}</p><ul>{items}</ul>{rest}</div>"

    def __repr__(self) -> str:
        first = [self.law_from] if self.assumed else []
        lines = "\n".join(f"  {line}" for line in [*first, *self.summary])
        return f"Report: {self.title}\n{lines}"


@clean_interrupt()
@with_jobs
def report(
    net: Network,
    law: Law | ClassMixtures | None = None,
    *,
    X: npt.ArrayLike | None = None,
    y: npt.ArrayLike | None = None,
    X_test: npt.ArrayLike | None = None,
    y_test: npt.ArrayLike | None = None,
    events: Sequence[str] | str = (),
    feature_names: Sequence[str] | None = None,
    box: Any = None,
    decision: str | None = None,
    title: str | None = None,
    guarantee: str = "auto",
    budget: Any = None,
    jobs: Any = None,
    rng: int | None = None,
    progress: Any = None,
) -> Report:
    """What `net` does, where and how likely that is, as one page.

    Parameters
    ----------
    net : Network
    law : Law or ClassMixtures, optional
        The distribution of the inputs; one law per class adds error rates (so do labels `y` beside `X`). Without it, a
        law is fitted to the rows of `X`: `reluscope.fit` where the network's schema knows the columns, else a
        Gaussian; without rows, inputs are uniform on `box`; without that, independent standard normal inputs are
        assumed, and the page says so on top.
    X : (n, inputs) or a table, optional
        Rows of data, for the linear models they meet and the share of them in each event.
    y : (n,), optional
        Their responses.
    X_test, y_test : optional
        Rows that the model was not trained on, and their responses: shown beside those of `X`.
    events : str or sequence of str
        Events such as `"y[0] > 1"`.
    feature_names : sequence of str, optional
        Names of the inputs.
    box : (lower, upper), optional
        Range of the inputs.
    decision : {"largest", "smallest"}, optional
        Which output decides; by default what the network's schema says, else the largest is assumed, and the page says
        so.
    title : str, optional
        Title of the page.
    guarantee : {"auto", "exact", "sound", "confidence"}
        Of the probabilities of the events, as for `probability`.
    budget : str, optional
        Time for all sections together (None: "60s").
    jobs : int, optional
        Workers that share the work, -1 for all cores.
    rng : int, optional
        Seed of all draws; the page names it.
    progress : optional
        None (silent), "auto", or a function of (done, text).

    Returns
    -------
    Report
        Write it with `save(folder)`.

    Raises
    ------
    InputError
        If an argument is wrong. A section that cannot be worked out says why, and the others stand.

    Examples
    --------
    >>> import reluscope as rs
    >>> net = rs.Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0])], name="absolute value")
    >>> page = rs.report(net, rs.Gaussian([0.0]), events="y[0] > 1", budget="5s", rng=0)
    >>> page.summary[0]
    'y[0] > 1 has probability 31.7 %. [exact]'
    """
    check_network(net)
    seed = (seeded(None)[1] or 0) % 2**31 if rng is None else integer(rng, "rng", low=0)
    seconds = real(parse_budget("60s" if budget is None else budget).seconds, "budget", low=0.1)
    clock = Budget(seconds=min(seconds, 3600.0))
    started = time.monotonic()
    rows = None if X is None else _rows(X, net)
    new = None if X_test is None else _rows(X_test, net, "X_test")
    if new is not None and rows is None:
        raise InputError("X_test is shown beside X, the rows the model was trained on; give X too")
    classes: ClassMixtures | None = None
    if isinstance(law, ClassMixtures):
        classes, law = law, law.joint
    joint, law_from, assumed = _law(net, law, rows, box, seconds, seed)
    if decision is not None:
        choice(decision, "decision", ("largest", "smallest"))
    choice(guarantee, "guarantee", GUARANTEES)
    if feature_names is None and net.schema is not None and net.schema.columns:
        feature_names = net.schema.inputs
    names = (
        None
        if feature_names is None
        else tuple(text(name, "an entry of feature_names") for name in several(feature_names, "feature_names", "names"))
    )
    if names is not None and len(names) != net.n_inputs:
        raise InputError(f"feature_names must name the {net.n_inputs} inputs, got {len(names)}")
    texts = (events,) if isinstance(events, str) else several(events, "events", "texts")
    for each in texts:
        text(each, "an entry of events")
    if title is not None:
        text(title, "title")
    check_rows(X, y, "y")
    check_rows(X_test, y_test, "y_test", "X_test")
    _check_labels(y, rows, "y", "X")
    _check_labels(y_test, new, "y_test", "X_test")
    if box is not None:
        box_bounds(box, net.n_inputs, "box")
    known, asked = (None if v is None else error_rates.labels_of(v) for v in (y, y_test))
    given = (rows, known, new, asked, names, decision or "", texts, guarantee)
    subject = Subject(net, joint, law_from, classes, *given, clock, seed)
    done: list[Section] = []
    screen = Screen()
    with meter(progress, "report") as show:
        for key, name, section in _SECTIONS:
            show(len(done), name.lower())
            done.append(_tried(section, key, name, subject))
            if section is sections.events:
                show(len(done), "first screen")
                screen = _first(subject)
    origin = {
        "reluscope": __version__,
        "numpy": np.__version__,
        "network sha256": fingerprint(net),
        "seed": str(seed),
        "budget": f"{seconds:g} s",
        "seconds": _seconds(time.monotonic() - started, clock.elapsed()),
    }
    kept = tuple(subject.records)
    title = title or net.name or "network"
    ways = _scene(subject), python_code(subject, title), playground_link(subject, title)
    return Report(title, law_from, tuple(done), origin, seed, kept, assumed, screen, *ways)


def _seconds(passed: float, counted: float) -> str:
    """The time that the report took; compiling and loading code on first use is not part of the budget."""
    once = passed - counted
    more = f", and {once:.1f} to load and compile code, which budgets do not count" if once >= 0.1 else ""
    return f"{counted:.1f}{more}"


def _first(subject: Subject) -> Screen:
    """The first screen; pictures that there is no time for are left out."""
    budget = subject.budget
    with deadline(lambda: budget.elapsed() > budget.seconds):
        return first_screen(subject)


def _scene(subject: Subject) -> str:
    """The map, where there is time for it."""
    budget = subject.budget
    if budget.spent():
        return ""
    with suppress(OutOfTimeError, ReluscopeError, MemoryError), deadline(lambda: budget.elapsed() > budget.seconds):
        return scene(subject)
    return ""


def _tried(section: Callable[[Subject], Section], key: str, title: str, subject: Subject) -> Section:
    """The section, or why there is none: an error, or no time left."""
    budget = subject.budget
    late = Section(key, title, reason=f"The budget of {budget.seconds:g} s did not suffice for this.", late=True)
    if budget.spent() and section is not sections.network and _asked(key, subject):
        return late
    try:
        begun, own = budget.elapsed(), max(_LEAST_OWN, _OWN * budget.seconds)
        with deadline(lambda: budget.elapsed() > min(1.1 * budget.seconds + _MORE, begun + own)):
            return section(subject)
    except OutOfTimeError:
        return late
    except (ReluscopeError, MemoryError) as error:
        return Section(key, title, reason=f"Not worked out: {str(error) or type(error).__name__}")


def _asked(key: str, subject: Subject) -> bool:
    """Whether all was given that a section is about; what was not asked for needs no time."""
    labelled = subject.X is not None and subject.y is not None
    if key in ("density", "sensitivity", "sweep"):
        return bool(subject.events)
    given = {"local": subject.X is not None, "outcome": labelled, "errors": labelled or subject.classes is not None}
    return given.get(key, True)


def _check_labels(y: Any, rows: Any, name: str, goes_with: str) -> None:
    if y is None:
        return
    labels = any_array(y, name, "a list of numbers or labels")
    if rows is None or labels.shape[:1] != (len(rows),) or labels.dtype.kind not in "iufbOUST":
        one_each = f"must have one number or label for each of the {0 if rows is None else len(rows)} rows"
        raise InputError(f"{name} {f'goes with {goes_with}' if rows is None else one_each}, got {describe(y)}")


def _rows(X: npt.ArrayLike, net: Network, name: str = "X") -> Any:
    from reluscope.inputs import data_rows

    if columns_of(X) is not None and net.schema is not None and net.schema.columns:
        return net.schema.encode(X, name=name)
    rows = data_rows(X, name)
    if rows.shape[1] != net.n_inputs:
        raise InputError(
            f"{name} must have {net.n_inputs} columns, the inputs of the network, got {rows.shape[1]}; choose them, as "
            f"in {name}[:, columns]"
        )
    return rows


def _law(net: Network, law: Law | None, X: Any, box: Any, seconds: float, seed: int) -> tuple[Law, str, bool]:
    """The law, where it comes from, and whether nobody has given it."""
    if law is not None:
        return known_law(law, net), f"Law (distribution) of the inputs: {law_words(law)}.", False
    if X is not None:
        return *fitted_law(net, X, most=int(max(_LEAST_FITTED, _ROWS_PER_SECOND * seconds)), rng=seed), False
    if box is not None:
        uniform = Uniform(*box_bounds(box, net.n_inputs, "box"))
        return uniform, "Law (distribution) of the inputs: uniform on the box given.", False
    standard = Gaussian(np.zeros(net.n_inputs), 1.0)
    return (
        standard,
        (
            "Assumed inputs: no law or data was given, so every probability below is for independent standard normal "
            "inputs. Give a law (the distribution of the inputs) or data, and the report is about your inputs."
        ),
        True,
    )


def _shared(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Records with what they share told once (a law may be large): `record`, and `records` with what is their own."""
    if not records:
        return {}
    first = records[0]
    shared = {name: value for name, value in first.items() if all(name in r and r[name] == value for r in records)}
    own = [{name: value for name, value in r.items() if name not in shared} for r in records]
    return {"record": shared, "records": own}


def _plain(value: Any) -> Any:
    """Numbers that JSON knows; what is not finite becomes None."""
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


__all__ = ["Figure", "Report", "fingerprint", "report"]
