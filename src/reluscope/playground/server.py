"""The server of the playground: one page, its script and style, and a few questions answered in JSON.

It listens on this machine only (by default), answers to its own name only (so that no other site can reach
it through DNS), takes no questions from other origins, limits what it reads, and lets the page load nothing from
elsewhere.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import secrets
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reluscope._check import describe, integer
from reluscope._version import __version__
from reluscope.errors import InputError, InputLimitError, ReluscopeError, ReluscopeWarning
from reluscope.limits import DEFAULT_LIMITS, Limits
from reluscope.playground import scene
from reluscope.playground.session import Opened, Shelf, View, view
from reluscope.playground.table import MOST_BYTES, with_table
from reluscope.playground.training import SETS, Trainers
from reluscope.playground.worker import BusyError, StaleError, Worker

CLASSES = ([0, 114, 178], [213, 94, 0])
"""Colours of rows by their class: blue and vermilion, which all eyes tell apart."""

_QUESTION_BYTES = 1 << 20
_SECONDS = 20.0
"""How long a question may wait for its answer (compilation on first use included)."""

_LOAD_SECONDS = 120.0
_ENDING = re.compile(r"\.[A-Za-z0-9]{1,12}")

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_SCRIPTS = (
    "answers", "density", "dom", "draw", "drop", "export", "law", "page", "picture", "pointers", "questions", "server",
    "share", "state", "svg", "train",
)  # fmt: skip
_STATIC = {
    "/": ("page.html", "text/html; charset=utf-8"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in _SCRIPTS},
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}

_KINDS: dict[str, Callable[[scene.Scenes, View, dict[str, Any]], dict[str, Any]]] = {
    "picture": lambda scenes, seen, data: scenes.picture(seen),
    "event": lambda scenes, seen, data: scenes.event(seen, data.get("have")),
    "outputs": lambda scenes, seen, data: scenes.outputs(seen),
    "linear_models": lambda scenes, seen, data: scenes.heaviest(seen),
    "point": lambda scenes, seen, data: scenes.point(seen, data.get("point")),
    "code": lambda scenes, seen, data: scenes.code(seen, data.get("methods")),
}


class TooLargeError(Exception):
    """A request holds more than it may."""


class Guard:
    """Refuses requests for other hosts and from other origins, and adds the headers that keep the page to itself."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._names = {"localhost", "127.0.0.1", "::1", host.lower()}
        self._any_address = host in ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(k.lower().encode(), v.encode()) for k, v in _HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        refusal = self._refusal(Request(scope))
        if refusal is not None:
            await _error(refusal, 403)(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)

    def _refusal(self, request: Request) -> str | None:
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return "this server answers to its own address only"
        if request.method in ("GET", "HEAD"):
            return None
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
        if (origin is not None and origin != f"http://{hosts[0]}") or site not in ("same-origin", "none"):
            return "questions from other sites are not answered"
        return None

    def _is_ours(self, host: str) -> bool:
        name = re.sub(r":[0-9]+\Z", "", host).strip("[]").lower()
        return name in self._names or (self._any_address and _is_address(name))


