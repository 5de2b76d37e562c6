"""The overview page, as text and over HTTP; tests/deploy/test_page.py opens it in a real browser."""

import base64
import hashlib
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser

import httpx
import pytest
from starlette.datastructures import QueryParams

from hydrator.domain.model import DatasetState, Did, Fact, Site, SiteFacts, Snapshot, to_unix
from hydrator.reconcile.snapshot.removal_guard import HeldLoss, HoldCause
from hydrator.reconcile.state import DatasetChange, HistoryEntry
from hydrator.reconcile.view import MAX_EXAMPLES, CatalogueView, PublisherView
from hydrator.server.pages.overview import (
    MAX_CHANGES,
    MAX_NEEDS,
    MAX_PLACES,
    PER_PAGE,
    Selection,
    parse_selection,
    render_overview,
)
from hydrator.server.view import ServerState
from hydrator.staging.overview import StagingOverview
from tests.deploy.page_world import request
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, RAL, ad, demand, server_state, want
from tests.served import server_of

HOSTILE = "<script>alert('1')</script>\"&"


class Parsed(HTMLParser):
    """The rows of cells of a page, and everything that it would fetch or run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.rows: list[list[str]] = []
        self.outside: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[dict[str, str]] = []
        self.in_cell = False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append({"tag": tag, **dict(attrs)})
        self.outside += [value for name, value in attrs if name == "style" or name.startswith("on")]
        self.outside += [v for name, v in attrs if name == "src" and not v.startswith("/page.js?")]
        self.outside += [
            v for name, v in attrs if name in ("href", "action") and not v.startswith(("/", "#"))
        ]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag):
        self.in_cell = self.in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        if self.in_cell:
            self.rows[-1][-1] += data.strip()

    def starting(self, first: str) -> list[str]:
        [found] = [row for row in self.rows if row and row[0].startswith(first)]
        return found


FACTS = {
    CAM: SiteFacts(NOON, {L1: Fact(DatasetState.AVAILABLE, NOON)}),
    RAL: SiteFacts(NOON, {L1: Fact(DatasetState.STAGING, NOON - HOUR, 0.25)}),
}


def view(**changes) -> ServerState:
    snapshot = Snapshot(FACTS, unseen_reasons={L2: "timeout"})
    wants = demand(want(L1, L2, jobs=3), want(L1, jobs=4))
    return server_state(**{"snapshot": snapshot, "demand": wants, **changes})


def shown(query: str = "", **changes) -> Parsed:
    return Parsed(render_overview(view(**changes), parse_selection(QueryParams(query))))


def many(number: int) -> ServerState:
    dids = [Did(f"a:{n:04}") for n in range(number)]
    state = Snapshot({CAM: SiteFacts(NOON, {did: Fact(DatasetState.AVAILABLE, NOON) for did in dids[::2]})})
    return view(snapshot=state, demand=demand(*(want(did) for did in dids)))


# what it says


def test_it_shows_datasets_with_jobs_and_the_state_at_each_site():
    page = shown()
    assert ["Dataset", "Jobs", "Where"] in page.rows
    assert [L1, "7", f"✔available: {CAM}↻staging: {RAL} 25 %"] in page.rows
    assert [f"{L2}not answered: timeout", "3", "not known"] in page.rows


def test_a_dataset_at_many_sites_names_the_first_of_each_state_and_counts_the_rest():
    best = Site("Z")
    facts = {Site(f"S{n:02}"): SiteFacts(NOON, {L1: Fact(DatasetState.PARTIAL, NOON)}) for n in range(20)}
    facts[best] = SiteFacts(NOON, {L1: Fact(DatasetState.AVAILABLE, NOON)})
    cell = shown(snapshot=Snapshot(facts)).starting(L1)[2]
    assert cell == f"✔available: {best}◐partial: S00, S01, S02, S03, S04, and {20 - MAX_PLACES} more"


def test_page_shows_a_state_by_words_and_a_sign_and_not_only_by_colour():
    for state in DatasetState:
        snapshot = Snapshot({CAM: SiteFacts(NOON, {L1: Fact(state, NOON)})})
        cell = shown(snapshot=snapshot).starting(L1)[2]
        assert re.fullmatch(rf"\W{state.value.lower()}: {CAM}", cell)


def words(state: ServerState) -> str:
    """Return what a reader sees of the page, after its style."""
    return " ".join(re.sub(r"<[^>]*>", " ", render_overview(state).partition("</style>")[2]).split())


def test_page_counts_the_jobs_that_have_a_site_with_all_their_data():
    assert "57 % of 7 jobs in the queues have a site with all their data" in words(view())
    assert "jobs in the queues" not in words(view(demand=demand()))


def site_rows(state: ServerState) -> list[str]:
    """Return the words of each site in the list, with its name first."""
    [rows] = re.findall(r'<ul class="sites">(.*?)</ul>', render_overview(state), re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in rows.split("</li>")[:-1]]


def site_facts(state: DatasetState, *, age=timedelta()) -> SiteFacts:
    return SiteFacts(NOON - age, {L1: Fact(DatasetState.AVAILABLE, NOON), L2: Fact(state, NOON, 0.5)})


def test_sites_have_one_row_each_and_the_worst_comes_first():
    facts = {
        "WHOLE": site_facts(DatasetState.AVAILABLE),
        "STUCK": site_facts(DatasetState.STUCK),
        "DOWN": site_facts(DatasetState.UNAVAILABLE),
        "NONE": SiteFacts(NOON, {}),
        "LATE": site_facts(DatasetState.AVAILABLE, age=2.5 * HOUR),
        "HALF": site_facts(DatasetState.STAGING, age=2 * HOUR),
        "HELD": site_facts(DatasetState.AVAILABLE),
        "NO-AD": site_facts(DatasetState.STAGING),
    }
    ads = {
        Site(site): ad(L1, site=Site(site), at=each.as_of) for site, each in facts.items() if site != "NO-AD"
    }
    held = {Site("HELD"): HeldLoss(NOON, NOON, {L1: 1}, 1, HoldCause.SITE)}
    snapshot = Snapshot({Site(site): each for site, each in facts.items()})
    assert site_rows(view(snapshot=snapshot, ads=ads, held_losses=held)) == [
        "HELD 2/2 held 0 s",
        "NO-AD 1/2 no ad ↻ 1 staging 0 s",
        "LATE 2/2 late 2 h",
        "DOWN 1/2 ⊘ 1 unreadable 0 s",
        "STUCK 1/2 ✖ 1 stuck 0 s",
        "HALF 1/2 ↻ 1 staging 2 h",
        "WHOLE 2/2 0 s",
        "NONE none 0 s",
    ]


def test_page_shows_a_held_change_with_its_numbers_datasets_and_command():
    held = HeldLoss(NOON - HOUR, NOON, {L1: 2, L2: 2}, 3, HoldCause.SITE)
    text = render_overview(view(held_losses={Site("CAM X"): held}))
    assert "2 of 3 datasets would leave the ad at once; 2 of 20 further polls confirm the loss" in text
    assert "<code>hydrator approve &#39;CAM X&#39;</code>" in text
    assert f"<li>{L1}</li><li>{L2}</li>" in text


def test_page_names_the_first_held_datasets_and_counts_the_rest():
    held = HeldLoss(NOON, NOON, {Did(f"a:{n:02}"): 1 for n in range(MAX_EXAMPLES + 3)}, 30, HoldCause.SITE)
    text = render_overview(view(held_losses={CAM: held}))
    assert text.count("<li>a:") == MAX_EXAMPLES
    assert "<li>and 3 more</li>" in text


def test_page_names_withheld_sites_once_for_each_reason_without_a_command():
    why = "the demand of schedd ap1 is not known yet"
    text = render_overview(view(withheld_reasons={RAL: why, CAM: why}))
    assert f"No ad yet for CAM, RAL: {why}." in text
    assert "hydrator approve" not in text


def test_the_first_line_says_how_many_things_need_you_and_the_next_ones_say_what():
    silent = CatalogueView(name="<rucio>", error="no answer within 10 s", failing_since=to_unix(NOON))
    text = words(view(catalogues=[silent]))
    assert text.index("1 thing needs you") < text.index(
        "catalogue &lt;rucio&gt; fails: no answer within 10 s hydrator check"
    )
    assert render_overview(view()).count("<h1>All is well</h1>") == 1


def test_many_needs_are_cut_and_a_reader_can_open_the_others():
    failing = CatalogueView(name="rucio", error="down", failing_since=to_unix(NOON))
    page = shown(catalogues=[replace(failing, name=f"{number}") for number in range(MAX_NEEDS + 2)])
    assert "<summary>and 2 more</summary>" in page.html
    assert page.html.count("<code>hydrator check</code>") == MAX_NEEDS + 2


def test_failing_catalogues_and_publishers_come_first_and_say_since_when():
    began, now = to_unix(NOON - HOUR), to_unix(NOON)
    rucio = CatalogueView(name="rucio", last_error="HTTP <503>", last_error_at=began)
    http = PublisherView(
        name="http",
        error="no room",
        failing_since=began,
        last_error="no room",
        last_error_at=now,
        rejected={},
    )
    state = view(catalogues=(rucio,), publishers=(http,))
    assert (
        "publisher http fails since 11:00 UTC catalogue rucio works; last error 1 h ago : HTTP &lt;503&gt;"
    ) in words(state)
    assert "publisher http fails for 1 h: no room hydrator check" in words(state)


def test_data_on_its_way_shows_what_is_ready_first_with_a_bar_and_a_time():
    requests = [request(did, CAM, 0.5, minutes=minutes) for did, minutes in ((L1, 90), (L2, 10), (L3, None))]
    state = view(staging=StagingOverview(NOON, "request", requests=tuple(requests)))
    text = words(state)
    assert f"{L2} to CAM 12:10 UTC 50 % {L1} to CAM 13:30 UTC 50 % {L3} to CAM no ETA 50 %" in text
    bars = [each for each in Parsed(render_overview(state)).attributes if each["tag"] == "progress"]
    assert bars[0]["value"] == "50"
    assert "Nothing is being staged." in words(view())


def test_page_lists_the_newest_changes_first_and_not_all():
    def entry(n):
        return HistoryEntry(
            NOON - n * MINUTE,
            CAM,
            (DatasetChange(0, L3, None, "AVAILABLE", "its catalogue"),),
        )

    page = shown(changes=[entry(n) for n in reversed(range(MAX_CHANGES + 3))])
    lines = re.findall(r"<li><time.*?</li>", page.html)
    words = [re.sub(r"<[^>]*>", "", line) for line in lines]
    assert len(words) == MAX_CHANGES
    assert words[0] == f"12:00 UTC{CAM}: 1 came{L3}: not listed to AVAILABLE, its catalogue"


def test_page_is_rendered_without_any_state():
    text = render_overview(
        view(
            snapshot=None,
            demand=None,
            not_ready_reason="no catalogue has been read yet",
            hang_reason="a poll",
        )
    )
    assert "Not ready: no catalogue has been read yet" in text
    assert "<p>the daemon hangs: a poll</p><code>systemctl status hydrator</code>" in text
    assert "No dataset is demanded yet" in text


# which datasets


def test_many_datasets_come_in_pages_without_a_script():
    everything = many(2 * PER_PAGE + 1)
    pages = [render_overview(everything, Selection(page=n)) for n in (1, 2, 3)]
    dids = [row[0] for text in pages for row in Parsed(text).rows if row[0].startswith("a:")]
    assert dids == sorted(everything.demand.dids)
    assert 'aria-current="page">Page 2 of 3<' in pages[1]
    links = [re.findall(r'<a href="/\?page=(\d)#datasets">(\w+)</a>', text) for text in pages]
    assert links[0] == [("2", "Next"), ("3", "Last")]
    assert links[1] == [("1", "First"), ("1", "Previous"), ("3", "Next"), ("3", "Last")]
    assert links[2] == [("1", "First"), ("2", "Previous")]
    assert render_overview(everything, parse_selection({"page": "999"})) == pages[2]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("find=L1", [L1]),
        ("find=+l1+", [L1]),
        ("find=L&page=-1", [L1, L2, L3]),
        ("page=%F0%9F&find=", [L1, L2, L3]),
        ("&".join("x=1" for _ in range(99)), [L1, L2, L3]),
    ],
)
def test_a_query_chooses_datasets_and_nonsense_chooses_nothing(query, found):
    page = shown(query, demand=demand(want(L1, jobs=3), want(L2, jobs=2), want(L3)))
    rows = [row[0].removesuffix("not answered: timeout") for row in page.rows if row[0].startswith("lofar")]
    assert rows == found


def test_a_name_with_a_plus_is_found():
    page = Parsed(render_overview(many(3), parse_selection({"find": "a+b"})))
    assert [a["value"] for a in page.attributes if a.get("name") == "find"] == ["a+b"]


def test_five_thousand_datasets_make_no_larger_page_than_a_hundred():
    few, lots = render_overview(many(PER_PAGE)), render_overview(many(5000))
    assert len(lots) < len(few) + 1000


# safe, and for everybody


def test_it_escapes_what_others_wrote_wherever_it_is_shown():
    site, did = Site(HOSTILE), Did(HOSTILE)
    held = HeldLoss(NOON, NOON, {did: 1}, 1, HoldCause.SITE)
    fact = Fact(DatasetState.PARTIAL, NOON, 0.5)
    hostile = server_state(
        ads={site: replace(ad(L1), site=site)},
        snapshot=Snapshot({site: SiteFacts(NOON, {did: fact})}, unseen_reasons={did: HOSTILE}),
        demand=demand(replace(want(L1), dids=(did,))),
        not_ready_reason=HOSTILE,
        now=NOON,
        held_reasons={site: HOSTILE, Site(f"{HOSTILE}2"): HOSTILE},
        hang_reason=HOSTILE,
        held_losses={site: held},
        changes=[HistoryEntry(NOON, site, (DatasetChange(0, did, HOSTILE, HOSTILE, HOSTILE),))],
    )
    for selected in (Selection(), Selection(name_contains=HOSTILE)):
        text = render_overview(hostile, selected)
        page = Parsed(text)
        assert page.tags.count("script") == 1
        assert "alert" not in " ".join(name for a in page.attributes for name in a)
        assert HOSTILE not in text
        assert page.outside == []


def test_it_needs_nothing_from_outside_and_runs_only_its_own_script():
    page = shown()
    assert page.outside == []
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    [script] = [a for a in page.attributes if a["tag"] == "script"]
    assert script.keys() == {"tag", "src", "defer"}
    assert "<script" not in page.html.replace(f'<script src="{script["src"]}" defer></script>', "")


def test_tables_have_captions_and_headers_with_scope_and_fields_have_labels():
    page = shown(changes=[HistoryEntry(NOON, CAM, ())])
    assert page.tags.count("table") == page.tags.count("caption") == 1
    assert {a.get("scope") for a in page.attributes if a["tag"] == "th"} == {"col", "row"}
    labelled = {a["for"] for a in page.attributes if a["tag"] == "label"}
    assert {a["id"] for a in page.attributes if a["tag"] in ("input", "select")} == labelled


@pytest.fixture(scope="module")
def answer():
    with server_of(view) as server, httpx.Client(trust_env=False, timeout=120) as client:
        yield client.get(f"{server.url}/?find=L1&page=7")


@pytest.mark.outside
def test_it_is_html_of_this_moment(answer):
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert 'value="L1"' in answer.text


@pytest.mark.outside
def test_content_security_policy_allows_only_the_own_style_script_and_form(answer):
    (style,) = re.findall("<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert answer.headers["Content-Security-Policy"].split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "script-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
