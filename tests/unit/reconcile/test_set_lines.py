"""Sets in site ads: the share of a set at each site, its age, and the room for it."""

from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

import pytest

from hydrator.domain.ads.dataset_sets import SetKey, set_key
from hydrator.domain.ads.set_answers import SetAnswer, read_shares
from hydrator.domain.model import (
    DatasetState,
    DemandEntry,
    Did,
    Fact,
    Origin,
    SiteAd,
    SiteFacts,
    Snapshot,
    from_unix,
    to_unix,
)
from hydrator.reconcile.site_ads import (
    STATE_LINES_BYTES,
    Budget,
    Draft,
    dids_without_room,
    draft_site_ads,
    empty_draft,
    redraft,
)
from hydrator.reconcile.snapshot.merge import build_snapshot
from tests.factories import (
    BOUND,
    CAM,
    HOUR,
    L1,
    L2,
    L3,
    MINUTE,
    NOON,
    OSO,
    RAL,
    demand,
    facts,
    holding,
    memory,
    replica,
    want,
)

BOTH = set_key([L1, L2])
LOWER = Did("lofar:l1")


def drafts(view, *wants, **more) -> dict:
    return draft_site_ads(view, demand(*wants), budget=more.pop("budget", Budget()), **more)


def lines(view, *wants, site=CAM, **more) -> dict[str, str]:
    return dict(drafts(view, *wants, **more)[site].content)


def shares(view, *wants, site=CAM, **more) -> dict[SetKey, float]:
    draft = drafts(view, *wants, **more)[site]
    return {key: one.share for key, one in read_shares(SiteAd(site, NOON, 1, draft.content)).items()}


def partly(did: str, fraction: float | None, state=DatasetState.PARTIAL):
    return replica(did, state=state, fraction=fraction)


# ---- shares


def test_every_site_has_the_share_of_every_demanded_set():
    view = facts(replica(L1, CAM), replica(L2, CAM), replica(L1, RAL), asked=[L3])
    wants = (want(L1, L2), want(L2, L3), want(L3))
    keys = [want.key for want in wants]
    assert shares(view, *wants, site=CAM) == dict(zip(keys, [1.0, 0.5, 0.0], strict=True))
    assert shares(view, *wants, site=RAL) == dict(zip(keys, [0.5, 0.0, 0.0], strict=True))


def test_only_a_set_whose_datasets_are_all_available_has_the_share_of_1():
    some = Did("lofar:L4")
    view = facts(replica(L1), partly(L2, 1.0, DatasetState.STAGING), partly(L3, 0.9999), partly(some, 0.57))
    sets = want(L1), want(L1, L2), want(L3), want(some)
    assert shares(view, *sets) == dict(zip([one.key for one in sets], [1.0, 0.99, 0.99, 0.57], strict=True))


def test_datasets_that_collide_by_letter_case_are_never_usable():
    view = facts(replica(L1), replica(LOWER), replica(L2))
    assert shares(view, want(L1), want(LOWER), want(L1, L2)) == {
        set_key([L1]): 0.0,
        set_key([LOWER]): 0.0,
        BOTH: 0.5,
    }


# ---- unknown is not absent


def test_set_with_a_dataset_that_no_catalogue_has_read_is_unknown_everywhere():
    known = memory(holding(replica(L1)))
    view = build_snapshot({"rucio": known}, {L1, L2}, now=NOON, max_age=BOUND)
    assert view.unread_dids == {L2}
    assert shares(view, want(L1, L2), want(L1), want(L2)) == {set_key([L1]): 1.0}


def test_withheld_key_is_in_no_ad_and_its_datasets_are():
    """Other jobs look up the same key for another list (cases/submit.md, S1 to S3)."""
    view = facts(replica(L1), replica(L2))
    ad = lines(view, replace(want(L1, L2), key=None), want(L2))
    assert ad["DataLocalitySets"] == f"['{set_key([L2])}'=1.0]"
    assert ad["AvailableDatasets"] == f'{{"{L1}","{L2}"}}'
    assert ad["DataLocalityTruncated"] == "false"


@pytest.mark.parametrize("waiting", [(), (BOTH,), (set_key([L1]),)])
def test_set_for_which_no_job_waits_is_shown_only_where_it_is_whole(waiting):
    """Its jobs run; an auto job of a schedd that the daemon does not see would wait until they have ended."""
    view = facts(replica(L1, CAM), replica(L1, OSO, DatasetState.PARTIAL, 0.5), replica(L2, RAL))
    wanted = replace(demand(want(L1)), waiting=frozenset(waiting))
    key, shown = set_key([L1]), {}
    for site, draft in draft_site_ads(view, wanted, budget=Budget()).items():
        ad = SiteAd(site, NOON, 1, draft.content)
        shown[site] = read_shares(ad).keys()
        whole = SiteAd(site, NOON, 1, drafts(view, want(L1))[site].content)
        again = redraft(whole, wanted, now=NOON, max_age=BOUND)
        assert read_shares(replace(ad, content=again.content)).keys() == shown[site]
    everywhere = key in waiting
    assert shown == {CAM: {key}, OSO: {key} if everywhere else set(), RAL: {key} if everywhere else set()}


