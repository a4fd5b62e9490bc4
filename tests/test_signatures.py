"""One vocabulary: the words that all calls share stand last, in one order, with one default."""

from __future__ import annotations

import inspect

import pytest

import reluscope as rs
from reluscope.intervals import DEFAULT_LEVEL

ORDER = ("method", "guarantee", "tolerance", "relative", "level", "budget", "rng", "progress")
DEFAULTS = {"level": DEFAULT_LEVEL, "budget": None, "rng": None, "progress": None}
FUNCTIONS = sorted(name for name in rs.__all__ if inspect.isfunction(getattr(rs, name)))
BANNED = {"confidence", "seed", "thing", "net1", "net2", "law_a", "law_b", "law_or_box", "tol", "verbose", "n_jobs"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shared_words_stand_last_in_one_order(name):
    parameters = [p for p in inspect.signature(getattr(rs, name)).parameters.values() if p.kind is not p.VAR_KEYWORD]
    words = [p.name for p in parameters]
    shared = [word for word in words if word in ORDER]
    assert shared == sorted(shared, key=ORDER.index)
    assert words[len(words) - len(shared) :] == shared
    for p in parameters:
        if p.name in ORDER:
            assert p.kind is p.KEYWORD_ONLY, p.name
        if p.name in DEFAULTS:
            assert p.default == DEFAULTS[p.name], p.name
    assert not BANNED & set(words)


def test_there_are_functions_to_look_at():
    assert len(FUNCTIONS) > 20 and {"probability", "regions", "unwrap"} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", sorted(set(rs.__all__) - {"__version__"}))
def test_public_names_have_numpydoc_sections(name):
    public = getattr(rs, name)
    text = inspect.getdoc(public) or ""
    if inspect.isclass(public) and issubclass(public, BaseException):
        assert text
    elif inspect.isclass(public):
        assert ("Parameters" in text or "Attributes" in text) and "Examples\n---" in text
    else:
        assert "Parameters\n---" in text and ("Returns\n---" in text or "Yields\n---" in text)
        assert "Raises\n---" in text and "Examples\n---" in text
