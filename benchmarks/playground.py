"""How far the number lags behind the hand in the playground: from a movement of the handle to a number for that place.

Starts `reluscope playground`, opens it in a headless Chromium (as the tests do), and drags the handle of each built-in
network along a circle, `--rate` movements a second. For each movement: the milliseconds until the page shows the
probability for that place or for a later one. Beside it the processor time of the server for each number shown.
Needs an idle machine: browser and server want a core each.

    .venv/bin/python benchmarks/playground.py --seconds 5
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from browser import Browser
from playground_page import open_page, settled
from reluscope.examples import NAMES

WATCH = """
(async () => {
  const { S } = await import('./state.js');
  const begun = 'moves' in window;
  window.moves = []; window.shown = [];
  if (begun) return;
  document.addEventListener('pointermove', e => moves.push([e.timeStamp, S.view.at.join()]));
  new MutationObserver(() => { if (S.got.event) shown.push([performance.now(), S.got.event.view.at.join()]); })
    .observe(document.getElementById('probability'), { childList: true });
})()
"""


def main() -> None:
    """Print one line for each network."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of dragging, for each network")
    parser.add_argument("--rate", type=float, default=60.0, help="movements a second")
    parser.add_argument("networks", nargs="*", default=list(NAMES))
    options = parser.parse_args()
    command = [sys.executable, "-m", "reluscope", "playground", "--no-browser", "--port", "0"]
    with tempfile.TemporaryDirectory() as profile:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        browser = None
        try:
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found is not None
            browser = Browser(profile, found[0])
            print("network      median ms   90 %   numbers a second   server CPU ms a number")
            for name in options.networks:
                open_page(browser, name)
                drag(browser, 0.5, options.rate)  # compiles, and fills caches
                settled(browser)
                began = _cpu(server.pid)
                moves, shown = drag(browser, options.seconds, options.rate)
                spent = _cpu(server.pid) - began
                lag = lags(moves, shown)
                middle, late = np.quantile(lag, [0.5, 0.9])
                each = 1e3 * spent / max(len(shown), 1)
                print(
                    f"{name:12s} {middle:9.0f} {late:6.0f} {len(shown) / options.seconds:18.1f} {each:24.0f}",
                    flush=True,
                )
                settled(browser)
        finally:
            if browser is not None:
                browser.close()
            server.terminate()
            server.wait(20)


def drag(browser: Browser, seconds: float, rate: float) -> tuple[list, list]:
    """Hold the handle and go round in a circle; the movements, and the numbers shown, each with its time and place."""
    browser.see(WATCH)
    x, y = browser.place("#handle")
    browser.mouse("mouseMoved", x, y)
    browser.mouse("mousePressed", x, y, 1)
    begin = time.monotonic()
    step = 0
    while (now := time.monotonic() - begin) < seconds:
        turn = 1.3 * now
        browser.mouse("mouseMoved", x + 60 * math.sin(turn), y + 60 * (1 - math.cos(turn)), 1)
        step += 1
        time.sleep(max(0.0, step / rate - (time.monotonic() - begin)))
    moves, shown = browser.see("[moves, shown]")
    browser.mouse("mouseReleased", x, y)
    return moves, shown


def lags(moves: list, shown: list) -> list[float]:
    """For each movement, the milliseconds until a number for that place, or a later one, is there."""
    order = {place: k for k, (_, place) in enumerate(moves)}
    answered = [(when, order[place]) for when, place in shown if place in order]
    out = []
    for k, (moved, _) in enumerate(moves):
        later = [when for when, at in answered if at >= k and when >= moved]
        if later:
            out.append(min(later) - moved)
    return out


def _cpu(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100.0


if __name__ == "__main__":
    main()
