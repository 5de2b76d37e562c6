"""Sets of datasets that queued jobs need: /v1/sets and the table of the page."""

from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.estimates import Estimates, SetEstimate, SiteEstimates
from hydrator.domain.model import Site, SiteAd, Snapshot, to_unix
from hydrator.server.api import models
from hydrator.server.api.dataset_query import parse_set_keys
from hydrator.server.api.rows import build_set_rows, build_site_row
from hydrator.server.pages.overview import render_overview
from hydrator.server.pages.queued_sets import build_queued_sets
from hydrator.server.responses import HttpError
from hydrator.server.view import ServerState
from tests.factories import L1, L2, MINUTE, NOON, demand, want

BOTH = set_key([L1, L2])


def ad(site: str, share: float, *, read: int | None = None, queue: int | None = None) -> SiteAd:
    lines = [("DataLocalitySets", f"['{BOTH}'={share}]")]
    if queue is not None:
        lines += [("DataLocalityQueueSeconds", f"['{BOTH}'={queue}]"), ("DataLocalityOwnQueueSeconds", "64")]
    if read is not None:
        lines += [
            ("DataLocalityReadSeconds", f"['{BOTH}'={read}]"),
            ("DataLocalityReadFrom", f"['{BOTH}'=\"UK\"]"),
        ]
    return SiteAd(Site(site), NOON, 7, (*lines, ("DataLocalityVersion", "1")), NOON + 10 * MINUTE)


ADS = {
    one.site: one
    for one in (ad("UK", 1.0), ad("DE", 0.62, read=240, queue=720), ad("NL", 0.0, queue=720), ad("PL", 0.0))
}
ESTIMATE = SetEstimate(240, 720, Site("UK"), missing_bytes=12_000_000_000, queue_site=Site("NL"))
STATE = ServerState(
    ADS,
    Snapshot({}, bytes_total={L1: 20_000_000_000, L2: 11_000_000_000}),
    demand(want(L1, L2, jobs=3), want(L1, jobs=1)),
    None,
    NOON,
    estimates=Estimates(NOON + 10 * MINUTE, {Site("DE"): SiteEstimates({BOTH: ESTIMATE})}),
    no_estimates_reason="the rates are unknown",
)


def test_rows_have_both_estimates_at_each_site():
    (row,) = build_set_rows(STATE, {BOTH})
    assert (row["key"], row["datasets"], row["jobs"], row["bytes"]) == (BOTH, 2, 3, 31_000_000_000)
    sites = {each["site"]: each for each in row["sites"]}
    assert sites["DE"] == {
        "site": "DE",
        "share": 0.62,
        "as_of": to_unix(NOON),
        "read_seconds": 240,
        "queue_seconds": 720,
        "read_from": "UK",
        "queue_site": "NL",
    }
    assert (sites["NL"]["read_seconds"], sites["NL"]["queue_seconds"]) == (None, 720)
    assert sites["PL"]["queue_site"] is None
    assert sites["UK"]["share"] == 1
    TypeAdapter(list[models.DatasetSetAnswer]).validate_python([row])


def test_sets_of_most_jobs_come_first_and_unknown_keys_have_no_row():
    assert [row["jobs"] for row in build_set_rows(STATE, ())] == [3, 1]
    assert build_set_rows(STATE, {"sother"}) == []


def test_site_row_has_the_queue_of_its_own_jobs_while_estimates_are_valid():
    row = build_site_row(STATE, ADS[Site("DE")])
    assert (row["own_queue_seconds"], row["estimates_until"]) == (64, to_unix(NOON + 10 * MINUTE))
    old = build_site_row(replace(STATE, now=NOON + 10 * MINUTE), ADS[Site("DE")])
    assert (old["own_queue_seconds"], old["estimates_until"]) == (None, None)


def test_page_says_where_each_set_is_and_how_long_a_read_and_the_queue_take():
    table = build_queued_sets(STATE)
    first = table.rows[0]
    assert (first.name, first.jobs) == ("lofar:L1 and 1 more, 31 GB", 3)
    assert dict(zip(table.sites, first.cells, strict=True)) == {
        "DE": "62 % here; read 4 min from UK, queue 12 min at NL",
        "NL": "not here; no read, queue 12 min",
        "PL": "not here",
        "UK": "all here",
    }
    assert table.rows[1].cells == ["not published"] * 4
    assert table.note == ""
    page = render_overview(STATE)
    assert "62 % here; read 4 min from UK, queue 12 min at NL" in page
    assert BOTH in page


def test_page_says_where_and_when_the_next_job_of_each_set_starts():
    away = "at DE, reading 12 GB from UK takes 4 min after 1 min 4 s of other jobs whose data is here"
    assert [row.start for row in build_queued_sets(STATE).rows] == [
        f"runs elsewhere from 12:00 UTC: {away}, NL's next slot is 12 min away",
        "",
    ]
    slow = {**ADS, Site("DE"): ad("DE", 0.62, read=7200, queue=720)}
    start = build_queued_sets(replace(STATE, ads=slow)).rows[0].start
    assert start.startswith("waits beside its data until 12:12 UTC: at DE, reading 12 GB from UK takes 2 h")
    assert "runs elsewhere from 12:00 UTC: at DE, reading 12 GB from UK" in render_overview(STATE)


def test_page_says_why_there_are_no_estimates():
    old = {site: replace(one, estimates_until=None) for site, one in ADS.items()}
    table = build_queued_sets(replace(STATE, ads=old))
    assert table.note == "The daemon has no estimates of reads and queues: the rates are unknown."
    assert table.rows[0].cells[0] == "62 % here"


@pytest.mark.parametrize("query", [b"key=true", b"key=s", b"key=lofar:L1&key="])
def test_query_for_what_cannot_be_a_key_is_rejected_with_a_sentence(query):
    with pytest.raises(HttpError) as caught:
        parse_set_keys(query)
    assert (caught.value.status_code, "key is the DataLocalityKey of a job" in caught.value.detail) == (
        400,
        True,
    )
    assert parse_set_keys(f"key={BOTH}&key={set_key([L1])}".encode()) == {BOTH, set_key([L1])}
