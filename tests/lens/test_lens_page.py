"""The page of a study in a browser: a real pointer moves over it, and what it shows is read back. No torch needed."""

from __future__ import annotations

import colorsys
import os

import numpy as np
import pytest

from browser import CHROMIUM, Browser
from reluscope import lens

pytestmark = pytest.mark.skipif(CHROMIUM is None or os.name != "posix", reason="needs Chromium")


class Pages(Browser):
    def open(self, path):
        self.problems.clear()
        self.ask("Page.navigate", url=path.as_uri())
        self.until(
            "document.readyState === 'complete' && location.protocol === 'file:' && typeof sheet !== 'undefined'"
        )
        self.until("!D.sheet || sheet.complete")

    def hover(self, selector, across=0.5, down=0.5):
        self.mouse("mouseMoved", *self.place(selector, across, down))

    def colour(self, selector):
        """The pixel in the middle of a canvas."""
        return self.see(
            f"(() => {{const c = document.querySelector({selector!r});"
            "return [...c.getContext('2d').getImageData(c.width >> 1, c.height >> 1, 1, 1).data.slice(0, 3)]})()"
        )


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Pages(tmp_path_factory.mktemp("profile"), "file:")
    made.size(1280, 900)
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
