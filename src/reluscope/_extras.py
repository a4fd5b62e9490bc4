"""Optional packages, imported when they are needed."""

from __future__ import annotations

from typing import Any

from reluscope._lazy import late
from reluscope.errors import MissingExtraError


def require(module: str, extra: str) -> Any:
    """Import `module`, or say which extra brings it."""
    try:
        return late(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise MissingExtraError(
            f"this needs the package {package!r}; install it with: pip install 'reluscope[{extra}]'"
            if extra != package
            else f"this needs the package {package!r}; install it with: pip install {package}"
        ) from error
