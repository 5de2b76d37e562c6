"""The page for people in a real Chromium: both colour schemes, keyboard alone, and axe-core's rules."""

import os
import sys
import time
from pathlib import Path

import httpx
import pytest

from hydrator.domain.ports import ClusterJobs
from testbed.browser import chromium, driver
from tests.deploy.chart import ROOT
from tests.deploy.page_world import (
    DATASETS,
    MANY_DATASETS,
    RUN,
    SITES,
    LivePool,
    changes,
    queues,
    world,
)
from tests.factories import NOON
from tests.parts import needs
from tests.served import server_of
from tests.unit.server.pages.test_why import READ_TOKEN
from tests.unit.server.pages.test_why import Pool as Jobs

pytestmark = pytest.mark.timeout(900)  # the first run downloads Chromium

SCHEMES = ("light", "dark")
WIDTHS = (375, 1280)
PATHS = {
    "overview": "/",
    "search": "/?find=L2000",
    "site": "/site?site=RAL",
    "dataset": f"/dataset?did={DATASETS[1]}",
    "run": f"/run?run={RUN}",
    "cluster": "/run?cluster=123",
    "unknown": "/dataset?did=lofar:nothing",
}
SCREENSHOTS = ROOT / "dist" / "screenshots"
PATIENCE_MS = 60_000
"""For each step of the browser: it may have little of the machine."""


CHANGES = [change for entry in reversed(changes()) for change in entry.changes]


@pytest.fixture(scope="module")
def pool():
    return LivePool()


@pytest.fixture(scope="module")
def url(pool):
    jobs = ClusterJobs(NOON, queues().schedds["ap1"], held_count=2)
    server = server_of(
        pool.get_state,
        get_version=pool.get_version,
        read_changes=lambda _site: CHANGES,
        read_cluster=lambda _cluster, _schedd: {"ap1": jobs},
    )
    with server:
        yield server.url


@pytest.fixture(scope="module")
def browser():
    with needs("browser"):
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
    with server_of(world, authenticator=jobs.access, explain_job=jobs.question) as server:
        yield server.url, {"Authorization": f"Bearer {jobs.tokens[READ_TOKEN]}"}


@pytest.fixture
def opened(browser, url):
    """Opens a path, in a browser that reports all that went wrong; closes it."""
    contexts = []

    def open_(path: str = "/", width: int = 1280, **options):
        options = {"timezone_id": "Europe/Athens", "locale": "en-GB", **options}
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
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


BEGINS = """() => {
    const begin = cell => cell.getBoundingClientRect().left + parseFloat(getComputedStyle(cell).paddingLeft);
    return [...document.querySelectorAll("table")].map(
        table => [...table.rows].map(row => [...row.cells].map(begin)));
}"""
"""Returns for each table and row where the text of each cell begins."""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", ["overview", "site", "dataset", "run"])
def test_headings_of_tables_begin_where_their_cells_begin(opened, path, width):
    tables = opened(PATHS[path], width).evaluate(BEGINS)
    assert tables
    assert [rows for rows in tables if any(row != rows[0] for row in rows)] == []


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


@pytest.mark.parametrize("kind", PATHS)
def test_it_is_for_everybody_in_light_and_dark_wide_and_narrow(opened, kind):
    page = opened(PATHS[kind], width=WIDTHS[0], color_scheme="light")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        paper, ink = luminance(page, "body", "backgroundColor"), luminance(page, "body", "color")
        dark, light = (ink, paper) if scheme == "light" else (paper, ink)
        assert dark < 60
        assert light > 200
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert found_wrong(page) == [], f"{scheme}, {width} px"
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.screenshot(path=SCREENSHOTS / f"{kind}-{scheme}-{width}.png")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_why_a_job_is_idle_is_for_everybody_and_asked_by_keyboard(opened, asking, scheme):
    url, headers = asking
    page = opened(f"{url}/why", color_scheme=scheme, extra_http_headers=headers)
    page.get_by_label("Job", exact=True).press_sequentially("7.1")
    page.keyboard.press("Enter")
    page.wait_for_url("**job=7.1**")
    assert page.get_by_role("row", name="CAM").count() == 1
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert found_wrong(page) == [], f"{width} px"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.troubles == []


def test_nothing_is_refused_by_the_policy_and_nothing_foreign_is_fetched(opened, url):
    page = opened()
    wait_live(page)
    assert page.troubles == []
    fetched = page.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
    own = {one.partition("?")[0] for one in fetched}
    assert own <= {f"{url}/page.js", f"{url}/live", f"{url}/"}
    assert (
        page.eval_on_selector(".available", "e => getComputedStyle(e).backgroundColor") != "rgba(0, 0, 0, 0)"
    )


