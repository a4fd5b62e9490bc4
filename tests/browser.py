"""A headless Chromium that is told what to do over a pair of pipes (messages of JSON that end in a zero byte)."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe"
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
    def __init__(self, profile, site):
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
        self.rest, self.number, self.session = b"", 0, None
        self.problems, self.requests, self.site = [], [], site
        found = self.ask("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in found if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
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
            self._note(answer)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def _note(self, answer):
        kind, params = answer.get("method"), answer.get("params", {})
        if kind == "Runtime.exceptionThrown" or params.get("entry", {}).get("level") == "error":
            self.problems.append(params)
        if kind == "Page.javascriptDialogOpening":
            self.problems.append(params)
        if kind == "Network.requestWillBeSent":
            url = params["request"]["url"]
            self.requests.append(url)
            if not url.startswith((self.site, "data:", "about:")):
                self.problems.append(url)

    def see(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression, seconds=30.0):
        end = time.monotonic() + seconds
        while not self.see(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression} stayed false; problems: {self.problems}")
            time.sleep(0.03)

    def size(self, width, height, *, dark=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)

    def place(self, selector, across=0.5, down=0.5):
        box = self.see(
            f"(() => {{const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
            "const r = e.getBoundingClientRect(); return [r.left, r.top, r.width, r.height]})()"
        )
        return box[0] + across * box[2], box[1] + down * box[3]

    def mouse(self, kind, x, y, buttons=0):
        button = "left" if kind != "mouseMoved" or buttons else "none"
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=1)

    def click(self, selector, across=0.5, down=0.5):
        x, y = self.place(selector, across, down)
        self.mouse("mousePressed", x, y, 1)
        self.mouse("mouseReleased", x, y)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def text(self, selector):
        return self.see(f"document.querySelector({selector!r}).textContent")

    def screenshot(self, path, *, whole=False):
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        os.close(self.out)
        os.close(self.back)
        self.process.terminate()
        self.process.wait(20)
