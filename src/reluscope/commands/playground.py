"""`reluscope playground`: a local web page to explore a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, show

_PORT = 8474


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands, "playground", run, "explore a network on a local web page: regions, input distribution, probabilities"
    )
    parser.add_argument("file", nargs="?", type=Path, help="a model file to open (default: a built-in network)")
    parser.add_argument("--port", type=int, help=f"the port (default: {_PORT}, or a free one when it is taken)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")


def run(options: Options) -> int:
    """Serve the page until Ctrl-C."""
    from reluscope._extras import require

    require("starlette", "web")
    require("uvicorn", "web")
    import contextlib
    import sys
    import threading
    import webbrowser

    from reluscope.playground.server import create_app, serve
    from reluscope.playground.session import from_file

    given = None if options.file is None else from_file(options.file, options.file.name)
    listener = _listener(options.host, options.port)
    with listener:
        name = f"[{options.host}]" if ":" in options.host else options.host
        url = f"http://{name}:{listener.getsockname()[1]}/"
        show(options, {"url": url}, f"the playground is at {url} (Ctrl-C ends it)")
        sys.stdout.flush()  # whoever started this in a pipe waits for the address
        if not options.no_browser:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()  # some browsers block
        with contextlib.suppress(KeyboardInterrupt):
            serve([listener], create_app(given, host=options.host))
    return 0


def _listener(host: str, port: int | None) -> Any:
    """A bound socket: at the port asked for, or at the usual one if it is free and at any other if not."""
    import socket

    from reluscope.errors import InputError

    if port is not None and not 0 <= port <= 65535:
        raise InputError(f"--port must be between 0 and 65535, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for choice in (_PORT, 0) if port is None else (port,):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: else the second packet of every answer waits 40 ms for the browser's acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            listener.bind((host, choice))
            listener.listen(64)
        except OSError as error:
            listener.close()
            if choice == 0 or port is not None:
                raise InputError(f"cannot listen on {host}, port {choice}: {error.strerror or error}") from error
        else:
            return listener
    raise AssertionError("the last choice returns or raises")