def test_the_first_screen_of_fifty_sites_and_5000_datasets_has_the_answer_and_is_small(opened):
    state = world(MANY_DATASETS)
    with server_of(lambda: state) as server:
        with httpx.stream("GET", server.url, trust_env=False, timeout=60) as answer:
            assert sum(map(len, answer.iter_raw())) < 20_000
        page = opened(server.url)
        page.screenshot(path=SCREENSHOTS / "fifty-sites-1280.png")
        assert page.locator("h1").inner_text().endswith("2 things need you")
        assert page.locator(".sites > li").count() == len(SITES) == 50
        for part in ("#verdict", "#health", "#locality", ".sites", "#arrivals", ".sets li:nth-child(4)"):
            box = page.locator(part).bounding_box()
            assert box["y"] + box["height"] <= 800, part
            assert box["x"] + box["width"] <= 1280, part


# live


def wait_live(page) -> None:
    page.get_by_role("status").filter(has_text="live").wait_for()


def test_an_open_page_shows_a_change_and_keeps_the_focus_and_what_is_typed(opened, pool):
    page = opened()
    wait_live(page)
    page.get_by_label("Name contains").fill("L2000")
    page.get_by_text("30 datasets in question").click()
    page.get_by_role("link", name="RAL", exact=True).first.focus()
    changed_at = time.monotonic()
    pool.change(hang_reason="no progress for 5 min")
    page.get_by_role("heading", name="3 things need you").wait_for()
    print(f"the open page showed the change after {time.monotonic() - changed_at:.2f} s")
    assert page.get_by_label("Name contains").input_value() == "L2000"
    assert page.locator("#health details").get_attribute("open") is not None
    assert focused(page).partition("|")[0] == "RAL"
    assert page.title() == "3 things need you · classad-hydrator"
    pool.change(hang_reason=None)
    page.get_by_role("heading", name="2 things need you").wait_for()
    assert page.troubles == []


def test_a_page_says_that_the_daemon_does_not_answer_and_goes_on_when_it_does(opened):
    page = opened()
    wait_live(page)
    page.route("**/live", lambda route: route.fulfill(status=503))
    page.get_by_role("status").filter(has_text="the daemon does not answer: trying again").wait_for()
    page.unroute("**/live")
    wait_live(page)


def test_a_hidden_page_is_paused_and_catches_up(opened, pool):
    page = opened()
    wait_live(page)
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    hide += "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(hide % "true")
    page.get_by_role("status").filter(has_text="paused").wait_for()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    pool.change(hang_reason="a poll")
    other = opened()
    other.get_by_role("heading", name="3 things need you").wait_for()
    assert asked == []
    page.evaluate(hide % "false")
    page.get_by_role("heading", name="3 things need you").wait_for()
    pool.change(hang_reason=None)


def test_times_are_in_the_zone_of_the_reader(opened):
    page = opened(PATHS["run"])
    moment = page.locator("#progress time")
    assert moment.get_attribute("datetime") == "2026-11-21T15:10:00+00:00"
    assert moment.inner_text().endswith("17:10")  # Athens
    assert moment.get_attribute("title") == "15:10 UTC"


# keyboard


def test_the_keyboard_reaches_everything_in_reading_order_and_shows_where_it_is(opened):
    page = opened("/?find=L200000")
    order = []
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        order.append(focused(page))
    names = [one.partition("|")[0].strip() for one in order]
    assert names[:5] == [
        "Skip to the content", "Find datasets", "Your jobs", "Changes",
        "30 datasets in question at CAM since 21 Nov 2026, 13:00",
    ]  # fmt: skip
    listed = [name for name in names if name in SITES][: len(SITES)]
    assert (listed[0], sorted(listed)) == ("CAM", sorted(SITES))
    search = names.index("find")
    assert names[search : search + 3] == ["find", "Show", "Show all"]
    assert names.index("Datasets found") > search
    assert "How far?" in names[names.index("run") :]
    assert [one for one in order if one.endswith("|none")] == []


def test_the_form_finds_datasets_by_keyboard_and_without_scripts(opened):
    page = opened(java_script_enabled=False)
    page.get_by_label("Name contains").press_sequentially("L20003")
    page.keyboard.press("Enter")
    page.wait_for_url("**find=L20003**")
    assert page.locator("#found caption").inner_text().startswith("1 dataset of 255, most demanded first")
    page.locator("#found").get_by_role("link", name="lofar:L200037").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/dataset?did=lofar%3AL200037")
    assert page.get_by_role("heading", name="Dataset lofar:L200037").count() == 1


def test_the_page_never_moves(opened):
    assert opened().evaluate("document.getAnimations({subtree: true}).length") == 0
