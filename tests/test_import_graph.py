"""Imports go one way: up the layers, through the doors of rooms, never in circles.

Read from the sources, not by running. Lazy imports and those for type checkers count like any other.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from reluscope._doors import DOORS, door

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"

LAYERS = (
    "errors limits intervals activations answer budget pace progress threads workers "
    "schema _check _kernels _lean _columns _text _tables _files _json _npy _extras _lazy _doors _version",
    "network",
    "algebra loops",
    "events inputs formats",
    "cells",
    "measure",
    "answers",
    "local_models representation recovery invariance lens",
    "batches plot reporting playground reproduce examples demo commands cli",
)
LAYER = {name: i for i, names in enumerate(LAYERS) for name in names.split()}

STRANGERS = (3, 7)
"""Layers whose members know nothing of one another, but for these."""
ACQUAINTED = {("formats", "events"), ("events", "inputs")}

ROOMS = {
    "exactness": "",
    "normal": "",
    "simd": "",
    "exact": "normal",
    "checkpoint": "",
    "polytope": "checkpoint simd",
    "regions": "exactness checkpoint exact polytope",
    "shared": "normal simd exact polytope",
    "points": "shared normal simd",
    "lines": "points shared",
    "rare": "shared",
    "sound": "checkpoint simd normal",
}
"""The rooms of `measure`, and the rooms that each may use."""

BEHIND_DOORS = (
    "reluscope.events",
    "reluscope.inputs",
    *(f"reluscope.measure.{room}" for room in ROOMS if room not in ("exactness", "normal", "checkpoint")),
)
"""Packages that others import from as a whole, never from the modules inside."""

BY_NAME = {"reluscope._doors", "reluscope._extras", "reluscope._lazy", "reluscope.reproduce"}
"""Modules that import by name: the doors, packages that may be missing, public names, experiments."""

_CONVENIENCES = {
    "inputs._law": "_condition _gaussian _law_check _plain",
    "inputs._gaussian": "_truncated",
    "inputs._mixture": "_mixed",
    "cells.complex": "level_set",
    "cells.regions": "facets folder storage",
    "answers.outputs": "_by_lines",
    "local_models.merged": "_storage clusters export flatten",
    "local_models.unwrap": "contributions coverage evaluate explain flatten importance inference merge merged "
    "outcome portrait reasons table",
}
CONVENIENCES = {
    (f"reluscope.{module}", f"reluscope.{module.split('.')[0]}.{name}")
    for module, names in _CONVENIENCES.items()
    for name in names.split()
}
"""Methods that lead to a sibling which knows the class, (module, sibling): the only circles, each inside a package."""


class Edge(NamedTuple):
    source: str
    target: str
    line: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line} -> {self.target}"


def modules(top: Path = SOURCES) -> dict[str, Path]:
    found = {}
    for path in top.rglob("*.py"):
        parts = path.relative_to(top).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def public(package: str) -> set[str]:
    """The names in a package's `__all__`."""
    for node in TREES[package].body:
        if isinstance(node, ast.Assign) and [t.id for t in node.targets if isinstance(t, ast.Name)] == ["__all__"]:
            return set(ast.literal_eval(node.value))
    return set()


