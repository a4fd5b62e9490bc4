"""The page of a study in a browser: a real pointer moves over it, and what it shows is read back. No torch needed."""

from __future__ import annotations

import colorsys
import json
import os
import select
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from reluscope import lens

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None or os.name != "posix", reason="needs Chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1280,900 --remote-debugging-pipe"
)
# The browser reads from descriptor 3 and writes to 4.
LAUNCH = """
import os, sys
ends = [os.dup(int(n)) for n in sys.argv[1:3]]
while min(ends) < 5:
    ends = [os.dup(n) for n in ends]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A headless Chromium that is told what to do over a pair of pipes (messages of JSON that end in a zero byte)."""

    def __init__(self, profile):
        theirs_in, self.out = os.pipe()
        self.back, theirs_out = os.pipe()
        command = [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), CHROMIUM, *FLAGS.split()]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.rest, self.number, self.session, self.problems = b"", 0, None, []
        found = self.ask("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in found if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **values):
        self.number += 1
        message = {"id": self.number, "method": method, "params": values}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            while b"\0" not in self.rest:
                if not select.select([self.back], [], [], max(0.0, end - time.monotonic()))[0]:
                    raise TimeoutError(method)
                part = os.read(self.back, 1 << 20)
                if not part:
                    raise EOFError(f"the browser ended during {method}")
                self.rest += part
            line, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(line)
            kind, level = answer.get("method"), answer.get("params", {}).get("entry", {}).get("level")
            if kind == "Runtime.exceptionThrown" or level == "error":
                self.problems.append(answer["params"])
            if kind == "Network.requestWillBeSent":
                url = answer["params"]["request"]["url"]
                if not url.startswith(("data:", "file:", "about:")):
                    self.problems.append(url)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def see(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path):
        self.problems.clear()
        self.ask("Page.navigate", url=path.as_uri())
        ready = "document.readyState === 'complete' && location.protocol === 'file:' && typeof sheet !== 'undefined'"
        for _ in range(300):
            if self.see(f"{ready} && (!D.sheet || sheet.complete)"):
                return
            time.sleep(0.02)
        raise TimeoutError("the page did not load")

    def place(self, selector, across, down):
        box = self.see(
            f"(() => {{const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
            "const r = e.getBoundingClientRect(); return [r.left, r.top, r.width, r.height]})()"
        )
        return {"x": box[0] + across * box[2], "y": box[1] + down * box[3]}

    def hover(self, selector, across=0.5, down=0.5):
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", **self.place(selector, across, down))

    def click(self, selector):
        where = self.place(selector, 0.5, 0.5)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def colour(self, selector):
        """The pixel in the middle of a canvas."""
        return self.see(
            f"(() => {{const c = document.querySelector({selector!r});"
            "return [...c.getContext('2d').getImageData(c.width >> 1, c.height >> 1, 1, 1).data.slice(0, 3)]})()"
        )

    def text(self, selector):
        return self.see(f"document.querySelector({selector!r}).textContent")

    def close(self):
        os.close(self.out)
        os.close(self.back)
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


STEPS, MEMORY = 60, 32


def colour_of(t):
    """Every frame has a colour of its own."""
    return np.array(colorsys.hsv_to_rgb(t / STEPS, 1, 1 if t % 2 else 0.6)) * 255


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Head 0.0 looks at the previous frame, 0.1 at frame 30 once it is past, 1.0 at the frame itself."""
    weights = np.zeros((STEPS, 3, MEMORY), np.float32)
    for t in range(STEPS):
        weights[t, 0, min(1, t)] = 1
        weights[t, 1, t - 30 if 30 <= t < 30 + MEMORY else 0] = 0.75
        weights[t, 2, 0] = 1
    frames = np.stack([np.broadcast_to(colour_of(t), (48, 48, 3)) for t in range(STEPS)]).round().astype(np.uint8)
    made = lens.Recording(weights, ("0.0", "0.1", "1.0"), "memory")
    path = tmp_path_factory.mktemp("study") / "page.html"
    lens.write_study(path, title="planted", recording=made, frames=frames, patterns=lens.detect_patterns(made))
    return path


def shows(browser, now, seen, percent):
    """The frame at this time and the frame that is looked at: by name and by colour."""
    assert browser.text("#nowcap") == f"frame {now}"
    assert browser.text("#seen div") == f"frame {seen}: {percent} %"
    assert np.abs(np.array(browser.colour("#now")) - colour_of(now)).max() < 25
    assert np.abs(np.array(browser.colour("#seen canvas")) - colour_of(seen)).max() < 25


def test_hovering_shows_the_frame_and_the_attended_frame(browser, page):
    browser.open(page)
    for t in (47, 3, 20, 59):
        browser.hover("#main", (t + 0.5) / STEPS)
        shows(browser, t, t - 1, 100)
    browser.hover("#maximum", 40.5 / STEPS)
    shows(browser, 40, 39, 100)
    browser.click("#grid > div:nth-child(2) > canvas")
    for t in (35, 50):
        browser.hover("#main", (t + 0.5) / STEPS, 0.2)
        shows(browser, t, 30, 75)
    assert browser.text("#seencap") == "head 0.1 looks at"
    browser.press("ArrowRight")
    shows(browser, 51, 30, 75)
    assert browser.problems == []


def test_hovering_over_a_small_plot_chooses_time_too(browser, page):
    browser.open(page)
    browser.hover("#grid > div:nth-child(3) > canvas", 12.5 / STEPS)
    shows(browser, 12, 11, 100)  # still head 0.0: a head is chosen by a click
    assert browser.problems == []


def test_positions_of_a_sequence_have_their_labels(browser, tmp_path):
    weights = np.zeros((4, 1, 4), np.float32)
    weights[np.arange(4), 0, [2, 0, 3, 1]] = 1
    made = lens.Recording(weights, ("0.0",), "sequence", labels=("the", "<b>", "sat", "."))
    lens.write_study(tmp_path / "p.html", title="t", recording=made)
    browser.open(tmp_path / "p.html")
    browser.hover("#main", 0.5, 2.5 / 4)
    assert browser.text("#nowcap") == "position sat"
    assert browser.text("#seen div") == ".: 100 %"
    browser.hover("#main", 0.5, 3.5 / 4)
    assert browser.text("#seen div") == "<b>: 100 %"
    assert browser.problems == []


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_its_window(browser, page, width):
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    try:
        browser.open(page)
        assert browser.see("document.documentElement.scrollWidth") <= width
    finally:
        browser.ask("Emulation.clearDeviceMetricsOverride")
