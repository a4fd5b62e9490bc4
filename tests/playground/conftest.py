"""One server and one browser for all tests of the page."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

import pytest

from browser import Browser


@pytest.fixture(scope="session")
def site():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "reluscope", "playground", "--no-browser", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline() == f"the playground is at http://127.0.0.1:{port}/ (Ctrl-C ends it)\n"
        yield f"http://127.0.0.1:{port}/"
        begin = time.monotonic()
        server.send_signal(signal.SIGINT)  # Ctrl-C, with the browser's connections still open
        out, err = server.communicate(timeout=20)
        assert (server.returncode, out, err) == (0, "", "")
        assert time.monotonic() - begin < 10
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def browser(site, tmp_path_factory):
    made = Browser(tmp_path_factory.mktemp("profile"), site)
    yield made
    made.close()
