"""Every way in for untrusted files, under one name each; and a sandbox that measures what reading one costs.

Run as a script, this file is the sandbox: it imports all readers once, then takes one question per line (JSON) and
answers each from a fresh copy of itself (a fork), with a limit on its memory and an alarm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reluscope.errors import InputError, MissingExtraError
from reluscope.limits import Limits


def _law(path: Path, limits: Limits) -> Any:
    from reluscope.inputs import classes_from_json

    return classes_from_json(path, limits=limits)


def _load(path: Path, limits: Limits) -> Any:
    from reluscope.formats import load

    return load(path, limits=limits)


def _vnnlib(path: Path, limits: Limits) -> Any:
    from reluscope.errors import ReluscopeWarning
    from reluscope.formats.vnnlib import vnnlib

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReluscopeWarning)  # a property that can never happen is read, with a warning
        return vnnlib(path, limits=limits)


def _csv(path: Path, limits: Limits) -> Any:
    from reluscope._tables import read_csv

    return read_csv(path, limits=limits)


def _labelled(path: Path, limits: Limits) -> Any:
    from reluscope._tables import read_csv

    return read_csv(path, target="0", limits=limits)


def _points(path: Path, limits: Limits) -> Any:
    from reluscope.reporting.layers import read_points

    return read_points(path, 2, limits)


def _frames(path: Path, limits: Limits) -> Any:
    from reluscope.lens.frames import load_frames

    return load_frames(path, limits=limits)


def _image(path: Path, limits: Limits) -> Any:
    from reluscope.lens.frames import load_frames

    return load_frames(path.parent, limits=limits)


def _regions(path: Path, limits: Limits) -> Any:
    from reluscope.cells.storage import load_regions

    return load_regions(path, limits)


def _merged(path: Path, limits: Limits) -> Any:
    from reluscope.local_models._storage import load_merged

    return load_merged(path, limits)


def _surrogate(path: Path, limits: Limits) -> Any:
    from reluscope.recovery.surrogate import Surrogate

    return Surrogate.load(path, limits=limits)


def _recording(path: Path, limits: Limits) -> Any:
    from reluscope.lens.attention import load_recording

    return load_recording(path.parent, limits=limits)


def _taps(path: Path, limits: Limits) -> Any:
    from reluscope.lens.onnx_taps import Taps

    return Taps(path, limits=limits)


def _vpt(path: Path, limits: Limits) -> Any:
    from reluscope.lens.vpt import read_model_file

    return read_model_file(path, limits=limits)


def _event(path: Path, limits: Limits) -> Any:
    from reluscope.events import event

    return event(path.read_text("utf-8"), 4, 3, names=["age", "b", "c", "d"], limits=limits)


READERS: dict[str, Callable[[Path, Limits], Any]] = {
    "load": _load,
    "vnnlib": _vnnlib,
    "law": _law,
    "csv": _csv,
    "labelled": _labelled,
    "points": _points,
    "frames": _frames,
    "image": _image,
    "regions": _regions,
    "merged": _merged,
    "surrogate": _surrogate,
    "recording": _recording,
    "taps": _taps,
    "vpt": _vpt,
    "event": _event,
}
"""By name: a function of a path and limits."""


def outcome(reader: str, path: Path, limits: Limits) -> str:
    """`"read"`, or the message of the refusal. Any other error goes through: it is a bug."""
    try:
        READERS[reader](path, limits)
    except (InputError, MissingExtraError) as error:
        assert str(error), "an error without a message"
        assert len(str(error)) < 2000, "a message of thousands of characters"
        return str(error)
    return "read"


# -- the sandbox ---------------------------------------------------------------------------------------------------


class Sandbox:
    """A process that reads files for us, each in a copy of itself."""

    def __init__(self) -> None:
        self.asked = 0
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def read(self, reader: str, path: Path, *, alarm: int = 40, **limits: float) -> dict[str, Any]:
        """What came of reading the file: `said` ("read" or a message), `kind` of error, `seconds`, `megabytes`.

        `kind` is "InputError" and its kin when all is well, another error's name, or "killed" by the alarm.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        self.asked += 1
        question = {"number": self.asked, "reader": reader, "path": str(path), "alarm": alarm, "limits": limits}
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        while True:  # an answer to an earlier question may still come: its test was stopped
            answer: dict[str, Any] = json.loads(self.process.stdout.readline())
            if answer["number"] == self.asked:
                return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()


_MEMORY = 2 << 30
"""Bytes that a copy may take beyond what the sandbox has."""


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    import resource
    import signal

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.alarm(question["alarm"])
    start = time.perf_counter()
    kind, said = "", "read"
    try:
        READERS[question["reader"]](Path(question["path"]), Limits(**question["limits"]))
    except Exception as error:
        kind, said = type(error).__name__, str(error)[:500]
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"kind": kind, "said": said, "seconds": time.perf_counter() - start, "megabytes": taken / 1024}


def _serve() -> None:
    warnings.simplefilter("ignore")
    import PIL.Image

    import reluscope.cells.storage
    import reluscope.events
    import reluscope.formats.onnx
    import reluscope.formats.vnnlib
    import reluscope.lens.attention
    import reluscope.lens.frames
    import reluscope.local_models._storage
    import reluscope.recovery.surrogate
    import reluscope.reporting.layers

    reluscope.formats.onnx._import_onnx()
    PIL.Image.init()
    for line in sys.stdin:
        sys.stdout.flush()
        question = json.loads(line)
        number = {"number": question["number"]}
        child = os.fork()
        if child == 0:
            sys.stdout.write(json.dumps(_answer(question) | number) + "\n")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            killed = {"kind": "killed", "said": f"status {status}", "seconds": 0, "megabytes": 0}
            print(json.dumps(killed | number), flush=True)


if __name__ == "__main__":
    _serve()
