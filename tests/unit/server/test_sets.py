"""Sets of datasets that queued jobs need: /v1/sets and the table of the page."""

from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import Opening, Openings, Outlook, Reason, write_openings
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
UK = Site("UK")


def ad(site: str, share: float, *, read: int | None = None) -> SiteAd:
    content = (("DataLocalitySets", f"['{BOTH}'={share}]"), ("DataLocalityVersion", "1"))
    openings = write_openings({} if read is None else {f"{BOTH}~3": Opening(read, UK, 12 * 10**9)}, 64)
    return SiteAd(Site(site), NOON, 7, content, openings, NOON + 10 * MINUTE)


ADS = {one.site: one for one in (ad("UK", 1.0), ad("DE", 0.62, read=240), ad("NL", 0.0))}
OPENINGS = Openings(
    {Site("DE"): {f"{BOTH}~3": Opening(240, UK, 12 * 10**9)}},
    to_unix(NOON) + 600,
    {UK: 3},
    {BOTH: Outlook(Reason.OPEN, (Site("DE"),))},
)
STATE = ServerState(
    ADS,
    Snapshot({}, bytes_total={L1: 20_000_000_000, L2: 11_000_000_000}),
    demand(want(L1, L2, jobs=3), want(L1, jobs=1)),
    None,
    NOON,
    openings=OPENINGS,
    no_openings_reason="the pool has no slots that take jobs",
)


def test_rows_have_the_share_and_the_opening_at_each_site():
    """A set of which one lane is open counts as open."""
    (row,) = build_set_rows(STATE, {BOTH})
    assert (row["key"], row["datasets"], row["jobs"], row["bytes"]) == (BOTH, 2, 3, 31_000_000_000)
    assert row["outlook"] == {"reason": "open", "sites": ["DE"], "before": 0}
    sites = {each["site"]: each for each in row["sites"]}
    expected = {"share": 0.62, "as_of": to_unix(NOON), "open_seconds": 240, "read_from": "UK"}
    assert sites["DE"] == {"site": "DE", **expected}
    assert (sites["NL"]["open_seconds"], sites["UK"]["share"]) == (None, 1)
    TypeAdapter(list[models.DatasetSetAnswer]).validate_python([row])


def test_sets_of_most_jobs_come_first_and_unknown_keys_have_no_row():
    assert [row["jobs"] for row in build_set_rows(STATE, ())] == [3, 1]
    assert build_set_rows(STATE, {"sother"}) == []


def test_site_row_has_the_backlog_while_openings_are_valid():
    row = build_site_row(STATE, ADS[Site("DE")])
    assert (row["backlog"], row["open_until"]) == (64, to_unix(NOON + 10 * MINUTE))
    old = build_site_row(replace(STATE, now=NOON + 10 * MINUTE), ADS[Site("DE")])
    assert (old["backlog"], old["open_until"]) == (None, None)


def test_page_says_where_each_set_is_and_the_prospect_of_its_jobs():
    table = build_queued_sets(STATE)
    first = table.rows[0]
    assert (first.name, first.jobs) == ("lofar:L1 and 1 more, 31 GB", 3)
    assert dict(zip(table.sites, first.cells, strict=True)) == {
        "DE": "62 % here; open: read 4 min from UK",
        "NL": "not here",
        "UK": "all here",
    }
    assert first.start == "it may start now at DE by reading 12 GB from UK in 4 min"
    assert table.rows[1].cells == ["not published"] * 3
    assert (table.rows[1].start, table.note) == ("", "")
    page = render_overview(STATE)
    assert "62 % here; open: read 4 min from UK" in page
    assert BOTH in page


def test_page_says_why_reads_are_not_paced():
    table = build_queued_sets(
        replace(STATE, ads={site: replace(one, open_until=None) for site, one in ADS.items()})
    )
    assert table.note.endswith("does not pace reads from other sites: the pool has no slots that take jobs.")
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
