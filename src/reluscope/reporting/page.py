"""`report(net, law)`: every question about a network on one page that needs nothing else.

The page is one HTML file without scripts, links to elsewhere or fonts to fetch; its tables lie beside it as CSV and
its numbers as JSON. A section that cannot be worked out says why, and the others stand.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import integer, real
from reluscope._extras import require
from reluscope._version import __version__
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError, ReluscopeError
from reluscope.inputs import ClassMixtures, Gaussian, GaussianMixture, Law, check_law
from reluscope.network import Network, check_network
from reluscope.progress import meter
from reluscope.reporting import error_rates, output_laws, region_pictures, sections
from reluscope.reporting.blocks import Figure, Section, Table
from reluscope.reporting.subject import Subject

_SECTIONS: tuple[Callable[[Subject], Section], ...] = (
    sections.events,
    error_rates.errors,
    sections.linear_models,
    output_laws.outputs,
    region_pictures.regions,
    sections.units,
    sections.spectrum,
    sections.local_models,
    sections.layers,
    sections.network,
)


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
    """

    title: str
    law_from: str
    sections: tuple[Section, ...]
    origin: dict[str, str]
    seed: int

    @property
    def summary(self) -> list[str]:
        """The headlines, each with its guarantee."""
        return [f"{s.headline} [{s.guarantee}]" if s.guarantee else s.headline for s in self.sections if s.headline]

    def html(self) -> str:
        """The page."""
        jinja = require("jinja2", "report")
        template = files("reluscope.reporting").joinpath("page.html").read_text(encoding="utf-8")
        page = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined).from_string(template)
        return str(
            page.render(
                title=self.title,
                law_from=self.law_from,
                sections=self.sections,
                origin=self.origin,
                version=__version__,
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything a program would want, fit for JSON."""
        return {
            "title": self.title,
            "law": self.law_from,
            "summary": self.summary,
            "sections": {
                s.key: {"guarantee": s.guarantee, "answer": s.answer, "reason": s.reason, **_plain(s.facts)}
                for s in self.sections
            },
            "origin": self.origin,
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
        from reluscope._files import atomic_write
        from reluscope._tables import write_csv

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            "report.html": self.html(),
            "report.json": json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n",
        }
        for name, text in texts.items():
            with atomic_write(folder / name) as file:
                file.write(text.encode())
        names = list(texts)
        for block in (b for s in self.sections for b in s.blocks if isinstance(b, Table)):
            write_csv(block.columns, folder / f"{block.name}.csv")
            names.append(f"{block.name}.csv")
        return names

    def __repr__(self) -> str:
        lines = "\n".join(f"  {line}" for line in self.summary)
        return f"Report: {self.title}\n{lines}"


def report(
    net: Network,
    law: Law | ClassMixtures | None = None,
    *,
    X: npt.ArrayLike | None = None,
    y: npt.ArrayLike | None = None,
    events: Sequence[str] | str = (),
    feature_names: Sequence[str] | None = None,
    box: Any = None,
    title: str | None = None,
    budget: Any = None,
    rng: int | None = None,
    progress: Any = None,
) -> Report:
    """What `net` does, where and how likely that is, as one page.

    Parameters
    ----------
    net : Network
    law : Law or ClassMixtures, optional
        The distribution of the inputs; one law per class adds error rates (so do labels `y` beside `X`). Without it, a
        Gaussian is fitted to the rows of `X`; without those, a Gaussian around the middle of `box` (a third of its
        half-width as standard deviation) or independent standard normal inputs are assumed, and the page says so.
    X : (n, inputs), optional
        Rows of data, for the linear models they meet.
    y : (n,), optional
        Their responses.
    events : str or sequence of str
        Events such as `"y[0] > 1"`.
    feature_names : sequence of str, optional
        Names of the inputs.
    box : (lower, upper), optional
        Range of the inputs.
    title : str, optional
        Title of the page.
    budget : str, optional
        Time for all sections together (None: "60s").
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
    seed = int(np.random.default_rng().integers(2**31)) if rng is None else integer(rng, "rng", low=0)
    seconds = real(parse_budget("60s" if budget is None else budget).seconds, "budget", low=0.1)
    rows = None if X is None else _rows(X, net)
    classes = law if isinstance(law, ClassMixtures) else None
    joint, law_from = _law(net, law.joint if isinstance(law, ClassMixtures) else law, rows, box)
    names = None if feature_names is None else tuple(map(str, feature_names))
    if names is not None and len(names) != net.n_inputs:
        raise InputError(f"feature_names must name the {net.n_inputs} inputs, got {len(names)}")
    texts = (events,) if isinstance(events, str) else tuple(events)
    clock = Budget(seconds=min(seconds, 3600.0))
    subject = Subject(net, joint, law_from, classes, rows, y, names, texts, clock, seed)
    done: list[Section] = []
    started = time.perf_counter()
    with meter(progress, "report") as show:
        for section in _SECTIONS:
            show(len(done), section.__name__)
            done.append(_tried(section, subject))
    origin = {
        "reluscope": __version__,
        "numpy": np.__version__,
        "network sha256": fingerprint(net),
        "seed": str(seed),
        "budget": f"{seconds:g} s in all",
        "seconds": f"{time.perf_counter() - started:.1f}",
    }
    return Report(title or net.name or "network", law_from, tuple(done), origin, seed)


def fingerprint(net: Network) -> str:
    """SHA-256 of the layers' weights, biases and activations."""
    digest = hashlib.sha256()
    for layer in net.layers:
        for part in _weights(layer.weight):
            digest.update(np.ascontiguousarray(part).tobytes())
        digest.update(layer.bias.tobytes())
        for table in (layer.units.breaks, layer.units.slopes, layer.units.intercepts):
            digest.update(np.ascontiguousarray(table).tobytes())
    return digest.hexdigest()


def _weights(weight: Any) -> tuple[Any, ...]:
    """The arrays that hold a dense or sparse matrix."""
    return (weight,) if isinstance(weight, np.ndarray) else (weight.indptr, weight.indices, weight.data)


def _tried(section: Callable[[Subject], Section], subject: Subject) -> Section:
    try:
        return section(subject)
    except (ReluscopeError, MemoryError) as error:
        name = section.__name__
        return Section(name, name.capitalize(), reason=str(error) or type(error).__name__)


def _rows(X: npt.ArrayLike, net: Network) -> Any:
    from reluscope.inputs import data_rows

    rows = data_rows(X)
    if rows.shape[1] != net.n_inputs:
        raise InputError(
            f"X must have {net.n_inputs} columns, the inputs of the network, got {rows.shape[1]}; choose them, as in "
            "X[:, columns]"
        )
    return rows


def _law(net: Network, law: Law | None, X: Any, box: Any) -> tuple[Law, str]:
    if law is not None:
        return check_law(law, net), f"Inputs: {law!r}."
    if X is not None:
        fitted = GaussianMixture.fit(X, components=1, rng=0)
        return fitted, f"Inputs: a Gaussian fitted to the {len(X):,} rows of data given."
    if box is not None:
        from reluscope.cells.domain import box_bounds

        low, high = box_bounds(box, net.n_inputs, "box")
        sd = (high - low) / 6.0
        return Gaussian((low + high) / 2.0, np.diag(sd * sd)), (
            "Inputs: no law was given, so a Gaussian around the middle of the box is assumed, with three standard "
            "deviations to each face. Give a law or data, and the report is about your inputs."
        )
    standard = Gaussian(np.zeros(net.n_inputs), 1.0)
    return standard, (
        "Inputs: no law or data was given, so independent standard normal inputs are assumed. Give a law (the "
        "distribution of the inputs) or data, and the report is about your inputs."
    )


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
