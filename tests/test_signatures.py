"""One vocabulary: the words that all calls share stand last, in one order, with one default."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from importlib import import_module

import pytest

import reluscope as rs
from reluscope.intervals import DEFAULT_LEVEL
from test_import_graph import MODULES, TREES

ORDER = ("method", "guarantee", "tolerance", "relative", "level", "budget", "jobs", "rng", "progress")
DEFAULTS = {"level": DEFAULT_LEVEL, "budget": None, "jobs": None, "rng": None, "progress": None}
FUNCTIONS = sorted(name for name in rs.__all__ if inspect.isfunction(getattr(rs, name)))
BANNED = {
    "found",
    "made",
    "told",
    "confidence",
    "seed",
    "thing",
    "net1",
    "net2",
    "law_a",
    "law_b",
    "law_or_box",
    "tol",
    "verbose",
    "n_jobs",
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shared_words_stand_last_in_one_order(name):
    parameters = [p for p in inspect.signature(getattr(rs, name)).parameters.values() if p.kind is not p.VAR_KEYWORD]
    words = [p.name for p in parameters]
    shared = [word for word in words if word in ORDER]
    assert words[len(words) - len(shared) :] == shared
    for p in parameters:
        if p.name in ORDER:
            assert p.kind is p.KEYWORD_ONLY, p.name
    assert faults(parameters) == []


def faults(parameters: Sequence[inspect.Parameter]) -> list[str]:
    """What is wrong with the words that all calls share: their order, their defaults; and words that are banned."""
    shared = [p.name for p in parameters if p.name in ORDER and p.kind is p.KEYWORD_ONLY]
    out = [] if shared == sorted(shared, key=ORDER.index) else [f"order {shared}"]
    out += [
        f"{p.name}={p.default!r}"
        for p in parameters
        if p.name in DEFAULTS and p.default is not p.empty and p.default != DEFAULTS[p.name]
    ]
    return out + sorted(BANNED & {p.name for p in parameters})


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


# -- the classes that calls give back ---------------------------------------------------------------------------

DOORS = (
    "reluscope",
    "reluscope.lens",
    "reluscope.invariance",
    "reluscope.plot",
    "reluscope.recovery",
    "reluscope.representation",
    "reluscope.formats",
    "reluscope.measure",
    "reluscope.cells",
)
"""Packages whose public names are where the walk starts."""

SAME_PICTURE = {"plot_local_lines", "plot_instances"}
"""Pictures of a few rows, the same ones each time unless `rng=` says otherwise."""

SUBPACKAGES = [
    pytest.param(getattr(import_module(door), name), id=f"{door.removeprefix('reluscope.')}.{name}")
    for door in DOORS[1:]
    for name in sorted(import_module(door).__all__)
    if inspect.isfunction(getattr(import_module(door), name))
]


@pytest.mark.parametrize("function", SUBPACKAGES)
def test_functions_of_subpackages_have_numpydoc_sections_and_the_same_words(function):
    signature, text = inspect.signature(function), inspect.getdoc(function) or ""
    assert not signature.parameters or "Parameters\n---" in text
    if signature.return_annotation != "None":
        assert "Returns\n---" in text or "Yields\n---" in text
    undescribed = [name for name in signature.parameters if name not in text.partition("Parameters\n---")[2]]
    assert undescribed == []
    expected = ["rng=0"] if function.__name__ in SAME_PICTURE else []
    assert faults(list(signature.parameters.values())) == expected


def test_there_are_subpackages_to_look_at():
    assert len(SUBPACKAGES) > 90


INNER = {
    "ComponentRegions", "ExactMaps", "Factor", "Geometry", "OutputRegions", "Points", "AtomList", "Response", "Rows",
    "Scaling", "Split", "Figure", "Section", "Table",
}  # fmt: skip
"""Records inside of results, for the library itself: their docstrings say it in a sentence."""

DEFINED = {
    module: {n.name: n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    for module, tree in TREES.items()
}
TAKEN = {
    module: {
        a.asname or a.name: (n.module, a.name) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names
    }
    for module, tree in TREES.items()
}


def defined(module: str, name: str) -> tuple[str, str] | None:
    """Where the class or function that a module calls `name` is defined."""
    while module in MODULES:
        if name in DEFINED[module]:
            return module, name
        if name not in TAKEN[module]:
            return None
        module, name = TAKEN[module][name]
    return None


def named(annotation: ast.expr | None) -> Iterator[str]:
    for node in ast.walk(annotation) if annotation else ():
        if isinstance(node, ast.Name):
            yield node.id


def public_fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    fields = [f for f in node.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)]
    return [f for f in fields if not f.target.id.startswith("_")]


def public_methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [f for f in node.body if isinstance(f, ast.FunctionDef) and not f.name.startswith("_")]


def reachable() -> dict[tuple[str, str], ast.ClassDef]:
    """Public classes, and those that public functions, methods and fields give back, as far as annotations say."""
    start = [
        getattr(import_module(door), name) for door in DOORS for name in getattr(import_module(door), "__all__", ())
    ]
    todo = [defined(x.__module__, x.__name__) for x in start if inspect.isclass(x) or inspect.isfunction(x)]
    classes, seen = {}, set()
    while todo:
        place = todo.pop()
        if place is None or place in seen:
            continue
        seen.add(place)
        module, name = place
        node = DEFINED[module][name]
        if isinstance(node, ast.FunctionDef):
            given = [node.returns]
        else:
            given = [
                *node.bases,
                *(f.annotation for f in public_fields(node)),
                *(f.returns for f in public_methods(node)),
            ]
            if not name.startswith("_") and name not in INNER:
                classes[place] = node
        todo += [defined(module, word) for annotation in given for word in named(annotation)]
    return classes


REACHABLE = reachable()


def test_the_walk_finds_the_results():
    names = {name for _, name in REACHABLE}
    assert len(names) > 100 and {"Atoms", "Histogram", "Modal", "Regions", "Coded", "Recording", "Surrogate"} <= names
    every = {name for found in DEFINED.values() for name in found}
    assert every >= INNER


@pytest.mark.parametrize("place", sorted(REACHABLE), ids=lambda p: ".".join(p).removeprefix("reluscope."))
def test_results_and_their_methods_have_numpydoc_sections(place):
    node = REACHABLE[place]
    text = ast.get_docstring(node) or ""
    if public_fields(node):
        assert "Attributes\n---" in text or "Parameters\n---" in text
    lacking = []
    for method in public_methods(node):
        if any(word in ast.unparse(d) for d in method.decorator_list for word in ("property", "overload")):
            continue
        kind = getattr(getattr(import_module(place[0]), place[1]), method.name)
        assert faults(list(inspect.signature(kind).parameters.values())) == [], method.name
        arguments = {a.arg for a in ast.walk(method.args) if isinstance(a, ast.arg)} - {"self", "cls"}
        told = ast.get_docstring(method) or ""
        gives = method.returns is not None and ast.unparse(method.returns) != "None"
        if arguments and ("Parameters\n---" not in told or (gives and "s\n-------\n" not in told)):
            lacking.append(method.name)
    assert lacking == []
