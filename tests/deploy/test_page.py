"""The page for people in a real Chromium: both colour schemes, keyboard alone, and axe-core's rules.

``HYDRATOR_SCREENSHOTS=docs/pictures python -m pytest tests/deploy/test_page.py`` takes those of the docs.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from hydrator.domain.model import DatasetState, Did, Fact, Site, SiteFacts, Snapshot
from hydrator.reconcile.history import DatasetChange, HistoryEntry
from hydrator.reconcile.snapshot.breaker import HeldLoss, HoldCause
from hydrator.server.app import build_app
from hydrator.server.handlers import TokenServices
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from testbed.browser import chromium, driver
from testbed.patience import wait_for
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, RAL, ad, demand, want
from tests.parts import NO_BROWSER, needs
from tests.unit.server.pages.test_why import READ_TOKEN
from tests.unit.server.pages.test_why import Pool as Jobs

pytestmark = pytest.mark.timeout(900)  # the first run downloads Chromium

OSO = Site("OSO")
SCHEMES = ("light", "dark")
PATIENCE_MS = 180_000
"""For each step of the browser: it may have little of the machine."""
DATASETS = [Did(f"lofar:L{200_000 + n * 37}") for n in range(250)]


def world() -> ServerState:
    """Three sites with all kinds of facts, a change that is held, and more datasets than fit one page."""
    states = list(DatasetState)
    facts = {
        site: SiteFacts(
            NOON - (k + 1) * MINUTE,
            {
                did: Fact(states[state], NOON - ((n * 7 + k) % 380) * MINUTE, 0.4 if state else 1.0)
                for n, did in enumerate(DATASETS)
                for state in (0 if n % 4 else (n // 4 + k) % 6,)
                if (n + k) % 3
            },
        )
        for k, site in enumerate((CAM, RAL, OSO))
    }
    held = HeldLoss(NOON - HOUR, NOON, dict.fromkeys(DATASETS[:30], 3), 166, HoldCause.SITE)
    came = DatasetChange(DATASETS[1], None, "AVAILABLE", "its catalogue says so")
    return ServerState(
        ads={site: ad(L1, site=site, generation=1_700_000_000 + k) for k, site in enumerate((CAM, RAL))},
        snapshot=Snapshot(facts, unseen_reasons={L2: "the catalogue did not answer within 10 s"}),
        demand=demand(*(want(did, jobs=n % 9 + 1) for n, did in enumerate(DATASETS)), want(L2, L3, jobs=40)),
        not_ready_reason=None,
        now=NOON,
        held_reasons={CAM: held.text(20)},
        held_losses={CAM: held},
        changes=[HistoryEntry(NOON - n * HOUR, ad(site=RAL, generation=n + 1), (came,)) for n in (5, 3, 1)],
    )


@pytest.fixture(scope="module")
def url():
    with HttpServer(build_app(world, CollectorRegistry(), max_age=timedelta(seconds=9))) as server:
        yield server.url


@pytest.fixture(scope="module")
def browser():
    with needs(NO_BROWSER):
        program, environment = chromium()
        folder = str(driver())
    sys.path.append(folder)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=str(program),
            env={**os.environ, **environment},
            args=["--no-sandbox"],  # root has none; what it shows is our own
            timeout=PATIENCE_MS,
        )
        yield launched
        launched.close()
    sys.path.remove(folder)


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    """A server that says why a job is idle, and what a browser must send it."""
    jobs = Jobs(tmp_path_factory.mktemp("tokens"))
    asgi = build_app(
        world,
        CollectorRegistry(),
        max_age=timedelta(seconds=9),
        authenticator=jobs.access,
        services=TokenServices(explain_job=jobs.question),
    )
    with HttpServer(asgi) as server:
        yield server.url, {"Authorization": f"Bearer {jobs.tokens[READ_TOKEN]}"}


@pytest.fixture
def opened(browser, url):
    """Opens a path, in a browser that reports all that went wrong; closes it."""
    contexts = []

    def open_(path: str = "/", **options):
        context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.troubles = []
        page.on("console", lambda said: page.troubles.append(said.text))
        page.on("requestfailed", lambda request: page.troubles.append(request.url))
        page.goto(path if "://" in path else url + path)
        return page

    yield open_
    for context in contexts:
        context.close()


def found_wrong(page) -> list[str]:
    """What axe-core objects to, all its rules asked; the policy would not let it in as an ordinary script."""
    import axe_playwright_python

    rules = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")
    page.evaluate(rules)
    answer = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert len(answer["passes"]) > 10
    return [f"{one['id']}: {node['html'][:200]}" for one in answer["violations"] for node in one["nodes"]]


def focused(page) -> str:
    """What has the focus: its text or name, and whether that is to be seen."""
    return page.evaluate(
        "(() => { const e = document.activeElement; const s = getComputedStyle(e);"
        " return [e.getAttribute('aria-label') || e.name || e.innerText, s.outlineStyle].join('|') })()"
    )


def luminance(page, selector: str, what: str) -> float:
    """0 is black, 255 is white."""
    colour = page.eval_on_selector(selector, f"e => getComputedStyle(e).{what}")
    parts = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(parts) / 3


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", ["/", "/?state=stuck&site=RAL"])
def test_it_is_for_everybody_in_light_and_dark(opened, scheme, path):
    page = opened(path, color_scheme=scheme)
    assert found_wrong(page) == []
    paper, ink = luminance(page, "body", "backgroundColor"), luminance(page, "body", "color")
    dark, light = (ink, paper) if scheme == "light" else (paper, ink)
    assert dark < 60
    assert light > 200


@pytest.mark.parametrize("scheme", SCHEMES)
def test_why_a_job_is_idle_is_for_everybody_and_asked_by_keyboard(opened, asking, scheme):
    url, headers = asking
    page = opened(f"{url}/why", color_scheme=scheme, extra_http_headers=headers)
    page.get_by_label("Job", exact=True).press_sequentially("7.1")
    page.keyboard.press("Enter")
    page.wait_for_url("**job=7.1**")
    assert page.get_by_role("row", name="CAM").count() == 1
    assert found_wrong(page) == []
    assert page.troubles == []


def test_axe_would_object_to_a_table_that_nobody_can_read(opened):
    page = opened()
    page.evaluate("document.querySelector('#find').previousSibling.remove()")
    page.evaluate("document.documentElement.removeAttribute('lang')")
    assert {one.partition(":")[0] for one in found_wrong(page)} == {"html-has-lang", "label"}


def test_nothing_is_refused_by_the_policy_and_nothing_else_is_fetched(opened):
    page = opened()
    assert page.troubles == []
    assert page.evaluate("performance.getEntriesByType('resource').length") == 0
    assert (
        page.eval_on_selector(".available", "e => getComputedStyle(e).backgroundColor") != "rgba(0, 0, 0, 0)"
    )


def test_the_keyboard_reaches_everything_in_reading_order_and_shows_where_it_is(opened):
    page = opened()
    order = []
    for _ in range(17):
        page.keyboard.press("Tab")
        order.append(focused(page))
    names = [one.partition("|")[0].strip() for one in order]
    assert names == [
        *("Skip to the content", "sites", "datasets", "OpenAPI", "metrics", "30 datasets in question at CAM"),
        *(
            "Sites, with the age of the facts about each",
            "Queued sets",
            "find",
            "site",
            "state",
            "Show",
            "Show all",
            "Datasets",
        ),
        *("Next", "Last", "Changes of ads, newest first"),
    ]
    assert [one for one in order if one.endswith("|none")] == []


def test_the_skip_link_goes_to_the_content(opened):
    page = opened()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_form_finds_datasets_by_keyboard_and_without_scripts(opened):
    page = opened(java_script_enabled=False)
    page.get_by_label("Name contains").press_sequentially("L20003")
    page.keyboard.press("Enter")
    page.wait_for_url("**find=L20003**")
    assert (
        page.locator("#datasets ~ .scroll caption").first.inner_text().startswith("1 dataset of 252 by site")
    )
    assert page.locator("tbody th", has_text="lofar:L200037").count() == 1


def test_pages_of_datasets_are_links(opened):
    page = opened()
    page.get_by_role("link", name="Next").click()
    page.wait_for_url("**page=2**")
    assert page.get_by_text("Page 2 of 3").get_attribute("aria-current") == "page"


def test_a_narrow_window_scrolls_the_tables_and_not_the_page(opened):
    page = opened()
    page.set_viewport_size({"width": 320, "height": 600})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_a_screen_reader_gets_the_pictures_in_words(opened):
    images = opened().get_by_role("img").all()
    assert len(images) == 3
    assert images[0].get_attribute("aria-label").startswith("CAM: the oldest fact is 6 h ")


def photographed(page, taken):
    """Take the picture; return None while Chromium has no frame, as on a busy machine."""
    from playwright.sync_api import Error

    try:
        return page.screenshot(path=taken)
    except Error as error:
        if "Unable to capture screenshot" not in str(error):
            raise
        return None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_can_be_photographed(opened, scheme, tmp_path):
    folder = Path(os.environ.get("HYDRATOR_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    taken = folder / f"page-{scheme}.png"
    page = opened(color_scheme=scheme)
    page.set_viewport_size({"width": 1200, "height": 1400})
    wait_for(lambda: photographed(page, taken), 10, "a picture of the page", step=1)
    assert taken.read_bytes().startswith(b"\x89PNG")
