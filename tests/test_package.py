"""What the package promises as a whole: quick to import, no fast-math, no pickle, no doubled names."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import reluscope

SOURCE = Path(reluscope.__file__).parent
HEAVY = ("scipy", "numba", "sklearn", "onnx", "torch", "matplotlib", "pandas", "highspy", "numpy")


@pytest.mark.parametrize("command", ["import reluscope", "import reluscope.cli; reluscope.cli._parser()"])
def test_import_leaves_heavy_packages_alone(command):
    code = f"{command}; import sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves():
    for name in reluscope.__all__:
        assert getattr(reluscope, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        reluscope.nonsense


@pytest.mark.parametrize("package", ["reluscope", "reluscope.lens"])
def test_names_for_type_checkers_are_the_public_list(package):
    module = import_module(package)
    tree = ast.parse(Path(module.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {}
    for line in block.body:
        assert isinstance(line, ast.ImportFrom)
        typed |= {alias.asname: line.module for alias in line.names}
    modules = dict.fromkeys(getattr(module, "_MODULES", ()), package)
    assert typed == modules | {name: f"{package}.{home}" for name, home in module._HOME.items()}


def test_every_sub_package_opens_its_door():
    for package in reluscope._MODULES:
        door = getattr(reluscope, package)
        assert door.__doc__ and door.__all__, package
        for name in door.__all__:
            assert getattr(door, name) is not None
        with pytest.raises(AttributeError, match="nonsense"):
            door.nonsense


def test_public_functions_do_not_share_a_name_with_a_sub_package():
    packages = {p.name for p in SOURCE.iterdir() if p.is_dir()} | {p.stem for p in SOURCE.glob("*.py")}
    assert not packages & set(reluscope.__all__) - {"__version__"}


@pytest.mark.parametrize(
    "banned",
    [
        r"fastmath\s*=\s*True",
        r"allow_pickle\s*=\s*True",
        r"\bpickle\.(loads?|dumps?|Unpickler|Pickler)\b",
        r"weights_only\s*=\s*False",
    ],
)
def test_source_never_says(banned):
    guilty = [str(p) for p in SOURCE.rglob("*.py") if re.search(banned, p.read_text())]
    assert not guilty
