"""Answers that can be checked later: a record of everything an answer was computed from, and its replay.

A record is plain data, fit for JSON: the digests of the network and of the file it came from, the whole law, the event
as it was understood (its cases, not only its text), what was asked for, the seed, the version, and the answer with its
guarantee and status. `_record_plain` turns laws, events and answers into plain data and back.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reluscope._check import describe, real_array
from reluscope._version import __version__
from reluscope.answer import GUARANTEES, Answer, Answers, Status, status_of
from reluscope.answers._certificates import Certificates
from reluscope.answers._named import law_of
from reluscope.answers._probable_record import Probable
from reluscope.answers._record_plain import (
    argument_of_plain,
    compare_plain,
    event_of_plain,
    facts_named,
    finite,
    law_of_plain,
    plain_argument,
    plain_event,
    plain_law,
)
from reluscope.answers._record_plain import fingerprint as fingerprint
from reluscope.answers.certify import certify
from reluscope.answers.change import Change, change
from reluscope.answers.fairness import Fairness, fairness
from reluscope.answers.linear_models import LinearModels, linear_models, pattern_text
from reluscope.answers.outputs import ErrorRates, Outputs, error_rates, outputs
from reluscope.answers.probability import probability
from reluscope.answers.probable import probable
from reluscope.answers.sensitivity import Comparison, Sensitivity, compare, sensitivity
from reluscope.answers.spectrum import Spectrum, spectrum
from reluscope.answers.witness import Witnesses, witness
from reluscope.cells.regions import Regions, regions
from reluscope.errors import InputError, InputTypeError
from reluscope.events import Event, as_event
from reluscope.inputs import ClassMixtures, check_law
from reluscope.network import Network, check_network
from reluscope.pace import LATE

_FORMAT = 1
_OWN = {"net", "law", "laws", "event", "names", "rng", "progress", "replay", "limits", "geometry"}
"""Arguments of questions that have a place of their own in a record, or do not change the answer."""

_MOST_PATTERNS = 50
"""Patterns of a distribution over them that a record holds."""


# -- questions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """A question that can be recorded: the function that answers it, and what of its answer is kept."""

    name: str
    ask: Callable[..., Any]
    plain: Callable[[Any], dict[str, Any]]
    law: str = "law"
    event: bool = False
    drawn: bool = True

    @property
    def arguments(self) -> dict[str, Any]:
        """What it can be asked with: names and defaults."""
        found = inspect.signature(self.ask).parameters
        return {name: p.default for name, p in found.items() if name not in _OWN}


def _plain_models(found: LinearModels) -> dict[str, Any]:
    top = found.top(min(len(found), _MOST_PATTERNS))
    return {
        "patterns": _by_pattern(top.mass, top.pattern), "listed": len(found), "remainder": found.remainder,
        "guarantee": found.guarantee, "stopped": found.stopped, "seed": found.seed,
    }  # fmt: skip


def _plain_probable(found: Probable) -> dict[str, Any]:
    parts = {name: getattr(found, name).to_dict() for name in ("total", "left", "next")}
    some = slice(0, _MOST_PATTERNS)
    patterns = _by_pattern(found.mass[some], found.pattern[some])
    return {"patterns": patterns, "listed": len(found), **parts, "stopped": found.stopped, "seed": found.seed}


def _by_pattern(mass: Answers, pattern: Any) -> dict[str, Any]:
    return {key: one.to_dict() for key, one in zip(pattern_text(pattern), mass, strict=True)}


def _plain_rates(found: ErrorRates) -> dict[str, Any]:
    names = ("false_positive", "false_negative", "error")
    return {"threshold": found.threshold.tolist(), **{name: getattr(found, name).to_dict() for name in names}}


def _plain_witnesses(found: Witnesses) -> dict[str, Any]:
    items = [w.to_dict() for w in found]
    return {"witnesses": items, "proved_empty": found.proved_empty, "note": found.note, "seed": found.seed}


def _plain_certificates(found: Certificates) -> dict[str, Any]:
    kept = {"probability": found.probability, "sigma": found.sigma, "decision": found.decision}
    kept |= {"largest": found.largest, "change": found.change.to_dict()}
    return {**kept, "certified": found.certified.sum(axis=0), "rows": len(found)}


def _plain_outputs(found: Outputs) -> dict[str, Any]:
    return {**found.to_dict(), "stopped": found.stopped, "seed": found.seed}


def _plain_regions(found: Regions) -> dict[str, Any]:
    text = "\n".join(sorted(pattern_text(found.pattern)))
    return {
        "regions": len(found), "complete": found.complete, "stopped": found.reason,
        "patterns_sha256": hashlib.sha256(text.encode()).hexdigest(), "guarantee": "exact",
    }  # fmt: skip


def _own(found: Any) -> dict[str, Any]:
    return dict(found.to_dict())


_CALLS: dict[type, _Asked] = {
    Answer: _Asked("probability", probability, _own, event=True),
    Sensitivity: _Asked("sensitivity", sensitivity, _own, event=True),
    Comparison: _Asked("compare", compare, _own, event=True),
    Witnesses: _Asked("witness", witness, _plain_witnesses, event=True),
    Outputs: _Asked("outputs", outputs, _plain_outputs),
    ErrorRates: _Asked("error_rates", error_rates, _plain_rates, law="laws"),
    LinearModels: _Asked("linear_models", linear_models, _plain_models),
    Probable: _Asked("probable", probable, _plain_probable),
    Spectrum: _Asked("spectrum", spectrum, _own),
    Change: _Asked("change", change, _own),
    Fairness: _Asked("fairness", fairness, _own),
    Certificates: _Asked("certify", certify, _plain_certificates, law="", drawn=False),
    Regions: _Asked("regions", regions, _plain_regions, law="optional", drawn=False),
}
"""By the class of their answers."""


@dataclass(frozen=True)
class Replay:
    """An answer computed again, beside the one that was recorded.

    Attributes
    ----------
    answer : Answer or the result of another question
        Computed now.
    recorded : dict
        The recorded answer in plain data.
    agrees : bool
        Whether the two agree, in the sense of `compared`.
    compared : {"bit for bit", "brackets", "inputs"}
        How: exact answers, and those whose work is a count and not a time, are the same to the last bit; others
        depend on how fast the machine is, so that only their brackets can be compared: they must overlap. "inputs":
        the witnesses of the record are inside the event.
    question : str
        What was asked: "probability", "sensitivity", ...
    notes : tuple of str
        What to keep in mind: another version, a seed that is not known, where two answers differ.
    """

    answer: Any
    recorded: dict[str, Any]
    agrees: bool
    compared: str
    question: str = "probability"
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return {
            "question": self.question,
            "agrees": self.agrees,
            "compared": self.compared,
            "recorded": self.recorded,
            "answer": finite(_CALLS[type(self.answer)].plain(self.answer)),
            "notes": list(self.notes),
        }

    def __bool__(self) -> bool:
        return self.agrees


def record(net: Network, law: Any, event: Any, answer: Any, *, names: Any = None, **asked: Any) -> dict[str, Any]:
    """Everything that an answer was computed from, as plain data fit for JSON.

    Parameters
    ----------
    net : Network
    law : Law, or what the question takes in its place
        Rows of data for `change` and `fairness`, a law per class for `error_rates`; None for `certify`, and for
        `regions` in a box.
    event : str, Event or other
        As for `probability`; None for questions without an event.
    answer : Answer or other
        What `probability`, `sensitivity`, `compare`, `witness`, `outputs`, `error_rates`, `linear_models`, `probable`,
        `spectrum`, `change`, `fairness`, `certify` or `regions` gave.
    names : optional
        As for `probability`.
    **asked
        What it was asked with, where that was not the default: guarantee, tolerance, level, budget, ...

    Returns
    -------
    dict
        `law` is None for a law that plain data cannot hold; `replay` then needs it. Of an argument of more than a
        million numbers only the digest is kept; `replay` then needs the rows.

    Raises
    ------
    InputError
        If an argument is not what the question takes.

    Examples
    --------
    >>> import reluscope as rs
    >>> net = rs.Network([([[1.0]], [0.0]), ([[1.0]], None)])
    >>> law = rs.Gaussian([0.0])
    >>> kept = rs.record(net, law, "y > 1", rs.probability(net, law, "y > 1", rng=0))
    >>> bool(rs.replay(kept, net))
    True
    >>> kept = rs.record(net, law, None, rs.outputs(net, law, rng=0))
    >>> rs.replay(kept, net).question
    'outputs'
    """
    check_network(net)
    question = _CALLS.get(type(answer))
    if question is None:
        raise InputTypeError(
            "answer must be an Answer of reluscope.probability, or what another question gave "
            f"({', '.join(q.name for q in _CALLS.values())}), got {describe(answer)}"
        )
    given = _checked_law(question, net, law)
    found = None
    if question.event:
        found = as_event(event, net, given, names=names)
    elif event is not None or names is not None:
        raise InputError(
            f"event must be None: {question.name} has none, got {describe(event if names is None else names)}"
        )
    plain = finite(question.plain(answer))
    out = {
        "record": _FORMAT,
        "reluscope": __version__,
        "question": question.name,
        "network": {
            "sha256": fingerprint(net), "file_sha256": net.file_sha256, "schema_sha256": _schema_digest(net),
            "inputs": net.n_inputs, "outputs": net.n_outputs,
        },
        "law": None if given is None else plain_law(given),
        "event": None if found is None else plain_event(found),
        "asked": _plain_asked(question, asked),
        **_standing(plain),
        "answer": plain,
    }  # fmt: skip
    if question.law in ("", "optional") and given is None:
        del out["law"]  # there was none, which is not the same as one that cannot be written
    json.dumps(out, allow_nan=False)
    return out


def replay(record: Any, net: Network, *, law: Any = None, rows: Any = None, progress: Any = None) -> Replay:
    """Compute a recorded answer again, and compare.

    Parameters
    ----------
    record : dict
        What `record` gave, perhaps through JSON.
    net : Network
        The network it is about; its digest must be the recorded one.
    law : Law, optional
        Only for a record without its law.
    rows : array, optional
        Only for a record that keeps the digest of its rows of data.
    progress : optional
        None (silent), "auto", or a function of (done, text).

    Returns
    -------
    Replay

    Raises
    ------
    InputError
        If the network is another one, the law was not stored, or the record is damaged.

    Examples
    --------
    >>> import reluscope as rs
    >>> net = rs.Network([([[1.0]], [0.0]), ([[1.0]], None)])
    >>> law = rs.Gaussian([0.0])
    >>> kept = rs.record(net, law, "y > 1", rs.probability(net, law, "y > 1", rng=0))
    >>> rs.replay(kept, net).compared
    'bit for bit'
    """
    check_network(net)
    question, kept = _checked(record)
    data = None if rows is None else real_array(rows, "rows")
    notes = _same_network(kept["network"], net)
    given = _law_again(question, kept, law, net)
    event = event_of_plain(kept["event"]) if question.event else None
    asked = {name: argument_of_plain(value, name, data) for name, value in kept["asked"].items()}
    before, seed = kept["answer"], _seed_of(kept["answer"])
    if kept["reluscope"] != __version__:
        notes.append(f"recorded with version {kept['reluscope']}, computed again with {__version__}")
    kinds = set(facts_named(before, "guarantee"))
    if seed is None and "confidence" in kinds:
        notes.append("the draws of the record are not known: it was made with a Generator")
    now = _ask(question, net, given, event, asked, 0 if seed is None else seed, progress)
    after = finite(question.plain(now))
    if question.name == "witness" and event is not None:
        agrees, said = _witnesses_agree(before, now, event, net)
        return Replay(now, dict(before), agrees, "inputs", question.name, (*notes, *said))
    exact = kinds | set(facts_named(after, "guarantee")) <= {"exact"}
    untimed = not question.drawn and asked.get("budget") is None
    untimed |= "budget" not in asked and (seed is not None or before.get("of_data") is True)
    counted = _counted(asked.get("budget")) and "confidence" not in kinds
    if question.name == "probability" and asked.get("guarantee") == "confidence" and seed is not None:
        # Estimates are a fixed amount of work, unless a time was asked for or the safety limit ended them.
        steady = kept["reluscope"] == __version__ and (asked.get("budget") is None or _counted(asked["budget"]))
        counted |= steady and not any(LATE in str(one.get("note", "")) for one in (before, after))
    bits = exact or untimed or counted
    if question.name == "regions":
        bits = asked.get("budget") is None or _counted(asked["budget"])
    found = compare_plain(before, after, bits)
    if not bits:
        notes.append("the work depended on time, so brackets are compared: they must overlap")
    if found.differs:
        notes.append(f"they differ at {found.differs}")
    elif not found.numbers:
        notes.append("the two have nothing in common that could be compared")
    agrees = not found.differs and found.numbers > 0
    return Replay(now, dict(before), agrees, "bit for bit" if bits else "brackets", question.name, tuple(notes))


# -- what is kept --------------------------------------------------------------------------------------------------


def _checked_law(question: _Asked, net: Network, law: Any) -> Any:
    """The law of a question as it was understood: rows of data are the particles that they are."""
    if question.law == "" or (question.law == "optional" and law is None):
        if law is not None:
            raise InputError(f"law must be None: {question.name} has none, got {describe(law)}")
        return None
    if question.law == "laws":
        if isinstance(law, ClassMixtures):
            check_law(law.joint, net)
            return law
        if not isinstance(law, (tuple, list)) or len(law) != 2:
            raise InputTypeError(f"law must be a pair of laws, or one law per class, got {describe(law)}")
        return tuple(check_law(one, net) for one in law)
    return law_of(net, law) if question.name in ("change", "fairness") else check_law(law, net)


def _plain_asked(question: _Asked, asked: Mapping[str, Any]) -> dict[str, Any]:
    known = question.arguments
    strangers = [name for name in asked if name not in known]
    if strangers:
        raise InputError(f"asked must be some of {', '.join(known)}, got {strangers[0]}")
    missing = [name for name, default in known.items() if default is inspect.Parameter.empty and name not in asked]
    if missing:
        raise InputError(f"asked must say {missing[0]}: {question.name} was asked with it")
    budget = asked.get("budget")
    if budget is not None and not isinstance(budget, (str, int, float)):
        raise InputTypeError(f"budget must be text or a number of seconds, got {describe(budget)}")
    return {name: plain_argument(asked.get(name, default), name) for name, default in known.items()}


def _standing(data: dict[str, Any]) -> dict[str, Any]:
    """Guarantee, level, status and seed of an answer as a whole: the weakest of its parts."""
    kinds, levels = set(facts_named(data, "guarantee")), [v for v in facts_named(data, "level") if isinstance(v, float)]
    order = ("approximation", "confidence", "sound", "exact")
    states = [v for v in facts_named(data, "status") if v != Status.DONE.value]
    states += [status_of(v).value for v in facts_named(data, "stopped") if v is not None]
    return {
        "guarantee": next((kind for kind in order if kind in kinds), None),
        "level": min(levels, default=None),
        "status": states[0] if states else Status.DONE.value,
        "seed": _seed_of(data),
    }


def _seed_of(data: Any) -> Any:
    """The seed of an answer, or of its parts if they agree."""
    if isinstance(data, Mapping) and "seed" in data:
        return data["seed"]
    seeds = set(facts_named(data, "seed"))
    return seeds.pop() if len(seeds) == 1 else None


def _schema_digest(net: Network) -> str | None:
    if net.schema is None:
        return None
    return hashlib.sha256(json.dumps(net.schema.to_dict(), sort_keys=True, default=str).encode()).hexdigest()


def _counted(budget: Any) -> bool:
    """Whether a budget counts regions and nothing else."""
    return isinstance(budget, str) and re.fullmatch(r"\s*[0-9.e+]+\s*(regions?|cells?)\s*", budget) is not None


# -- replay --------------------------------------------------------------------------------------------------------


def _same_network(kept: Mapping[str, Any], net: Network) -> list[str]:
    """Refuses another network; says where the same one comes from another file or has another schema."""
    now, before = fingerprint(net), kept["sha256"]
    if now != before:
        raise InputError(
            f"net is not the network of the record: its weights have the digest {now[:12]}..., the record says "
            f"{before[:12]}...; give the model file as it was"
        )
    notes = []
    file = kept.get("file_sha256")
    if file is not None and net.file_sha256 not in (None, file):
        notes.append("the model file is another one; its weights are the same")
    if kept.get("schema_sha256") != _schema_digest(net) and "schema_sha256" in kept:
        notes.append("the network has another schema (names, units, decision rule) than the record's")
    return notes


def _law_again(question: _Asked, kept: Mapping[str, Any], law: Any, net: Network) -> Any:
    if question.law == "" or "law" not in kept:
        return None
    if kept["law"] is None and law is None:
        raise InputError("record holds no law: it was of a kind that plain data cannot hold; pass law=")
    return _checked_law(question, net, law_of_plain(kept["law"]) if law is None else law)


def _ask(
    question: _Asked, net: Network, law: Any, event: Event | None, asked: dict[str, Any], seed: Any, progress: Any
) -> Any:
    known = inspect.signature(question.ask).parameters
    given = {"law" if question.law == "optional" else question.law: law, "event": event, "rng": seed}
    given |= {"progress": progress}
    arguments = {name: value for name, value in given.items() if name in known and value is not None}
    return question.ask(net, **arguments, **asked)


def _witnesses_agree(before: Mapping[str, Any], now: Witnesses, event: Event, net: Network) -> tuple[bool, list[str]]:
    """The inputs of the record are in the event still, and neither search proved what the other one refutes."""
    try:
        X = np.array([w["x"] for w in before["witnesses"]], dtype=float).reshape(-1, net.n_inputs)
        empty = bool(before["proved_empty"])
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"record holds an answer that is damaged: {str(error)[:120]}") from error
    outside = 0 if not len(X) else int((~np.asarray(event.holds(net, X))).sum())
    notes = [f"{outside} of {len(X)} recorded inputs are not in the event"] if outside else []
    if (len(X) and now.proved_empty) or (empty and len(now)):
        notes.append("one of the two searches proved that there are no such inputs, the other found some")
    return not notes, notes


def _checked(record: Any) -> tuple[_Asked, dict[str, Any]]:
    """A record whose parts are of the right kind; what is in them is checked where it is used."""
    if not isinstance(record, Mapping):
        raise InputTypeError(f"record must be a dictionary as reluscope.record makes it, got {describe(record)}")
    by_name = {q.name: q for q in _CALLS.values()}
    name = record.get("question")
    if record.get("record") != _FORMAT or not isinstance(name, str) or name not in by_name:
        raise InputError(f"record must be one of a question that is known in format {_FORMAT}, got {describe(record)}")
    question = by_name[name]
    for part in ("network", "asked", "answer", *(["event"] if question.event else [])):
        if not isinstance(record.get(part), Mapping):
            raise InputError(f"record must have the part {part!r}, got {describe(record.get(part))}")
    if not isinstance(record["network"].get("sha256"), str):
        raise InputError("record is damaged: it needs the digest of its network")
    answer = record["answer"]
    if question.name == "probability":
        ends = [answer.get(end) for end in ("value", "lower", "upper")]
        if not all(isinstance(v, (int, float)) for v in ends) or answer.get("guarantee") not in GUARANTEES:
            raise InputError("record holds an answer that is damaged: it needs value, lower, upper and guarantee")
    whole = question.law in ("", "optional") or "law" in record
    if set(record["asked"]) != set(question.arguments) or not isinstance(record.get("reluscope"), str) or not whole:
        raise InputError("record is damaged: it needs a version, a law and what was asked for")
    return question, dict(record)