@pytest.mark.parametrize("origin", [Origin.PATTERN, Origin.PIN])
def test_set_that_no_job_names_is_shown_only_where_it_is_whole(origin):
    """Else an auto job that the daemon does not see, such as of a pool that flocks, would wait for ever."""
    part = replica(L1, OSO, DatasetState.PARTIAL, 0.5)
    view = facts(replica(L1, CAM), replica(L2, RAL), part)
    entry = replace(want(L1), origin=origin, job_count=0)
    assert shares(view, entry, site=CAM) == {set_key([L1]): 1.0}
    assert shares(view, entry, site=RAL) == {}
    assert shares(view, entry, site=OSO) == {}
    for other in (want(L1), replace(want(L1), job_count=0)):
        assert shares(view, entry, other, site=RAL) == {set_key([L1]): 0.0}
        assert shares(view, entry, other, site=OSO) == {set_key([L1]): 0.5}


def test_drafts_change_when_the_first_job_names_a_set():
    view = facts(replica(L2), asked=[L1])
    matched = replace(want(L1), origin=Origin.PATTERN)
    assert shares_in(drafts(view, matched)[CAM]) == {}
    assert shares_in(drafts(view, want(L1))[CAM]) == {set_key([L1]): 0.0}


# ---- an ad without new facts: nobody answers, or a clock step


def aged(ages: dict[Did, timedelta]) -> SiteAd:
    """The ad of a site with datasets of these ages."""
    rows = {did: Fact(DatasetState.AVAILABLE, NOON - age) for did, age in ages.items()}
    view = Snapshot({CAM: SiteFacts(NOON, rows)})
    wants = (want(*ages), *(want(did) for did in ages), want(L3))
    return SiteAd(CAM, NOON, 7, drafts(view, *wants)[CAM].content)


def shares_in(draft: Draft) -> dict[SetKey, float]:
    return {key: one.share for key, one in read_shares(SiteAd(CAM, draft.as_of, 1, draft.content)).items()}


def test_redraft_drops_sets_with_a_fact_past_the_bound():
    ad, asked = aged({L1: HOUR, L2: timedelta()}), demand(want(L1, L2), L1, L2, L3)
    in_time = redraft(ad, asked, now=NOON + BOUND - HOUR, max_age=BOUND)
    assert shares_in(in_time) == {key: one.share for key, one in read_shares(ad).items()}
    late = redraft(ad, asked, now=NOON + BOUND - MINUTE, max_age=BOUND)
    assert shares_in(late) == {set_key([L2]): 1.0, set_key([L3]): 0.0}
    assert "UNKNOWN" in dict(late.content)["DatasetStates"]


def test_empty_draft_has_no_sets():
    content = dict(empty_draft(aged({L1: HOUR})).content)
    assert (content["DataLocalitySets"], content["DataLocalitySetsAsOf"]) == ("[]", "[]")


def test_entries_of_another_daemon_version_are_skipped():
    content = (
        ("DataLocalitySets", "[sabc=oops;sabd=1.0]"),
        ("DataLocalitySetsAsOf", "[sabd=99999999999999]"),
    )
    assert read_shares(SiteAd(CAM, NOON, 1, content)) == {}
    assert read_shares(SiteAd(CAM, NOON, 1, content[:1])) == {SetKey("sabd"): SetAnswer(1.0, to_unix(NOON))}


# ---- room


def run(number: int, bands: int = 244) -> DemandEntry:
    """A keyed job of one observation with so many sub-bands, in full length."""
    return want(*(f"lofar:L{600_000 + number}_SB{band:03}_uv.MS" for band in range(bands)))


def test_ad_holds_1000_sets_of_244_sub_bands_with_ages():
    """The facts are older than the site, and partial: all lines are long."""
    runs = [run(number) for number in range(1000)]
    later = NOON + MINUTE
    rows = {did: Fact(DatasetState.STAGING, NOON, 0.371) for one in runs for did in one.dids}
    view = Snapshot({CAM: SiteFacts(later, rows)})
    draft = drafts(view, *runs)[CAM]
    ad = dict(draft.content)
    for name in ("DataLocalitySets", "DataLocalitySetsAsOf"):
        assert ad[name].count("=") == 1000, name
    assert draft.omitted_entries == ()
    sizes = [len(f"{name} = {literal}") for name, literal in draft.content]
    assert max(sizes) <= Budget().line_bytes
    assert sum(sizes[1:-3]) <= Budget().ad_bytes
    assert ad["DataLocalityTruncated"] == "true", "the states of 244,000 datasets have no room"


