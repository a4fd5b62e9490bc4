"""Bad calls end in an `InputError` that can be read: no raw error of Python, no hang, no silence."""

from __future__ import annotations

import inspect
import random

import numpy as np
import pytest

import reluscope as rs
from bad_calls import (
    BAD,
    LAWS,
    LEFT_OUT,
    METHODS,
    NET,
    NEVER,
    OF_CLASSES,
    calls,
    found,
    names,
    outcome,
    subject,
    verdict,
)
from reluscope.answer import Answers, Status
from test_signatures import REACHABLE, public_methods

EACH = 8
"""Bad values for each argument in the usual run, drawn by its name; all of them in the slow one."""

FREE = {"Column.fill", "schema.positional.X"}
"""Arguments that take anything (a fill of any kind; None for what is no table by position)."""


def ended_badly(name: str, most: int | None) -> dict[str, str]:
    bad = {}
    for parameter, kind, call in calls(name):
        chosen = BAD if most is None else random.Random(f"{name}({parameter})").sample(sorted(BAD), most)
        if kind in chosen and f"{name}.{parameter}" not in FREE:
            ended = outcome(call, parameter, where=name)
            if verdict(ended, kind):
                bad[f"{name}({parameter}={kind})"] = ended
    return bad


@pytest.mark.parametrize("name", names())
def test_bad_calls_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of the texts are names of files
    good = subject(name)
    assert set(good.good) <= set(inspect.signature(good.call).parameters) | {"hidden", "epochs", "penalty"}
    assert outcome(lambda: good.call(**good.good), "", 60) == "accepted"
    assert ended_badly(name, EACH) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_all_bad_calls_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ended_badly(name, None) == {}


def test_there_are_many():
    parameters = sum(
        p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        for name in names()
        for p in inspect.signature(subject(name).call).parameters.values()
    )
    assert len(names()) > 240 and parameters > 700 and len(BAD) > 30 and set(BAD) > NEVER


def test_every_public_name_is_tried():
    """What is public and takes arguments has a good call, or a reason why not."""
    public = {name for name in rs.__all__ if callable(getattr(rs, name)) and not _is_error(getattr(rs, name))}
    for room in rs._MODULES:
        module = getattr(rs, room)
        for name in getattr(module, "__all__", ()):
            if callable(getattr(module, name)) and not _is_error(getattr(module, name)) and name not in public:
                public.add(f"{room}.{name}")
    left_out = set().union(*LEFT_OUT.values())
    assert public - set(names()) - left_out == set()
    assert left_out - public - {"inputs.FAR"} == set()  # no reason without a name


OTHERS = {
    "activations.Units": "made by networks",
    "answers._certificates.Certificates.plot": "a picture, with the pictures",
    "batches.record.Batch.read": "tried as a function",
    "batches.record.Batch.report_of": "takes a row of its own batch",
    "batches.record.Batch.save_parquet": "needs pyarrow",
    "cells.regions.Regions.load": "tried as a function",
    "cells.regions.Regions.to_networkx": "needs networkx",
    "inputs._": "laws share the methods of `Law`, which four of them stand for",
    "invariance.families": "steps of `is_invariant`, which checks",
    "invariance.clamped.Distribution": "a protocol for the objects of others",
    "invariance.components.Growth.plot": "a picture",
    "lens.channels": "needs torch",
    "lens.filters": "needs torch",
    "lens.heads": "scores of a detection",
    "lens.logits": "needs torch",
    "lens.models": "needs torch",
    "lens.receptive": "needs torch",
    "lens.streams": "scores of a detection",
    "limits.Limits.check": "called by readers",
    "network.Origin": "made by loaders",
    "local_models.estimators.LocalLinearRegressor": "as its base",
    "local_models.explain.Explanation.plot": "a picture",
    "local_models.inference.Intervals.plot": "a picture",
    "local_models.l1_path.L1Path.plot": "a picture",
    "local_models.merged.Dendrogram": "steps of a merging",
    "local_models.table": "written to files by name",
    "local_models.merged.MergedModels.load": "tried as a function",
    "network.Layer": "made by networks",
    "recovery.samples": "a fit to samples",
    "recovery.surrogate.Surrogate.load": "tried as a function",
    "representation.activity": "counts of a table",
    "events.record.Case": "made by events",
    "reporting.page": "tried as a function",
}
"""Methods that are not tried, by the beginning of their name."""


