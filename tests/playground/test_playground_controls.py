"""Every control of the playground, in a browser: what it does is compared with the library."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest

import reluscope as rs

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from browser import CHROMIUM, Browser
from playground_page import (
    choose,
    delayed,
    drop,
    open_page,
    run_python,
    settled,
    shown_probability,
    type_event,
    view_of,
)

pytestmark = pytest.mark.skipif(CHROMIUM is None or os.name != "posix", reason="needs Chromium")

STOPPED = "The server has stopped. Start reluscope playground again; the numbers shown are out of date."


# -- nothing old beside something new -------------------------------------------------------------------------------


def test_an_old_number_never_stands_beside_a_new_event(browser):
    open_page(browser)
    before = shown_probability(browser)
    delayed(browser, "event", 900)
    browser.see("document.querySelector('#event').value = 'y[0] > 5'")
    browser.see("document.querySelector('#event').dispatchEvent(new Event('input'))")
    assert before not in browser.text("#chance")  # at the first key already
    time.sleep(0.7)
    assert before not in browser.text("#chance")
    browser.until("document.querySelector('#probability').textContent.includes('exact')")
    built_in = rs.example("moons")
    assert shown_probability(browser) == f"{rs.probability(built_in.network, built_in.law, 'y[0] > 5').value:.6g}"


def test_numbers_that_are_out_of_date_are_marked(browser):
    open_page(browser)
    stale = "[...document.querySelectorAll('.stale')].map(e => e.id)"
    assert browser.see(stale) == []
    delayed(browser, "event", 700)
    delayed(browser, "outputs", 700)
    browser.see("document.querySelector('#handle').focus()")
    browser.press("ArrowRight")
    assert {"chance", "output-panel", "regions-panel", "code-panel"} <= set(browser.see(stale))
    assert browser.see("document.querySelector('#chance').getAttribute('aria-busy')") == "true"
    time.sleep(0.3)
    word = "(s => s.content + s.opacity)(getComputedStyle(document.querySelector('#chance'), '::after'))"
    stripes = "getComputedStyle(document.querySelector('#chance')).backgroundImage"
    assert browser.see(word) == '"updating…"1' and "gradient" in browser.see(stripes)
    settled(browser)
    browser.until(f"{stale}.length === 0")
    assert "updating" not in browser.see(word) and browser.see(stripes) == "none"


def test_a_page_whose_server_has_stopped_is_covered(tmp_path):
    command = [sys.executable, "-m", "reluscope", "playground", "--no-browser", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    browser = None
    try:
        site = re.search(r"http://\S+", server.stdout.readline())[0]
        browser = Browser(tmp_path, site)
        open_page(browser)
        assert browser.see("document.querySelector('#cover').hidden")
        server.kill()
        server.wait()
        browser.until("!document.querySelector('#cover').hidden")  # though nothing was asked
        assert browser.text("#cover-text") == STOPPED
        assert browser.see("document.querySelector('main').inert")
        covered = "document.elementFromPoint({}, {}).closest('#cover') !== null"
        assert browser.see(" && ".join(covered.format(x, y) for x, y in ((20, 20), (640, 450), (1200, 300))))
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        if browser is not None:
            browser.close()


def test_the_law_goes_back_to_where_it_was(browser):
    open_page(browser)
    before = shown_probability(browser)
    browser.see("document.querySelector('#handle').focus()")
    for _ in range(4):
        browser.press("ArrowUp")
    settled(browser)
    assert shown_probability(browser) != before
    assert "moved" in browser.text("#law-note")
    browser.click("#home")
    settled(browser)
    assert shown_probability(browser) == before


def test_a_slider_stretches_the_law_as_a_whole(browser):
    open_page(browser)
    choose(browser, "sd-1", "0.2")
    settled(browser)
    scope = run_python(browser)
    law = rs.example("moons").law
    np.testing.assert_allclose(np.sqrt(scope["law"].variance), [np.sqrt(law.variance[0]), 0.2], rtol=1e-4)
    assert len(scope["law"].gaussians) == len(law.gaussians)
    assert shown_probability(browser) == f"{scope['answer'].value:.6g}"


# -- the picture ----------------------------------------------------------------------------------------------------


def test_the_wheel_zooms_where_the_pointer_is(browser):
    open_page(browser)
    first = browser.see("location.hash")
    x, y = browser.place("#canvas", 0.3, 0.4)
    told = "document.querySelector('#tip').firstChild?.textContent"
    browser.mouse("mouseMoved", x, y)
    browser.until("!document.querySelector('#tip').hidden")
    before = browser.see(told)
    browser.ask("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-300)
    settled(browser)
    state = view_of(browser)
    assert browser.see("location.hash") != first
    span = state["upper"][0] - state["lower"][0]
    from reluscope.playground.session import Shelf, first_view

    whole = first_view(Shelf().example("moons"))
    assert span == pytest.approx((whole.upper[0] - whole.lower[0]) * np.exp(-0.45), rel=1e-6)
    browser.mouse("mouseMoved", x + 1, y)
    browser.mouse("mouseMoved", x, y)
    time.sleep(0.2)
    numbers = [
        [float(v) for v in re.findall(r"-?[0-9.]+", t.replace("−", "-"))[1::2]] for t in (before, browser.see(told))
    ]
    np.testing.assert_allclose(numbers[0], numbers[1], atol=0.02)


def test_two_fingers_zoom(browser):
    open_page(browser)
    browser.ask("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    try:
        x, y = browser.place("#canvas", 0.5, 0.5)

        def touch(kind, gap):
            points = [] if gap is None else [{"x": x - gap, "y": y, "id": 1}, {"x": x + gap, "y": y, "id": 2}]
            browser.ask("Input.dispatchTouchEvent", type=kind, touchPoints=points)

        touch("touchStart", 40)
        for gap in (44, 60, 80):
            touch("touchMove", gap)
        touch("touchEnd", None)
        settled(browser)
        state = view_of(browser)
        from reluscope.playground.session import Shelf, first_view

        whole = first_view(Shelf().example("moons"))
        ratio = (state["upper"][0] - state["lower"][0]) / (whole.upper[0] - whole.lower[0])
        assert 0.4 < ratio < 0.75  # half, but for where the first movement began
    finally:
        browser.ask("Emulation.setTouchEmulationEnabled", enabled=False)


def test_hovering_tells_the_value(browser):
    open_page(browser)
    net = rs.example("moons").network
    inside = 0
    for across, down in ((0.3, 0.3), (0.6, 0.8), (0.8, 0.5), (0.5, 0.2)):
        x, y = browser.place("#canvas", across, down)
        browser.mouse("mouseMoved", x - 2, y)
        browser.mouse("mouseMoved", x, y)
        time.sleep(0.15)
        lines = browser.see("[...document.querySelector('#tip').children].map(e => e.textContent)")
        place = [float(v) for v in re.findall(r"= (-?[0-9.]+)", lines[0].replace("−", "-"))]
        shown = float(lines[1].split(" = ")[1].replace("−", "-"))
        assert shown == pytest.approx(net(place)[0], abs=0.02)
        assert lines[2] == ("in the event" if shown > 0 else "not in the event")
        inside += lines[2] == "in the event"
    assert 0 < inside < 4


def test_the_side_of_the_event_is_striped(browser):
    open_page(browser)
    look = (
        "(() => {const c = document.querySelector('#canvas'), g = c.getContext('2d'), out = [];"
        "for (const x of [0.12, 0.95]) out.push([...g.getImageData(c.width * x, 20, 1, c.height * 0.9).data]);"
        "return out})()"
    )
    type_event(browser, "x[0] > 1e6")
    plain = browser.see(look)
    type_event(browser, "x[0] > 0.5")
    striped = browser.see(look)
    outside, inside = (int((np.array(a) != np.array(b)).sum()) for a, b in zip(plain, striped, strict=True))
    assert outside < 40
    assert inside > 200


def test_layers_one_by_one(browser):
    open_page(browser)
    net = rs.example("moons").network
    assert browser.see("Number(document.querySelector('#layers').max)") == 3
    from reluscope.answers.outputs import truncated_network
    from reluscope.playground.session import Shelf, first_view

    view = first_view(Shelf().example("moons"))
    for k in (1, 2):
        browser.see(f"document.querySelector('#layers').value = {k}")
        browser.see("document.querySelector('#layers').dispatchEvent(new Event('input'))")
        settled(browser)
        want = len(rs.regions(truncated_network(net, k), (view.lower, view.upper), progress=None))
        browser.until(
            f"document.querySelector('#regions').textContent.startsWith('{want} regions in view, cut by the first')"
        )
    choose(browser, "unit", "2")
    settled(browser)
    assert "unit 2 of layer 2" in browser.text("#legend")
    browser.see("document.querySelector('#layers').value = 3")
    browser.see("document.querySelector('#layers').dispatchEvent(new Event('input'))")
    settled(browser)
    assert "cut by" not in browser.text("#regions")
    assert not browser.problems


def test_held_inputs_have_sliders(browser):
    open_page(browser, "controller")
    browser.see("[...document.querySelectorAll('[name=vary]')].find(e => e.value === 'shown').click()")
    settled(browser)
    rows = browser.see("document.querySelectorAll('#held-sliders .slider').length")
    assert rows == 3
    before = shown_probability(browser)
    box = browser.see("document.querySelector('#held-sliders input[type=number]').id")
    i = int(box.removeprefix("at-"))
    choose(browser, box, str(float(rs.example("controller").law.mean[i]) + 0.1))
    settled(browser)
    assert shown_probability(browser) != before
    scope = run_python(browser)
    assert scope["answer"].guarantee == "exact"
    assert shown_probability(browser) == f"{scope['answer'].value:.6g}"
    assert scope["law"].mean[i] == pytest.approx(rs.example("controller").law.mean[i] + 0.1)


# -- what leaves the page, what comes to it -------------------------------------------------------------------------


def test_a_link_leads_back(browser):
    open_page(browser, "cocircles")
    type_event(browser, "|y0| < 2")
    browser.see("document.querySelector('#handle').focus()")
    browser.press("ArrowLeft")
    settled(browser)
    number = shown_probability(browser)
    time.sleep(0.6)
    url = browser.see("location.href")
    browser.ask("Page.navigate", url="about:blank")
    browser.ask("Page.navigate", url=url)
    browser.until("document.readyState === 'complete' && document.querySelector('#heaviest table')")
    settled(browser)
    assert browser.text("#title") == "cocircles"
    assert browser.see("document.querySelector('#event').value") == "|y0| < 2"
    assert shown_probability(browser) == number
    browser.ask("Page.navigate", url="about:blank")
    browser.ask("Page.navigate", url=f"{browser.site}#%%%not-a-state")  # rubbish is ignored
    browser.until("document.readyState === 'complete' && document.querySelector('#heaviest table')")
    assert browser.text("#title") == "moons"


def test_the_picture_as_a_file(browser, tmp_path):
    open_page(browser)
    svg = browser.see("import('./export.js').then(m => m.svgText())")
    from xml.etree import ElementTree

    root = ElementTree.fromstring(svg)
    paths = [e for e in root.iter() if e.tag.endswith("path")]
    assert len(paths) > 76  # 38 regions, filled and edged
    texts = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert "x[0]" in texts
    size = browser.see("import('./export.js').then(m => {const c = m.pngCanvas(); return [c.width, c.height]})")
    shown = browser.see(
        "[document.querySelector('#canvas').clientWidth, document.querySelector('#canvas').clientHeight]"
    )
    assert size == [2 * v for v in shown]
    browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for button, start in (("svg", b"<svg"), ("png", b"\x89PNG")):
        browser.click(f"#{button}")
        end = time.monotonic() + 10
        while not (path := tmp_path / f"moons.{button}").exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert path.read_bytes().startswith(start)


def test_rows_dropped_as_data_are_counted(browser):
    open_page(browser)
    built_in = rs.example("moons")
    X = built_in.law.sample(60, rng=3)
    drop(browser, "rows.csv", "a,b\n" + "\n".join(f"{a!r},{b!r}" for a, b in X.tolist()))
    browser.until("!document.querySelector('#table').hidden")
    browser.click("#as-data")
    browser.until("document.querySelector('#legend').textContent.includes('60 rows')")
    settled(browser)
    inside = int((built_in.network(X)[:, 0] > 0).sum())
    assert f"{inside} of 60 rows of rows.csv" in browser.text("#probability-more")
    assert shown_probability(browser) == f"{rs.probability(built_in.network, built_in.law, 'y[0] > 0').value:.6g}"


def test_rows_dropped_as_a_law(browser):
    open_page(browser)
    net = rs.example("moons").network
    X = np.random.default_rng(5).normal([0.3, -0.2], [0.4, 0.2], (80, 2))
    drop(browser, "rows.csv", "\n".join(f"{a!r},{b!r}" for a, b in X.tolist()))
    browser.until("!document.querySelector('#table').hidden")
    browser.click("#as-law")
    browser.until("document.querySelector('#about').textContent.includes('rows.csv')")
    settled(browser)
    answer = rs.probability(net, rs.GaussianMixture.fit(X, components=1), "y[0] > 0")
    assert shown_probability(browser) == f"{answer.value:.6g}"
    drop(browser, "wide.csv", "1,2,3,4\n5,6,7,8")
    browser.until("!document.querySelector('#table').hidden")
    browser.click("#as-data")
    browser.until("!document.querySelector('#problem').hidden")
    assert "4 columns" in browser.text("#problem")
    assert not [p for p in browser.problems if "400" not in str(p)]


def test_hints_are_events_of_this_network(browser):
    for name in ("moons", "controller", "digits"):
        open_page(browser, name)
        net, law = rs.example(name).network, rs.example(name).law
        texts = browser.see("[...document.querySelectorAll('.hint')].map(e => e.textContent)")
        assert len(texts) >= 3
        for text in texts:
            rs.event(text, net.n_inputs, net.n_outputs, net=net, law=law)
    browser.click(".hint")
    settled(browser)
    assert browser.see("document.querySelector('#event').value") == texts[0]


def test_names_and_units_of_the_schema(browser, tmp_path):
    columns = [rs.Column("speed", unit="km/h", scale=0.01, shift=-0.5), rs.Column("height", unit="m", scale=0.1)]
    rng = np.random.default_rng(3)
    layers = [(rng.normal(size=(6, 2)), rng.normal(size=6)), (rng.normal(size=(1, 6)), [0.1])]
    net = rs.Network(layers).with_schema(rs.Schema(columns, [rs.Output("lift", unit="N", scale=0.5)]))
    net.save(tmp_path / "wing.npz")
    open_page(browser)
    document = browser.ask("DOM.getDocument")["root"]["nodeId"]
    node = browser.ask("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
    browser.ask("DOM.setFileInputFiles", nodeId=node, files=[str(tmp_path / "wing.npz")])
    browser.until("document.querySelector('#title').textContent === 'wing.npz'")
    settled(browser)
    svg = browser.see("import('./export.js').then(m => m.svgText())")
    assert ">speed (km/h)<" in svg
    assert ">height (m)<" in svg
    x, y = browser.place("#canvas", 0.4, 0.4)
    browser.mouse("mouseMoved", x - 1, y)
    browser.mouse("mouseMoved", x, y)
    browser.until("!document.querySelector('#tip').hidden")
    lines = browser.see("[...document.querySelector('#tip').children].map(e => e.textContent.replaceAll('−', '-'))")
    speed, height = (float(v) for v in re.findall(r"= (-?[0-9.]+)", lines[0]))
    lift = float(re.findall(r"lift = (-?[0-9.]+) N", lines[1])[0])
    assert lift == pytest.approx(net([0.01 * speed - 0.5, 0.1 * height])[0] / 0.5, abs=0.02)
    mean = browser.see("document.querySelector('#at-0').value")
    assert float(mean) == pytest.approx(50.0)  # the network's 0
    type_event(browser, "lift > 1 N and speed < 60 km/h")
    law = rs.Gaussian([0.0, 0.0], [1.0, 1.0])
    answer = rs.probability(net, law, "y[0] > 0.5 and x[0] < 0.1")
    assert float(shown_probability(browser)) == pytest.approx(answer.value, rel=1e-5)


# -- training -------------------------------------------------------------------------------------------------------


def test_a_network_learns_and_its_numbers_are_exact(browser):
    open_page(browser)
    choose(browser, "network", "training")
    browser.until("!document.querySelector('#training').hidden")
    settled(browser)
    first = browser.text("#train-state")
    assert first.startswith("Epoch 0")
    choose(browser, "train-pace", "10")
    browser.click("#train-go")
    browser.until("Number(document.querySelector('#train-state').textContent.split(' ')[1].replace(':', '')) >= 60", 60)
    browser.click("#train-go")
    settled(browser)
    loss = [float(re.search(r"loss ([0-9.e-]+)", t)[1]) for t in (first, browser.text("#train-state"))]
    assert loss[1] < 0.6 * loss[0]
    assert "training rows: 400 rows" in browser.text("#legend")
    scope = run_python(browser)
    assert scope["answer"].guarantee == "exact"
    assert shown_probability(browser) == f"{scope['answer'].value:.6g}"
    assert f"{len(scope['regions'])} regions in view" in browser.text("#regions")
    # The error on new rows, by plain draws from the two classes.
    error = float(re.search(r"new rows: ([0-9.e−]+)", browser.text("#train-state"))[1].replace("−", "-"))
    from reluscope.playground.training import class_laws

    draws = [law.sample(40_000, rng=9) for law in class_laws("moons", 0.15)]
    wrong = [scope["net"](draws[0])[:, 0] > 0, scope["net"](draws[1])[:, 0] <= 0]
    assert error == pytest.approx(0.5 * (wrong[0].mean() + wrong[1].mean()), abs=0.004)
    choose(browser, "train-hidden", "4 4 4 4 4")
    browser.until("!document.querySelector('#train-problem').hidden")
    assert "hidden" in browser.text("#train-problem")
