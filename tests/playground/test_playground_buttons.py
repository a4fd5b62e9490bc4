"""Buttons, menus and boxes of the playground that the other files leave out; every control is tried somewhere."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

import reluscope as rs

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from browser import CHROMIUM
from playground_page import choose, drop, open_page, run_python, settled, shown_probability, type_event, view_of

pytestmark = pytest.mark.skipif(CHROMIUM is None or os.name != "posix", reason="needs Chromium")

HERE = Path(__file__).resolve().parent


def test_every_control_is_tried_by_some_test():
    page = HERE.parents[1] / "src" / "reluscope" / "playground" / "static" / "page.html"
    controls = re.findall(r'<(?:button|select|input|canvas|summary)\b[^>]*\bid="([\w-]+)"', page.read_text("utf-8"))
    assert len(controls) > 30
    tests = "".join(file.read_text("utf-8") for file in HERE.glob("test_*.py"))
    assert [c for c in controls if not re.search(rf"[\"'#]{c}[\"' ,)\]]", tests)] == []


def span(state):
    return np.subtract(state["upper"], state["lower"])


def test_start_again_forgets_what_was_changed(browser):
    open_page(browser)
    before = shown_probability(browser)
    type_event(browser, "y[0] > 3")
    browser.see("document.querySelector('#handle').focus()")
    browser.press("ArrowUp")
    settled(browser)
    browser.click("#reset")
    browser.until("document.querySelector('#event').value === 'y[0] > 0'")
    settled(browser)
    assert shown_probability(browser) == before
    assert browser.text("#law-note") == ""


def test_a_dropped_table_may_be_put_aside(browser):
    open_page(browser)
    before = shown_probability(browser)
    drop(browser, "rows.csv", "1,2\n3,4")
    browser.until("!document.querySelector('#table').hidden")
    browser.click("#table-no")
    browser.until("document.querySelector('#table').hidden")
    assert shown_probability(browser) == before
    assert "rows.csv" not in browser.text("#legend")


def test_zoom_buttons_and_fit(browser):
    open_page(browser)
    from reluscope.playground.session import Shelf, first_view

    whole = first_view(Shelf().example("moons"))
    middle, wide = 0.5 * (whole.lower + whole.upper), whole.upper - whole.lower
    browser.click("#in")
    settled(browser)
    state = view_of(browser)
    np.testing.assert_allclose(span(state), wide / 1.5, rtol=1e-6)
    np.testing.assert_allclose(0.5 * np.add(state["lower"], state["upper"]), middle, atol=1e-6)
    for _ in range(2):
        browser.click("#out")
    settled(browser)
    np.testing.assert_allclose(span(view_of(browser)), wide * 1.5, rtol=1e-6)
    browser.click("#fit")
    settled(browser)
    state = {"lower": whole.lower, "upper": whole.upper} | view_of(browser)  # what did not change is left out
    np.testing.assert_allclose(span(state), 7.0 * np.sqrt(rs.example("moons").law.variance), rtol=1e-4)


def test_axes_and_output_are_chosen(browser):
    open_page(browser, "controller")
    axes = browser.see("['axis0', 'axis1'].map(id => Number(document.getElementById(id).value))")
    third = next(i for i in range(5) if i not in axes)
    choose(browser, "axis0", str(third))
    settled(browser)
    assert view_of(browser)["axes"] == [third, axes[1]]
    choose(browser, "axis1", str(third))  # the other one takes its place
    settled(browser)
    assert view_of(browser)["axes"] == [axes[1], third]
    choose(browser, "colour", "output")
    choose(browser, "output", "2")
    settled(browser)
    assert "weak right" in browser.text("#legend")
    assert not browser.problems


@pytest.mark.parametrize("refused", [False, True])
def test_what_is_copied(browser, refused):
    open_page(browser)
    answer = "Promise.reject(new Error('no'))" if refused else "(window.copied = text, Promise.resolve())"
    browser.see(f"navigator.clipboard.writeText = text => {answer}")
    browser.click("#share")
    browser.until("document.querySelector('#shared').textContent !== ''")
    browser.click("#copy")
    browser.until("document.querySelector('#copied').textContent !== ''")
    if refused:
        assert browser.text("#shared") == "the link is in the address bar"
        assert browser.see("getSelection().toString().includes('import reluscope')")
    else:
        assert browser.see("window.copied") == browser.text("#python")
        assert browser.text("#copied") == "copied"


def test_a_slider_moves_the_law_while_it_is_held(browser):
    open_page(browser)
    before = shown_probability(browser)
    browser.see(
        "(() => {const r = document.querySelector('#sliders input[type=range]'); r.value = 0.1;"
        "r.dispatchEvent(new Event('input')); r.dispatchEvent(new Event('change'))})()"
    )
    settled(browser)
    scope = run_python(browser)
    assert scope["law"].mean[0] == pytest.approx(0.1, abs=0.01)
    assert shown_probability(browser) == f"{scope['answer'].value:.6g}" != before


def test_every_other_input_has_a_row(browser):
    open_page(browser, "digits")
    browser.see("[...document.querySelectorAll('[name=vary]')].find(e => e.value === 'shown').click()")
    browser.click("#others summary")
    browser.until("document.querySelectorAll('#rows .slider').length === 62")
    browser.see(
        "(() => {const box = document.querySelector('#rows input'); box.value = 3.5;"
        "box.dispatchEvent(new Event('change'))})()"
    )
    settled(browser)
    name = browser.text("#rows .slider span")
    i = int(re.search(r"\d+", name)[0])
    scope = run_python(browser)
    assert scope["law"].mean[i] == pytest.approx(3.5)
    assert float(shown_probability(browser)) == pytest.approx(scope["answer"].value, rel=1e-5)


def test_a_probable_region_is_shown(browser):
    open_page(browser)
    browser.click("#heaviest button")
    browser.until("document.querySelector('#heaviest tr.marked')")
    from reluscope.playground.session import Shelf, first_view

    view = first_view(Shelf().example("moons"))
    regions = rs.regions(view.net, (view.lower, view.upper), progress=None)
    most = rs.linear_models(view.net, rs.example("moons").law).top(1)
    marked = browser.see("import('./state.js').then(m => m.S.marked)")
    np.testing.assert_allclose(regions[marked].C, most.C[0], rtol=1e-9)


def test_controls_of_the_training(browser):
    open_page(browser)
    choose(browser, "network", "training")
    browser.until("!document.querySelector('#training').hidden")
    settled(browser)
    begin = browser.text("#train-state")
    browser.click("#train-step")
    browser.until("document.querySelector('#train-state').textContent.startsWith('Epoch 1:')")
    settled(browser)
    browser.click("#train-again")
    browser.until("document.querySelector('#train-state').textContent.startsWith('Epoch 0:')")
    assert browser.text("#train-state") == begin  # the seed decides
    for control, value in (
        ("train-seed", "6"), ("train-data", "circles"), ("train-noise", "0.4"), ("train-rate", "0.03")
    ):  # fmt: skip
        before = browser.text("#train-state")
        browser.see("window.old = document.querySelector('#train-state').firstChild")
        choose(browser, control, value)
        browser.until("document.querySelector('#train-state').firstChild !== window.old")
        settled(browser)
        assert (browser.text("#train-state") == before) == (control == "train-rate")  # no step was made yet
    browser.click("#train-step")
    browser.until("document.querySelector('#train-state').textContent.startsWith('Epoch 1:')")
    drawn = browser.see(
        "(() => {const c = document.querySelector('#train-loss');"
        "return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].some(v => v > 0)})()"
    )
    assert drawn
    assert not browser.problems


def test_the_cover_has_a_button_that_loads_the_page_anew(browser):
    open_page(browser)
    browser.see("(window.old = true, document.querySelector('#cover').hidden = false)")
    browser.click("#reload")
    browser.until("window.old === undefined && document.querySelector('#heaviest table')")
    time.sleep(0.2)
    assert browser.see("document.querySelector('#cover').hidden")


def test_the_density_shows_the_part_in_the_event(browser):
    open_page(browser)
    ink = (
        "(() => {const c = document.querySelector('#density'), d = c.getContext('2d').getImageData(0, 0, c.width, "
        "c.height).data; let n = 0; for (let i = 0; i < d.length; i += 4) n += d[i] - d[i + 2] > 80; return n})()"
    )
    found = []
    for limit in (-100, 0, 5, 100):
        type_event(browser, f"y[0] > {limit}")
        assert not browser.see("document.querySelector('#density').hidden")
        found.append(browser.see(ink))
    assert found == sorted(found, reverse=True)
    assert found[0] > 2 * found[2] > found[3] == 0
