"""Sets of datasets that queued jobs need: /v1/sets and the table of the page."""

import re
from dataclasses import replace

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import Opening, Openings, Outlook, Reason, write_openings
from hydrator.domain.ads.set_answers import SetAnswer
from hydrator.domain.model import Did, Site, SiteAd, Snapshot, to_unix
from hydrator.domain.ports import IdleJobs, PoolLoad, ScheddLoad
from hydrator.server.handlers import parse_set_keys
from hydrator.server.pages.overview import MAX_ROWS, build_queued_sets, render_overview
from hydrator.server.responses import HttpError
from hydrator.server.view import view_sets, view_sites
from tests.factories import L1, L2, MINUTE, NOON, demand, server_state, want

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
STATE = server_state(
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
    (row,) = view_sets(STATE, {BOTH})
    assert (row.key, row.datasets, row.jobs, row.bytes) == (BOTH, 2, 3, 31_000_000_000)
    assert row.outlook == {"reason": "open", "sites": ("DE",), "number": 0, "lanes": ()}
    assert row.sites["DE"] == SetAnswer(0.62, to_unix(NOON), 240, UK)
    assert (row.sites["NL"].open_seconds, row.sites["UK"].share) == (None, 1)


def test_sets_of_most_jobs_come_first_and_unknown_keys_have_no_row():
    assert [row.jobs for row in view_sets(STATE)] == [3, 1]
    assert view_sets(STATE, {"sother"}) == []


def test_site_row_has_the_backlog_while_openings_are_valid():
    row = {each.site: each for each in view_sites(STATE)}["UK"]
    assert (row.backlog, row.open_until) == (3, to_unix(NOON + 10 * MINUTE))
    old = {each.site: each for each in view_sites(replace(STATE, now=NOON + 10 * MINUTE))}["UK"]
    assert (old.backlog, old.open_until) == (None, None)


def load(*idle: IdleJobs) -> PoolLoad:
    return PoolLoad(NOON, {"ap1": ScheddLoad(idle, ())}, ())


def test_page_has_the_sets_with_the_most_waiting_jobs_and_their_prospect():
    waiting = load(IdleJobs(2, BOTH), IdleJobs(3, BOTH), IdleJobs(7, set_key([L1]), is_auto=False))
    table = build_queued_sets(replace(STATE, load=waiting))
    assert (table.caption, table.note) == ("12 jobs, 2 sets", "")
    shown = re.findall(
        r"<b>(\d+)</b><p><a [^>]+>([^<]+)</a><small>([^<]+)<", render_overview(replace(STATE, load=waiting))
    )
    assert shown == [
        ("7", "lofar:L1, 20 GB", "waits beside its data only: no job has the mode auto"),
        ("5", "lofar:L1 and 1 more, 31 GB", "it may start now at DE by reading 12 GB from UK in 4 min"),
    ]


def test_page_counts_running_jobs_too_while_the_queues_are_not_known():
    assert build_queued_sets(STATE).caption == "4 queued or running jobs, 2 sets"
    assert build_queued_sets(replace(STATE, load=load())).rows == []


def test_page_says_why_reads_are_not_paced():
    note = build_queued_sets(replace(STATE, knowledge=replace(STATE.knowledge, openings=None))).note
    assert note.endswith("does not pace reads from other sites: the pool has no slots that take jobs.")


def test_page_says_how_many_sets_it_leaves_out():
    dids = [Did(f"a:{number:02}") for number in range(MAX_ROWS + 3)]
    table = build_queued_sets(replace(STATE, demand=demand(*(want(did, jobs=1) for did in dids))))
    assert (len(table.rows), table.more_count) == (MAX_ROWS, 3)


@pytest.mark.parametrize("query", [b"key=true", b"key=s", b"key=lofar:L1&key="])
def test_query_for_what_cannot_be_a_key_is_rejected_with_a_sentence(query):
    with pytest.raises(HttpError) as caught:
        parse_set_keys(query)
    assert (caught.value.status_code, "key is the DataLocalityKey of a job" in caught.value.detail) == (
        400,
        True,
    )
    assert parse_set_keys(f"key={BOTH}&key={set_key([L1])}".encode()) == {BOTH, set_key([L1])}
