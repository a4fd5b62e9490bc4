"""One question of a batch, asked: what a worker does. A task and its result are plain data (or pickle well)."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from reluscope._files import file_digest
from reluscope._version import __version__
from reluscope.answer import Answer
from reluscope.answers.probability import probability
from reluscope.answers.properties import box_law, counterexamples, verdict
from reluscope.answers.replay import record
from reluscope.batches.instances import Instance
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError, ReluscopeError, ReluscopeWarning
from reluscope.events import Event, as_event, joined
from reluscope.formats import load
from reluscope.formats.vnnlib import vnnlib
from reluscope.inputs import Law
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.network import Network
from reluscope.reporting.data import law_of_file
from reluscope.reporting.page import report
from reluscope.threads import clean_interrupt

FAILED = "failed"

_FOR_WITNESS = 0.2
"""Share of a budget in seconds that is kept for counterexamples, where the answer leaves the verdict open."""

_LEAST, _REPORT = 1.0, 20.0
"""Seconds of a report: as many as the question has, within these."""

_MOST_SHARED = 1 << 26
"""Bytes of model files that are sent to every worker of a cluster once; larger ones go with each row."""


@dataclass(frozen=True)
class Task:
    """A question with the seed of its draws."""

    instance: Instance
    seed: int


@dataclass(frozen=True)
class Result:
    """What is kept of a question; `status` is that of the answer, or "failed", with its `reason`."""

    digest: str
    status: str
    seconds: float
    seed: int
    version: str = __version__
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    guarantee: str | None = None
    level: float | None = None
    verdict: str | None = None
    method: str = ""
    note: str = ""
    reason: str = ""
    witness: str = ""
    record: str = ""


def shared_networks(tasks: Sequence[Task]) -> dict[str, Network]:
    """Networks of files by digest, to be sent to every worker once; none where they are too large for that."""
    paths = {t.instance.network_sha256: t.instance.network for t in tasks if isinstance(t.instance.network, Path)}
    if sum(path.stat().st_size for path in paths.values() if path.is_file()) > _MOST_SHARED:
        return {}
    out = {}
    for digest, path in paths.items():
        with suppress(ReluscopeError, OSError, MemoryError):  # the worker meets the same, and says so in the row
            out[digest] = load(path)
    return out


def shipped(task: Task, networks: Mapping[str, Network]) -> Task:
    """The task with what its files hold in their place: for workers that may not see the files of this machine.

    A network that every worker has already stays a path.
    """
    one = task.instance
    net, question = one.network, one.question
    try:
        if isinstance(net, Path):
            net = networks.get(one.network_sha256) or _network(net)
        law = one.law if not isinstance(one.law, Path) else law_of_file(net, one.law, rng=task.seed)[0]
        if isinstance(question, Path):
            question = _property(question)
    except (ReluscopeError, OSError, MemoryError):
        return task  # the worker meets the same, and says so in the row
    net = one.network if one.network_sha256 in networks else net
    return replace(task, instance=replace(one, network=net, question=question, law=law, files=()))


@clean_interrupt()
def answer_task(task: Task) -> Result:
    """Ask the question; whatever goes wrong is the result of the row, not the end of the batch."""
    started = time.perf_counter()
    try:
        return replace(_asked(task), seconds=time.perf_counter() - started)
    except (ReluscopeError, OSError) as error:
        reason = str(error) or type(error).__name__
    except MemoryError:
        reason = "out of memory"
    except Exception as error:  # of a package below: the other rows must not suffer from it
        reason = f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:500]}"
    return failed(task, reason, time.perf_counter() - started)


@clean_interrupt()
def report_task(task: Task) -> str:
    """The page of a report about the network under the law of the question; "" where there is none."""
    one = task.instance
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the row of the answer says them
            net = _network(one.network) if isinstance(one.network, Path) else one.network
            asked: Any = _property(one.question) if isinstance(one.question, Path) else one.question
            law, _ = _law(one, net, asked, task.seed)
            events = [asked] if isinstance(asked, str) else []
            title = " and ".join(Path(name).name for name in one.names)
            seconds = min(max(parse_budget(one.budget).seconds, _LEAST), _REPORT)
            return report(net, law, events=events, title=title, budget=seconds, rng=task.seed).html()
    except (ReluscopeError, OSError, MemoryError):
        return ""


def each_of(function: Callable[[Task], Result], tasks: list[Task], networks: Mapping[str, Network]) -> list[Result]:
    """What a worker does with a parcel of tasks, and the networks that it was sent."""
    return [function(_with_network(task, networks)) for task in tasks]


def _with_network(task: Task, networks: Mapping[str, Network]) -> Task:
    found = networks.get(task.instance.network_sha256)
    return task if found is None else replace(task, instance=replace(task.instance, network=found))


def failed(task: Task, reason: str, seconds: float = 0.0) -> Result:
    """The result of a task that gave none."""
    return Result(task.instance.digest, FAILED, seconds, task.seed, reason=reason)


def _asked(task: Task) -> Result:
    one = task.instance
    is_property = isinstance(one.question, Path) or (isinstance(one.question, Event) and one.law is None)
    _same_files(one)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net = _network(one.network) if isinstance(one.network, Path) else one.network
        asked: Any = _property(one.question) if isinstance(one.question, Path) else one.question
        law, names = _law(one, net, asked, task.seed)
    doubts = [str(w.message) for w in caught if issubclass(w.category, ReluscopeWarning)]
    whole = joined(net, law, asked)
    event = as_event(asked, whole, law, names=names)
    guarantee = one.guarantee or ("sound" if is_property else "auto")
    level = DEFAULT_LEVEL if one.level is None else one.level
    whole_budget = parse_budget(one.budget)
    budget: Any = one.budget
    if is_property and whole_budget.seconds < float("inf"):
        budget = _in_words(whole_budget, 1 - _FOR_WITNESS)
    answer = probability(
        whole,
        law,
        event,
        guarantee=guarantee,
        tolerance=one.tolerance,
        level=level,
        budget=budget,
        jobs=1,
        rng=task.seed,
    )
    kept = record(
        whole, law, event, answer, guarantee=guarantee, tolerance=one.tolerance, budget=budget,
        **({} if one.level is None else {"level": one.level}),
    )  # fmt: skip
    out = Result(
        one.digest, str(answer.status), 0.0, task.seed,
        value=answer.value, lower=answer.lower, upper=answer.upper, guarantee=answer.guarantee, level=answer.level,
        method=answer.method, note="; ".join(filter(None, [answer.note, *doubts])),
        record=json.dumps(kept, allow_nan=False),
    )  # fmt: skip
    if is_property:
        found: Any = ()
        if not _decided(answer):
            model = one.network if isinstance(one.network, Path) and one.network.suffix.lower() == ".onnx" else None
            left = min(5.0, max(whole_budget.seconds - whole_budget.elapsed(), 0.1))
            found = counterexamples(whole, law, event, answer, model=model, budget=left, rng=task.seed)
        seen = [w.x.tolist() for w in found][:1]
        word = verdict(answer, law, event, bool(found), covers=one.law is None)
        out = replace(out, verdict=word, witness=json.dumps(seen[0]) if seen else "")
    return out


def _decided(answer: Answer) -> bool:
    """Whether the bracket alone says sat or unsat."""
    return answer.guarantee != "confidence" and (answer.lower > 0 or answer.upper == 0)


def _in_words(budget: Budget, share: float) -> str:
    parts = [f"{share * budget.seconds:g}s"]
    parts += [f"{budget.regions:g} regions"] if budget.regions < float("inf") else []
    return ", ".join(parts)


def _law(one: Instance, net: Network, asked: Any, seed: int) -> tuple[Law, list[str] | None]:
    if isinstance(one.law, Path):
        return law_of_file(net, one.law, rng=seed)[:2]
    if one.law is not None:
        return one.law, None
    return box_law(asked), None


@lru_cache(maxsize=4)
def _network(path: Path) -> Network:
    """The network of a file, read once where rows follow one another."""
    return load(path)


@lru_cache(maxsize=4)
def _property(path: Path) -> Event:
    return vnnlib(path)


def _same_files(one: Instance) -> None:
    """Refuses a file that changed since its digest was taken: the answer would stand beside the wrong digest."""
    for path, digest in one.files:
        if file_digest(path) != digest:
            raise InputError(f"{path} changed while the batch ran; start it again")
