"""The playground in a browser: what it shows is read back and compared with the library."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

import reluscope as rs

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from browser import CHROMIUM
from playground_page import choose, open_page, settled, shown_probability, type_event

pytestmark = pytest.mark.skipif(CHROMIUM is None or os.name != "posix", reason="needs Chromium")

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def pixel(browser, across, down):
    """The colour of the picture at shares of its width and height, away from axes."""
    return browser.see(
        f"(() => {{const c = document.querySelector('#canvas'); return "
        f"[...c.getContext('2d').getImageData(c.width * {across}, c.height * {down}, 1, 1).data.slice(0, 3)]}})()"
    )


def place(browser, lower, upper, u):
    """Shares of the canvas at which an input lies (the margins are those of draw.js)."""
    wide, high = browser.see(
        "[document.querySelector('#canvas').clientWidth, document.querySelector('#canvas').clientHeight]"
    )
    x = 58 + (u[0] - lower[0]) / (upper[0] - lower[0]) * (wide - 58 - 12)
    y = 10 + (upper[1] - u[1]) / (upper[1] - lower[1]) * (high - 10 - 46)
    return x / wide, y / high


def first_view(name):
    from reluscope.playground.session import Shelf, first_view

    return first_view(Shelf().example(name))


def test_it_shows_the_numbers_of_the_library(browser):
    open_page(browser)
    built_in = rs.example("moons")
    answer = rs.probability(built_in.network, built_in.law, "y[0] > 0")
    assert shown_probability(browser) == f"{answer.value:.6g}"
    assert browser.text("#probability .badge") == "exact"
    assert f"{len(rs.regions(built_in.network, box_of('moons'), progress=None))} regions in view" in browser.text(
        "#regions"
    )
    held = rs.linear_models(built_in.network, built_in.law).support_size
    assert f"The inputs lie in {held} regions" in browser.text("#regions")
    assert not browser.problems


def box_of(name):
    view = first_view(name)
    return view.lower, view.upper


def test_dragging_the_handle_moves_the_law(browser):
    open_page(browser)
    x, y = browser.place("#handle")
    browser.mouse("mousePressed", x, y, 1)
    for k in range(1, 9):
        browser.mouse("mouseMoved", x + 12 * k, y - 6 * k, 1)
        time.sleep(0.02)
    browser.mouse("mouseReleased", x + 96, y - 48)
    settled(browser)
    scope: dict = {}
    code = browser.text("#python")
    assert "law = law.move(mean=" in code  # the mixture moves, it is not replaced
    exec(compile(code, "page.py", "exec"), scope)
    assert shown_probability(browser) == f"{scope['answer'].value:.6g}"
    assert repr(scope["law"]) == repr(rs.example("moons").law)
    mean, begin = scope["law"].mean, rs.example("moons").law.mean
    assert mean[0] > begin[0] + 0.1
    assert mean[1] > begin[1] + 0.1
    assert not browser.problems


def test_arrow_keys_move_the_law_and_the_result_is_spoken(browser):
    open_page(browser)
    before = browser.see("document.querySelector('#at-0') && Number(document.querySelector('#at-0').value)")
    browser.see("document.querySelector('#handle').focus()")
    for _ in range(3):
        browser.press("ArrowLeft")
    settled(browser)
    after = browser.see("Number(document.querySelector('#at-0').value)")
    view = first_view("moons")
    assert after == pytest.approx(before - 3 * 0.02 * (view.upper[0] - view.lower[0]), rel=1e-3)
    browser.press("Enter")
    browser.until("!document.querySelector('#point').hidden && document.querySelector('#point table')")
    assert f"x[0] = {after:.4g}" in browser.text("#point-body").replace("−", "-")
    assert browser.text("#spoken").startswith("Probability ")
    assert shown_probability(browser) in browser.text("#spoken")


def test_a_click_says_what_the_network_does_there(browser):
    open_page(browser)
    view = first_view("moons")
    spot = np.array([1.5, -0.6])
    browser.click("#canvas", *place(browser, view.lower, view.upper, spot))
    browser.until("!document.querySelector('#point').hidden && document.querySelector('#point table')")
    text = browser.text("#point-body").replace("−", "-")
    net = rs.example("moons").network
    value = float(text.split("y[0] = ")[1].split("Probability")[0])
    assert value == pytest.approx(net(spot)[0], abs=0.2)  # a pixel is about 0.01 wide, slopes are below 20
    near = net.local([spot]).C[0, 0]
    cells = browser.see("[...document.querySelectorAll('#point td.n')].map(e => e.textContent)")
    shown = [float(c.replace("−", "-")) for c in cells]
    np.testing.assert_allclose(shown[1:], near, rtol=1e-5)
    assert "of 4 units on" in text


def test_colours_are_those_of_the_outputs(browser):
    from reluscope.reporting.charts import CATEGORIES

    open_page(browser, "controller")
    type_event(browser, "y[0] > 1e9")  # no stripes
    view = first_view("controller")
    net = view.net
    assert browser.see("document.querySelector('#colour').value") == "smallest"
    rng = np.random.default_rng(0)
    right = total = 0
    for u in rng.uniform(view.lower, view.upper, (60, 2)):
        y = np.sort(net(view.input_at(u)))
        if y[1] - y[0] < 0.01:  # too near to where the winner changes
            continue
        found = pixel(browser, *place(browser, view.lower, view.upper, u))
        winner = CATEGORIES[int(np.argmin(net(view.input_at(u))))]
        right += int(np.abs(np.subtract(found, winner.astype(int))).max() <= 3)
        total += 1
    assert total > 30
    assert right >= 0.8 * total  # the others lie on edges, ellipses, the handle or the limit


def test_values_are_drawn_as_exact_gradients(browser):
    from reluscope.reporting.charts import diverging

    open_page(browser)
    type_event(browser, "y[0] > 1e9")  # no stripes
    view = first_view("moons")
    regions = rs.regions(view.net, (view.lower, view.upper), progress=None)
    top = max(float(np.abs(view.net(regions.vertices(i))).max()) for i in range(len(regions)))
    rng = np.random.default_rng(1)
    right = 0
    for u in rng.uniform(view.lower, view.upper, (60, 2)):
        wanted = diverging(np.array([view.net(u)[0], top]))[0].astype(int)
        found = pixel(browser, *place(browser, view.lower, view.upper, u))
        right += int(np.abs(np.subtract(found, wanted)).max() <= 6)
    assert right >= 45


def test_a_wrong_event_is_told_beside_the_box(browser):
    open_page(browser)
    type_event(browser, "y[0] >> 1")
    assert "not expected" in browser.text("#event-error")
    assert browser.see("document.querySelector('#event').getAttribute('aria-invalid')") == "true"
    # The caret stands under the place, in a font in which all characters are equally wide.
    line, caret = browser.text("#event-error pre").split("\n")
    assert line == "y[0] >> 1"
    assert caret.index("^") == 6
    wide = browser.see(
        "(() => {const c = document.createElement('canvas').getContext('2d'); c.font = getComputedStyle("
        "document.querySelector('#event-error pre')).font; return ['iii', 'WWW'].map(t => c.measureText(t).width)})()"
    )
    assert wide[0] == wide[1]
    type_event(browser, "y[0] > 1")
    assert browser.see("document.querySelector('#event-error').hidden")
    built_in = rs.example("moons")
    answer = rs.probability(built_in.network, built_in.law, "y[0] > 1")
    assert shown_probability(browser) == f"{answer.value:.6g}"
    assert not browser.problems


def test_names_from_files_are_harmless(browser, tmp_path):
    open_page(browser)
    rng = np.random.default_rng(2)
    net = rs.Network([(rng.normal(size=(5, 3)), rng.normal(size=5)), (rng.normal(size=(2, 5)), [0.0, 0.0])], name=EVIL)
    net.save(tmp_path / "net.npz")
    name = f"{EVIL.replace('/', '')}.npz"
    (tmp_path / "net.npz").rename(tmp_path / name)
    document = browser.ask("DOM.getDocument")["root"]["nodeId"]
    node = browser.ask("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
    browser.ask("DOM.setFileInputFiles", nodeId=node, files=[str(tmp_path / name)])
    browser.until(f"document.querySelector('#title').textContent === {name!r}")
    settled(browser)
    browser.see("document.querySelector('#event').value = '<script>alert(3)</script>'")
    browser.see("document.querySelector('#event').dispatchEvent(new Event('change'))")
    browser.until("!document.querySelector('#event-error').hidden")
    assert browser.see("document.querySelectorAll('body script, body img').length") == 0
    assert not browser.problems


@pytest.mark.parametrize(
    ("width", "name"), [(1280, "moons"), (1280, "cocircles"), (390, "controller"), (390, "digits")]
)
def test_nothing_is_too_wide(browser, width, name):
    open_page(browser, name, width=width, height=844)
    assert browser.see("document.documentElement.scrollWidth") <= width
    wide = browser.see(
        "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 "
        "&& !e.closest('.scroll, .rows, pre, .unseen')).map(e => e.id || e.className || e.tagName)"
    )
    assert wide == []
    cut = "[...document.querySelectorAll('#sliders input[type=number]')].filter(e => e.scrollWidth > e.clientWidth)"
    assert browser.see(f"{cut}.map(e => e.value)") == []  # numbers are seen whole


def test_controls_have_names(browser):
    open_page(browser, "controller")
    browser.see("document.querySelector('#others').open = true")
    time.sleep(0.2)
    nameless = browser.see(
        "[...document.querySelectorAll('button, select, input, canvas')].filter(e => !(e.getAttribute('aria-label') "
        "|| e.textContent.trim() && e.tagName === 'BUTTON' || e.labels?.length)).map(e => e.outerHTML)"
    )
    assert nameless == []


@pytest.mark.parametrize(
    ("bracket", "shown"),
    [
        ((0.081064, 0.0842134, 0.0881351), "0.0842 in [0.08106, 0.08814]"),
        ((-0.64432, -0.64, -0.63411), "−0.64 in [−0.6444, −0.6341]"),
        ((0.0, 0.0011, 0.0123), "0.0011 in [0, 0.013]"),
        ((0.5 - 1e-14, 0.5, 0.5 + 1e-14), "0.5 ± 1e−14"),
    ],
)
def test_numbers_have_the_digits_that_their_intervals_support(browser, bracket, shown):
    open_page(browser)
    lower, value, upper = bracket
    a = f"{{lower: {lower!r}, value: {value!r}, upper: {upper!r}}}"
    assert browser.see(f"import('./dom.js').then(m => `${{m.value({a})}} ${{m.interval({a})}}`)") == shown


def test_hasty_changes_end_at_the_last(browser):
    open_page(browser)
    # the first answer comes last
    browser.see(
        "(() => {const real = fetch; window.fetch = async (...a) => {const found = await real(...a);"
        "if (String(a[1].body).includes('example-digits')) await new Promise(done => setTimeout(done, 700));"
        "return found}})()"
    )
    for name in ("digits", "controller", "cocircles"):
        choose(browser, "network", f"example-{name}")
    browser.until("document.querySelector('#title').textContent === 'cocircles'")
    time.sleep(1.0)
    settled(browser)
    assert browser.text("#title") == "cocircles"
    built_in = rs.example("cocircles")
    answer = rs.probability(built_in.network, built_in.law, "y[0] > 0")
    assert shown_probability(browser) == f"{answer.value:.6g}"
    assert not browser.problems
