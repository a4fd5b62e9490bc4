"""What tests of the playground do in a browser: open it, type, choose, wait, read."""

from __future__ import annotations


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