class Playground:
    """The routes. `given` is a network that the page opens with."""

    def __init__(self, given: Opened | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self.shelf = Shelf(given, limits)
        self.scenes = scene.Scenes()
        self.trainers = Trainers()
        self.shelf.trained = self.trainers.find
        self.worker = Worker()
        self.name = secrets.token_hex(8)

    def routes(self) -> list[Route]:
        """All of them."""
        pages = [Route(path, _file(*what), methods=["GET"]) for path, what in _STATIC.items()]
        asked: dict[str, Callable[[Request], Any]] = {
            "start": self.start,
            "ping": self.ping,
            "open": self.open,
            "load": self.load,
        }
        asked |= {"table": self.table, "train": self.train}
        asked |= {kind: self._question(kind) for kind in _KINDS}
        return pages + [Route(f"/api/{name}", _kindly(answer), methods=["POST"]) for name, answer in asked.items()]

    async def ping(self, request: Request) -> bytes:
        """That the server is there, and which one: after a restart its networks are gone."""
        await _question(request)
        return _json({"server": self.name})

    async def start(self, request: Request) -> bytes:
        """The choice of networks and the colours; the kernels are made ready meanwhile."""
        from reluscope.examples import NAMES
        from reluscope.reporting.charts import CATEGORIES, diverging, sequential

        await _question(request)
        given = self.shelf.given
        return _json({
            "version": __version__,
            "examples": list(NAMES),
            "sets": list(SETS),
            "server": self.name,
            "given": None if given is None else {"key": given.key, "title": given.title},
            "limit": self.shelf.limits.file_bytes,
            "categories": CATEGORIES.tolist(),
            "classes": CLASSES,
            "diverging": diverging(np.linspace(-1.0, 1.0, 5)).tolist(),
            "sequential": sequential(np.linspace(0.0, 1.0, 5)).tolist(),
        })  # fmt: skip

    async def open(self, request: Request) -> bytes:
        """A built-in network by name, or an open one by key."""
        data = await _question(request)

        def job() -> bytes:
            found = self.shelf.example(data["example"]) if "example" in data else self.shelf.find(data.get("network"))
            return _json(self.scenes.begin(found))

        return await self.worker.do(job, seconds=_SECONDS)

    async def load(self, request: Request) -> bytes:
        """A network from the bytes of a file; they go to a temporary file that is removed again."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/octet-stream":
            raise InputError("a file must come as application/octet-stream")
        name = Path(request.query_params.get("name", "").replace("\\", "/")).name[:200]
        ending = Path(name).suffix
        if not _ENDING.fullmatch(ending):
            raise InputError(f"the file's name must end in .onnx, .npz, .safetensors, .pt or .pth, got {name!r}")
        with tempfile.TemporaryDirectory(prefix="reluscope-") as folder:
            path = Path(folder) / f"model{ending}"
            await _save(request, path, self.shelf.limits.file_bytes)

            def job() -> bytes:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", ReluscopeWarning)  # the network's notes say what was folded
                        return _json(self.scenes.begin(self.shelf.file(path, name)))
                except ReluscopeError as error:
                    message = str(error).replace(str(path), name).replace(path.name, name)
                    raise InputError(message) from error

            return await self.worker.do(job, seconds=_LOAD_SECONDS)

    async def table(self, request: Request) -> bytes:
        """Rows from the bytes of a CSV file, as data or as a law for an open network."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/octet-stream":
            raise InputError("a file must come as application/octet-stream")
        asked = request.query_params
        name = Path(asked.get("name", "").replace("\\", "/")).name[:200]
        if not name.lower().endswith((".csv", ".txt", ".tsv")):
            raise InputError(f"rows come as a .csv file, got {name!r}")
        limits = replace(self.shelf.limits, file_bytes=min(MOST_BYTES, self.shelf.limits.file_bytes))
        with tempfile.TemporaryDirectory(prefix="reluscope-") as folder:
            path = Path(folder) / "rows.csv"
            await _save(request, path, limits.file_bytes)

            def job() -> bytes:
                try:
                    made = with_table(self.shelf.find(asked.get("network")), path, name, asked.get("as"), limits)
                except ReluscopeError as error:
                    raise InputError(str(error).replace(str(path), name).replace(path.name, name)) from error
                self.shelf.keep(made)
                return _json(self.scenes.begin(made))

            return await self.worker.do(job, seconds=_LOAD_SECONDS)

    async def train(self, request: Request) -> bytes:
        """A few epochs of a small network, and the network they lead to."""
        data = await _question(request)

        def job() -> bytes:
            trainer, opened = self.trainers.go(data)
            found = {"key": opened.key, "state": trainer.state()}
            return _json(found if data.get("trainer") else found | {"opened": self.scenes.begin(opened)})

        return await self.worker.do(job, seconds=_SECONDS)

    def _question(self, kind: str) -> Callable[[Request], Any]:
        async def answer(request: Request) -> bytes:
            data = await _question(request)
            page, turn = data.get("page", ""), integer(data.get("turn", 0), "turn", low=0)
            if not isinstance(page, str) or len(page) > 64:
                raise InputError(f"page must be a short text, got {describe(page)}")

            def job() -> bytes:
                seen = view(self.shelf.find(data.get("network")), data.get("view"))
                return _json(_KINDS[kind](self.scenes, seen, data))

            return await self.worker.do(job, page=page, kind=kind, turn=turn, seconds=_SECONDS)

        return answer


def create_app(given: Opened | None = None, *, host: str = "127.0.0.1", limits: Limits = DEFAULT_LIMITS) -> ASGIApp:
    """The application, guarded; `host` is the name it answers to besides this machine's own."""
    return Guard(Starlette(routes=Playground(given, limits).routes()), host)


def serve(sockets: list[Any], app: ASGIApp) -> None:
    """Serve until Ctrl-C."""
    import uvicorn

    config = uvicorn.Config(
        app, log_level="critical", access_log=False, lifespan="off", ws="none", server_header=False,
        timeout_graceful_shutdown=1, h11_max_incomplete_event_size=1 << 16,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=sockets)


def _file(name: str, kind: str) -> Callable[[Request], Any]:
    content = files("reluscope.playground").joinpath("static", name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, headers={"content-type": kind})

    return answer


def _kindly(answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
    """An endpoint whose errors are one sentence in JSON."""

    async def guarded(request: Request) -> Response:
        try:
            return Response(await answer(request), media_type="application/json")
        except StaleError:
            return _error("a newer question came", 409)
        except BusyError as error:
            return _error(str(error), 503)
        except (InputLimitError, TooLargeError) as error:
            return _error(str(error), 413)
        except ReluscopeError as error:
            return _error(str(error), 400)
        except MemoryError:
            return _error("there is not enough memory for this", 413)
        except ClientDisconnect:
            return _error("the request ended early", 400)
        except Exception as error:
            logging.getLogger("reluscope.playground").exception("a question failed")
            return _error(f"something went wrong inside: {type(error).__name__}", 500)

    return guarded


async def _question(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise InputError("a question must come as application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _QUESTION_BYTES:
            raise TooLargeError(f"a question may have {_QUESTION_BYTES:,} bytes")
    try:
        data = json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise InputError("a question must be a JSON object") from None
    if not isinstance(data, dict):
        raise InputError(f"a question must be a JSON object, got {describe(data)}")
    return data


async def _save(request: Request, path: Path, most: int) -> None:
    """The body, in a file; refused as soon as it is known to be too long."""
    length = request.headers.get("content-length", "")
    limit = TooLargeError(f"the file has more than the limit of {most:,} bytes")
    if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > most):
        raise limit
    size = 0
    with path.open("wb") as file:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise limit
            file.write(part)


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _error(text: str, status: int) -> Response:
    return Response(_json({"error": text}), status_code=status, media_type="application/json")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
