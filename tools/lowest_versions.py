"""Print the lowest version that pyproject.toml allows of every direct dependency, as a pip constraints file.

`python tools/lowest_versions.py test > lowest.txt && pip install -c lowest.txt -e ".[test]"`: the words are the extras
to follow besides the core dependencies. Packages that ours need in turn stay free.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
FLOOR = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[\w,-]+)\])?(?:>=(?P<version>[\w.]+))?")


def lowest(extras: list[str]) -> dict[str, str]:
    """Name and lowest version of each direct dependency of the core and of `extras`."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    waiting, floors = [*project["dependencies"]], {}
    for extra in extras:
        waiting += project["optional-dependencies"][extra]
    while waiting:
        requirement = waiting.pop(0)
        parts = FLOOR.match(requirement)
        if parts is None or parts.end() != len(requirement):
            raise SystemExit(f"pyproject.toml: {requirement!r} is not of the form name>=version")
        if parts["name"] == project["name"]:
            for extra in parts["extras"].split(","):
                waiting += project["optional-dependencies"][extra]
        elif parts["version"] is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} has no lowest version")
        else:
            floors[parts["name"]] = parts["version"]
    return floors


if __name__ == "__main__":
    for name, version in sorted(lowest(sys.argv[1:]).items()):
        print(f"{name}=={version}")
