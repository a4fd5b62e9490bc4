"""What tests of the playground do in a browser: open it, type, choose, wait, read."""

from __future__ import annotations

import base64
import json
import time


def open_page(browser, name="moons", *, width=1280, height=900, dark=False):
    browser.problems.clear()
    browser.size(width, height, dark=dark)
    browser.ask("Page.navigate", url=browser.site)
    browser.until("document.readyState === 'complete' && document.querySelector('#heaviest table')")
    if name != "moons":
        choose(browser, "network", f"example-{name}")
        browser.until(f"document.querySelector('#title').textContent === {name!r}")
    settled(browser)


def settled(browser):
    """All answers are in: the page is not busy, and the Python, asked for last, is there."""
    browser.until(
        "document.body.getAttribute('aria-busy') === 'false' && document.querySelector('#python').textContent"
    )
    browser.see("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")  # and drawn


def choose(browser, element, value):
    browser.see(
        f"(() => {{const e = document.getElementById({element!r}); e.value = {value!r};"
        "e.dispatchEvent(new Event('change', {bubbles: true}))})()"
    )


def shown_probability(browser):
    return browser.text("#probability").replace("−", "-").split()[0]


def type_event(browser, text):
    """Type an event, and wait for its answer."""
    browser.see(f"document.querySelector('#event').value = {text!r}")
    browser.see("document.querySelector('#event').dispatchEvent(new Event('change'))")
    browser.until("document.querySelector('#probability').textContent !== '…'")
    settled(browser)


def delayed(browser, kind, milliseconds):
    """From now on the answers of a kind come late."""
    browser.see(
        "(() => {const real = window.fetch; window.fetch = async (...a) => {const found = await real(...a);"
        f"if (String(a[0]) === 'api/{kind}') await new Promise(done => setTimeout(done, {milliseconds}));"
        "return found}})()"
    )


def view_of(browser):
    """What the address says of the view, once it is written."""
    time.sleep(0.6)
    text = browser.see("location.hash").removeprefix("#")
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def run_python(browser):
    scope: dict = {}
    exec(compile(browser.text("#python"), "page.py", "exec"), scope)
    return scope


def drop(browser, name, text):
    """A file dropped on the page."""
    browser.see(
        "(() => {const t = new DataTransfer(); "
        f"t.items.add(new File([{text!r}], {name!r}));"
        "document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: t, bubbles: true, cancelable: true}))})()"
    )