def imported(source: str, tree: ast.Module, doors: dict[str, set[str]]) -> Iterator[Edge]:
    """What a module imports of the package: the module that holds the name, or the package whose door does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [
                name if name in MODULES and alias.name not in doors.get(node.module, ()) else node.module
                for name, alias in zip(inside, node.names, strict=True)
            ]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module":
            assert source in BY_NAME, f"{source}:{node.lineno} imports by name; use reluscope._doors"
            names = []
        else:
            continue
        for name in names:
            if name.split(".")[0] == "reluscope":
                yield Edge(source, name, node.lineno)


def graph() -> list[Edge]:
    doors = {name: public(name) for name in BEHIND_DOORS}
    edges = []
    for source, tree in sorted(TREES.items()):
        edges += imported(source, tree, doors)
    return edges


EDGES = graph()


def member(module: str) -> str:
    """The part of the package that a module belongs to: `reluscope.cells.domain` to `cells`."""
    return module.split(".")[1] if "." in module else "reluscope"


def room(module: str) -> str:
    return module.split(".")[2] if module.count(".") > 1 else ""


def test_every_module_has_a_layer():
    assert {member(m) for m in MODULES} - {"reluscope", "__main__"} == set(LAYER)


def test_names_that_start_with_an_underscore_stay_in_their_module():
    taken = [
        f"{source}:{node.lineno} takes {alias.name} of {node.module}"
        for source, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("reluscope")
        for alias in node.names
        if alias.name.startswith("_") and alias.name != "__version__" and f"{node.module}.{alias.name}" not in MODULES
    ]
    assert taken == []


OF_TUPLES = {"_make", "_fields", "_replace", "_asdict"}


def test_attributes_that_start_with_an_underscore_stay_in_their_package():
    """`thing._part` is used only in a package that defines a `_part`: others ask a function of that package."""
    defined: dict[str, set[str]] = {member(m): set() for m in MODULES}
    used: list[tuple[str, str, int]] = []
    for source, tree in TREES.items():
        mine = defined[member(source)]
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                mine.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                mine.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                mine.add(node.attr)
            elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                used.append((source, node.attr, node.lineno))
    ours = set().union(*defined.values()) - OF_TUPLES
    assert len(used) > 1000
    assert [f"{s}:{line} {name}" for s, name, line in used if name in ours - defined[member(s)]] == []


def test_imports_go_up_the_layers():
    def wrong(edge: Edge) -> bool:
        source, target = member(edge.source), member(edge.target)
        if source in (target, "reluscope", "__main__"):
            return False
        if target == "reluscope" or LAYER[target] > LAYER[source]:
            return True
        same = LAYER[target] == LAYER[source]
        return same and LAYER[source] in STRANGERS and (source, target) not in ACQUAINTED

    assert [str(e) for e in EDGES if wrong(e)] == []


def test_rooms_are_entered_through_their_doors():
    def past(edge: Edge) -> bool:
        return any(
            edge.target.startswith(f"{door}.") and not f"{edge.source}.".startswith(f"{door}.") for door in BEHIND_DOORS
        )

    assert [str(e) for e in EDGES if past(e)] == []


def test_rooms_of_measure_use_only_the_rooms_before_them():
    here = {room(m) for m in MODULES if m.startswith("reluscope.measure.")}
    assert here == set(ROOMS)

    def wrong(edge: Edge) -> bool:
        if not edge.source.startswith("reluscope.measure.") or not edge.target.startswith("reluscope.measure"):
            return False
        return room(edge.target) not in (room(edge.source), *ROOMS[room(edge.source)].split())

    assert [str(e) for e in EDGES if wrong(e)] == []


def test_doors_say_what_they_are_for_and_hold_what_they_name():
    for name in BEHIND_DOORS:
        package = import_module(name)
        first = (package.__doc__ or "").split("\n")[0]
        assert first.endswith(".") and len(first) > 20, name
        assert package.__all__ and len(set(package.__all__)) == len(package.__all__)
        assert all(hasattr(package, n) and not n.startswith("_") for n in package.__all__), name
        modules_inside = {m.rsplit(".", 1)[1] for m in MODULES if m.startswith(f"{name}.")}
        told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^- (.*?):", package.__doc__, re.M))))
        assert modules_inside == told, f"{name}: the map must list its modules"


def test_no_circles():
    """Strongly connected modules, after Tarjan, over all edges but those of the conveniences."""
    near: dict[str, set[str]] = {m: set() for m in MODULES}
    for edge in EDGES:
        if edge.target in MODULES and edge.target != edge.source and edge[:2] not in CONVENIENCES:
            near[edge.source].add(edge.target)
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in sorted(near[module]):
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            circle = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(circle) > 1:
                circles.append(sorted(circle))

    for module in MODULES:
        if module not in number:
            visit(module)
    assert circles == []


def test_conveniences_exist_and_stay_inside_their_packages():
    assert {edge[:2] for edge in EDGES} >= CONVENIENCES
    assert all(member(source) == member(target) for source, target in CONVENIENCES)


@pytest.mark.parametrize("method", DOORS)
def test_convenience_methods_lead_to_functions(method):
    """The methods that may reach down the layers: each is a method of a class in the package, and asks for its door."""
    name, function = method.split(".")
    assert callable(door(method))
    (home,) = (m for m, path in MODULES.items() if f'door("{method}")' in path.read_text())
    assert callable(getattr(getattr(import_module(home), name), function))
    target = DOORS[method].split(":")[0]
    later = LAYER[member(target)] > LAYER[member(home)]
    assert later or (member(target), member(home)) in ACQUAINTED, "a plain import would do"


def test_the_layers_convict():
    """The rules above can fail: each of these lines breaks one."""
    doors = {name: public(name) for name in BEHIND_DOORS}
    text = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from reluscope.plot.regions import plot_regions
def f():
    from reluscope.measure.lines.pilot import make_plans
    from reluscope.measure import lines
    import reluscope.answers.outputs
"""
    targets = [edge.target for edge in imported("reluscope.cells.regions", ast.parse(text), doors)]
    assert sorted(targets) == [
        "reluscope.answers.outputs",
        "reluscope.measure.lines",
        "reluscope.measure.lines.pilot",
        "reluscope.plot.regions",
    ]
    with pytest.raises(AssertionError, match="imports by name"):
        list(imported("reluscope.cells.regions", ast.parse("import_module('reluscope.plot')"), doors))