def hashed(number: int) -> tuple[str, str]:
    name = sha256(str(number).encode()).hexdigest()[:8]
    return f"x:{name}", f"x:{name}b"


SET_BYTES = len(f"'{set_key(hashed(0))}'=0.5;")


def room_for(sets: int) -> Budget:
    return Budget(line_bytes=len("DataLocalitySets = []") + sets * SET_BYTES)


def test_most_demanded_sets_have_room_first():
    wants = [want(*hashed(number), jobs=9 - number) for number in range(5)]
    view = facts(*(replica(one.dids[0]) for one in wants), asked=[one.dids[1] for one in wants])
    drafted = drafts(view, *wants, budget=room_for(3))
    assert shares_in(drafted[CAM]).keys() == {one.key for one in wants[:3]}
    assert drafted[CAM].omitted_entries == tuple(wants[3:])
    assert dict(drafted[CAM].content)["DataLocalityTruncated"] == "true"
    assert dids_without_room(drafted)[CAM] == {did for one in wants[3:] for did in one.dids}


def test_sets_with_data_at_the_site_have_room_before_sets_without():
    wants = [want(*hashed(number)) for number in range(5)]
    view = facts(replica(wants[4].dids[0]), asked=[did for one in wants for did in one.dids])
    drafted = drafts(view, *wants, budget=room_for(2))
    assert shares_in(drafted[CAM]) == {wants[4].key: 0.5, wants[0].key: 0.0}
    assert drafted[CAM].omitted_entries == (), "a set of which the site has nothing is not reported"
    assert dict(drafted[CAM].content)["DataLocalityTruncated"] == "true"


def test_set_that_is_too_large_leaves_room_for_others():
    large, small = replace(want("x:large"), key=SetKey("x:" + "a" * 300)), want(*hashed(0))
    view = facts(*(replica(did) for did in (*large.dids, *small.dids)))
    drafted = drafts(view, large, small, budget=room_for(5))
    assert (shares_in(drafted[CAM]), drafted[CAM].omitted_entries) == ({small.key: 1.0}, (large,))


@pytest.mark.parametrize(("missing_bytes", "sets"), [(0, 3), (1, 2)])
def test_sets_leave_room_for_the_lines_of_states_in_the_ad(missing_bytes, sets):
    wants = [want(*hashed(number)) for number in range(5)]
    view = facts(*(replica(one.dids[0]) for one in wants), asked=[one.dids[1] for one in wants])
    lines_bytes = len("DataLocalitySets = []DataLocalitySetsAsOf = []") + STATE_LINES_BYTES
    budget = Budget(ad_bytes=lines_bytes + 3 * SET_BYTES - missing_bytes)
    assert len(shares_in(drafts(view, *wants, budget=budget)[CAM])) == sets


def test_line_of_the_times_of_sets_has_the_same_bound():
    wants = [want(*hashed(number)) for number in range(3)]
    rows = {did: Fact(DatasetState.AVAILABLE, NOON - MINUTE) for one in wants for did in one.dids}
    budget = room_for(3)
    drafted = drafts(Snapshot({CAM: SiteFacts(NOON, rows)}), *wants, budget=budget)[CAM]
    assert max(len(f"{name} = {text}") for name, text in drafted.content) <= budget.line_bytes
    assert drafted.omitted_entries


def test_sets_have_room_before_states():
    wants = [want("x:a", "x:b", jobs=9), want("x:c")]
    view = facts(*(replica(did) for one in wants for did in one.dids))
    sets = len("DataLocalitySets = ['x:a,x:b'=1.0;'x:c'=1.0;]DataLocalitySetsAsOf = []")
    drafted = drafts(view, *wants, budget=Budget(ad_bytes=sets + STATE_LINES_BYTES + 30))
    assert set(shares_in(drafted[CAM])) == {one.key for one in wants}
    assert dict(drafted[CAM].content)["DatasetStates"] == "['x:a'=\"AVAILABLE\"]"
    assert drafted[CAM].omitted_entries == (), "jobs do not need the states"


def test_times_of_sets_are_whole_seconds():
    half = timedelta(microseconds=500_000)
    rows = {L1: Fact(DatasetState.AVAILABLE, NOON + half), L2: Fact(DatasetState.AVAILABLE, NOON - half)}
    ad = dict(drafts(Snapshot({CAM: SiteFacts(NOON + half, rows)}), want(L1), want(L2))[CAM].content)
    assert ad["DataLocalitySetsAsOf"] == f"['{set_key([L2])}'={to_unix(NOON) - 1}]"
    assert from_unix(to_unix(NOON)) == NOON
