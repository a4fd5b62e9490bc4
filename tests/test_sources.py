"""docs/sources.md: every item of the documents, and nothing on the page that does not exist."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import reluscope as rs
from reluscope import commands
from reluscope.reproduce import NAMES

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "sources.md"
COMMANDS = {path.stem for path in Path(commands.__file__).parent.glob("[a-z]*.py")}


def items():
    lines = PAGE.read_text(encoding="utf-8").partition("## Printed numbers")[0].splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| item")]
    return [[cell.strip() for cell in row.strip().strip("|").split(" | ")] for row in rows]


def test_the_page_has_every_item_with_five_cells():
    found = items()
    assert len(found) >= 138
    assert len({(item, what) for item, what, *_ in found}) == len(found)
    for row in found:
        assert len(row) == 5
        if not row[3]:  # without a test it must say so
            assert "not here" in row[4], row


@pytest.mark.parametrize("row", items(), ids=lambda row: row[0])
def test_names_tests_and_commands_exist(row):
    _, _, where, test, remark = row
    if where:
        _resolve(where.strip("`"))
    if test:
        file, _, name = test.strip("`").partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in names if name else any(n.startswith("test_") for n in names)
    for command in re.findall(r"`([^`]+)`", remark):
        if command.startswith("rs."):
            _resolve(command)
            continue
        first, *rest = command.split()
        assert first in COMMANDS
        assert first != "reproduce" or rest[0] in NAMES


def _resolve(name):
    if name.startswith("reluscope."):
        importlib.import_module(name)
        return
    out = rs
    for word in name.split(".")[1:]:
        out = getattr(out, word)