def test_methods_of_results_are_tried():
    tried = {type(found(owner)).__name__: set(known) for owner, known in METHODS.items()}
    for law in LAWS.values():
        kind = type(law).__name__
        tried[kind] = {n.split(".")[1] for n in OF_CLASSES if n.split(".")[0] in (kind, "Mixture")}
    tried |= {
        owner: {n.split(".")[1] for n in OF_CLASSES if n.startswith(f"{owner}.")} | tried.get(owner, set())
        for owner in ("Network", "Activation", "Column", "Output", "Copula", "Marginal")
    }
    missing = []
    for (module, owner), node in REACHABLE.items():
        for method in public_methods(node):
            arguments = [*method.args.args[1:], *method.args.kwonlyargs]
            place = f"{module.removeprefix('reluscope.')}.{owner}.{method.name}"
            if arguments and method.name not in tried.get(owner, ()) and not place.startswith(tuple(OTHERS)):
                missing.append(place)
    assert missing == []


def _is_error(value):
    return inspect.isclass(value) and issubclass(value, (BaseException, Warning))


def test_a_wrong_kind_is_a_type_error_too():
    for kind in (ValueError, TypeError, rs.InputError):
        with pytest.raises(kind, match="net must be a Network, got NoneType None"):
            rs.along(None, [0.0], [1.0])
    with pytest.raises(rs.InputTypeError, match="level must be a real number, got complex"):
        rs.probability(NET, rs.Gaussian([0.0, 0.0]), "y > 0", level=1j)
    with pytest.raises(rs.InputError, match="must be one of") as caught:
        rs.probability(NET, rs.Gaussian([0.0, 0.0]), "y > 0", guarantee="certain")
    assert not isinstance(caught.value, TypeError)  # text is the right kind


@pytest.mark.parametrize("rng", [-1, 1 << 128, 10**5000, 0.5, True, "0", np.array([1])], ids=range(7))
def test_seeds_have_a_range(rng):
    with pytest.raises(rs.InputError, match="rng must be None, a whole number from 0 to 2"):
        rs.probability(NET, rs.Gaussian([0.0, 0.0]), "y > 0", rng=rng)


def test_answers_are_checked_when_they_are_made():
    for words, change in {
        "value must": {"value": None},
        "lower must": {"lower": "0"},
        "upper must": {"upper": 1j},
        "guarantee must be one of": {"guarantee": "certain"},
        "level must": {"level": 2.0},
        "note must be text": {"note": 3},
        "status must be a Status": {"status": "done"},
        "seed must": {"seed": -1},
        "evaluations must": {"evaluations": 0.5},
    }.items():
        with pytest.raises(rs.InputError, match=words):
            rs.Answer(**{"value": 0.5, "lower": 0.0, "upper": 1.0, "guarantee": "sound", **change})
    many = {"value": [0.5], "lower": [0.0], "upper": [1.0], "guarantee": "sound"}
    assert Answers(**many)[0] == rs.Answer(0.5, 0.0, 1.0, "sound")
    with pytest.raises(rs.InputError, match="one shape"):
        Answers(**{**many, "lower": [0.0, 0.0]})
    for value in (float("nan"), float("inf")):  # nothing is known
        assert "in" in repr(rs.Answer(value, -np.inf, np.inf, "sound", status=Status.BUDGET))


def test_masked_entries_are_not_taken_for_numbers():
    rows = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    with pytest.raises(rs.InputError, match="masked"):
        NET(rows)
    assert NET(np.ma.masked_array([[1.0, 2.0]])).shape == (1, 1)  # nothing is masked