# -- what is installed with the package --------------------------------------------------------------------------

IMPORT_NAME = {"scikit-learn": "sklearn", "dask": "distributed"}
NEVER_INSTALLED = {"keras", "onnxruntime", "PIL", "llvmlite", "reluscope"}
"""Imported where users have them; llvmlite comes with numba."""


def declared() -> dict[str, set[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    for extra in ("all", "dev", "test", "bench", "docs", "models"):  # models: made by them, passed to us
        groups.pop(extra, None)
    names = {k: {re.split(r"[^\w.-]", d, maxsplit=1)[0] for d in group} for k, group in groups.items()}
    return {k: {IMPORT_NAME.get(n, n) for n in group} for k, group in names.items()}


def third_party() -> set[str]:
    """Packages that the sources import, by statement or through `require` or `late`."""
    found = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("require", "late"):
                found |= {a.value.split(".")[0] for a in node.args[:1] if isinstance(a, ast.Constant)}
    return found - set(sys.stdlib_module_names)


def test_every_declared_dependency_is_imported():
    imports = third_party()
    unused = {group: names - imports for group, names in declared().items()}
    assert {group: names for group, names in unused.items() if names} == {}


def test_every_import_is_declared():
    assert third_party() - set().union(*declared().values()) <= NEVER_INSTALLED


# -- the page about it -------------------------------------------------------------------------------------------


def test_the_architecture_page_names_what_is_there():
    page = (ROOT / "docs" / "architecture.md").read_text()
    layers, rooms = (page.split(f"## {title}\n")[1].split("\n## ")[0] for title in ("Layers", "Rooms of `measure`"))
    named = set(re.findall(r"`(\w+)`", layers))
    assert {name for name in LAYER if not name.startswith("_")} <= named
    rows = dict(re.findall(r"^\| `(\w+)(?:\.py)?` \|.*\|(.*)\|$", rooms, re.M))
    uses = {room: set(re.findall(r"`(\w+)`", cell)) for room, cell in rows.items()}
    assert uses == {room: set(allowed.split()) for room, allowed in ROOMS.items()}
    modules_inside = {
        path.name for package in ("cells", "answers") for path in (SOURCES / "reluscope" / package).glob("*.py")
    }
    unnamed = sorted(modules_inside - {"__init__.py"} - set(re.findall(r"\w+\.py", page)))
    assert unnamed == [], 'a new module of cells or answers has its line in "Inside the packages" of the page'
    files = set(re.findall(r"(?<![\w/])((?:\w+/)+\w+\.py)", page))
    assert [f for f in sorted(files) if not (SOURCES / "reluscope" / f).exists() and not (ROOT / f).exists()] == []
