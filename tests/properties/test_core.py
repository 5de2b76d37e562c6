"""What holds of the core for all inputs, as far as hypothesis can think of them."""

import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hydrator.domain.ads.set_answers import read_shares
from hydrator.domain.errors import BadDid
from hydrator.domain.model import (
    ActionKind,
    DatasetState,
    Demand,
    Did,
    Fact,
    Site,
    SiteAd,
    SiteFacts,
    Snapshot,
    parse_did,
    to_unix,
)
from hydrator.domain.untrusted import MAX_AHEAD, is_ahead
from hydrator.reconcile.demand import DemandMemory, RememberedJobs
from hydrator.reconcile.publish import apply_plan, plan
from hydrator.reconcile.site_ads import Budget, Draft, assign_generations, draft_site_ads
from hydrator.reconcile.snapshot.merge import CatalogueMemory, DatasetRecord
from hydrator.reconcile.state import ReconcileState
from hydrator.state.store import Store
from tests.factories import HOUR, MINUTE, NOON, ad
from tests.factories import want as make_want
from tests.memory import MemoryPublisher

SITES = [Site(name) for name in ("A", "B", "C", "D")]
names = st.text("abXY01._/@=+~-", min_size=1, max_size=12)
dids = st.builds(lambda scope, name: Did(f"{scope}:{name}"), names, names)
sites = st.sampled_from(SITES)
moments = st.integers(0, 80 * 365 * 24 * 3600 * 10**6).map(
    lambda microseconds: NOON + timedelta(microseconds=microseconds)
)
near = st.integers(-24 * 3600, 3600).map(lambda seconds: NOON + timedelta(seconds=seconds))
fractions = st.none() | st.floats(0, 1)
facts = st.builds(Fact, st.sampled_from(DatasetState), near, fractions)


# ---- DIDs


@given(st.text(max_size=40), st.none() | names)
def test_what_is_taken_as_a_did_is_safe_in_ads_and_reads_the_same_again(text, scope):
    try:
        did = parse_did(text, scope)
    except BadDid:
        return
    assert did.isascii()
    assert did.isprintable()
    assert not set(did) & set(" '\"\\,;{}[]()$&|<>")
    assert parse_did(did) == parse_did(did, "other") == did


# ---- ads and their budget


@st.composite
def crowded(draw):
    """One site with facts of every state and age, and wants that overlap."""
    here = draw(st.dictionaries(dids, facts, max_size=25))
    known = sorted(here) or [Did("s:none")]
    groups = st.lists(st.sampled_from(known) | dids, min_size=1, max_size=6)
    wants = [make_want(*group, jobs=draw(st.integers(0, 5))) for group in draw(st.lists(groups, max_size=10))]
    budget = Budget(draw(st.integers(30, 900)), draw(st.integers(100, 2000)))
    return Snapshot({SITES[0]: SiteFacts(NOON, here)}), Demand(tuple(wants)), budget


def keys(literal: str) -> set[str]:
    return set(literal.split("'")[1::2])


@given(crowded())
@settings(max_examples=300, deadline=None)
def test_every_set_is_in_or_named_as_left_out_and_nothing_else_is_listed(case):
    view, demanded, budget = case
    here = view.sites[SITES[0]].facts
    draft = draft_site_ads(view, demanded, budget=budget)[SITES[0]]
    lines = dict(draft.content)
    said = keys(lines["DatasetStates"])
    demanded_here = dict.fromkeys(did for want in demanded.entries for did in want.dids if did in here)
    assert list(demanded_here)[: len(said)] == [did for did in demanded_here if did in said]
    assert said <= demanded_here.keys()
    sets = read_shares(SiteAd(SITES[0], NOON, 1, draft.content))
    uncertain = {did for did, fact in here.items() if fact.state is DatasetState.UNKNOWN}
    for want in demanded.entries:
        has_set = want.key in sets or bool(uncertain & set(want.dids))
        if want in draft.omitted_entries:
            assert set(want.dids) & set(here)
            assert want.key not in sets
        elif set(want.dids) & set(here):
            assert has_set
    assert sets.keys() <= {want.key for want in demanded.entries}
    assert keys(lines["DatasetFractions"]) | keys(lines["DatasetAsOf"]) <= said
    listed = [did for did in lines["AvailableDatasets"].strip("{}").replace('"', "").split(",") if did]
    assert listed == sorted(d for d in said if here[Did(d)].state is DatasetState.AVAILABLE)
    if draft.omitted_entries or said != demanded_here.keys():
        assert lines["DataLocalityTruncated"] == "true"


@given(crowded())
@settings(max_examples=300, deadline=None)
def test_a_smaller_budget_never_says_more_of_the_most_wanted_job(case):
    """If its set is too large, it is too large alone."""
    view, demanded, budget = case
    roomy = draft_site_ads(view, demanded, budget=Budget())[SITES[0]]
    tight = draft_site_ads(view, demanded, budget=budget)[SITES[0]]
    assert roomy.omitted_entries == ()
    if demanded.entries and demanded.entries[0] in tight.omitted_entries:
        first = demanded.entries[0]
        alone = draft_site_ads(view, Demand((first,)), budget=budget)[SITES[0]]
        assert alone.omitted_entries == (first,)


# ---- generations


DAY = int(MAX_AHEAD.total_seconds())
shown_elsewhere = (
    st.none() | st.integers(0, 2**31) | st.integers(to_unix(NOON) - 5000, to_unix(NOON) + DAY + 5000)
)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-5000, 5000), shown_elsewhere)))
def test_a_generation_changes_with_the_content_only_and_never_goes_back(history):
    """But for one that is a day ahead of the clock: nobody follows that."""
    last: dict[Site, SiteAd] = {}
    site = SITES[0]
    for content, shift, published in history:
        draft = Draft(site, NOON, (("X", str(content)),))
        there = {} if published is None else {site: published}
        now = NOON + timedelta(seconds=shift)
        new = assign_generations({site: draft}, last, published_generations=there, now=now)
        believed = published if published is not None and not is_ahead(published, now) else 0
        kept = False
        if site in last:
            before = last[site]
            kept = before.content == draft.content and believed <= before.generation
            kept = kept and not is_ahead(before.generation, now)
            assert (new[site].generation == before.generation) == kept
            assert new[site].generation >= before.generation or is_ahead(before.generation, now)
        assert new[site].generation >= believed
        assert kept or new[site].generation <= to_unix(now) + DAY
        last = new


# ---- plans


ads_of_sites = st.dictionaries(sites, st.tuples(st.integers(1, 3), st.integers(0, 2))).map(
    lambda given: {
        site: ad("s:1", site=site, generation=generation, at=NOON - hours * HOUR)
        for site, (generation, hours) in given.items()
    }
)


@given(ads_of_sites, ads_of_sites, st.sets(sites), st.booleans(), st.integers(0, 600))
def test_applying_a_plan_reaches_the_desired_ads_and_then_rests(there, desired, retired, expires, age):
    now = [NOON - timedelta(seconds=age)]
    publisher = MemoryPublisher(clock=lambda: now[0])
    publisher.publish(list(there.values()))
    now[0] = NOON
    refresh_after = 5 * MINUTE if expires else None

    def decide():
        return plan(publisher.published(), desired, retired=retired, now=NOON, refresh_after=refresh_after)

    todo = decide()
    assert todo == decide()
    assert [action.site for action in todo] == sorted({action.site for action in todo})
    assert {action.site for action in todo if action.kind is ActionKind.WITHDRAW} == retired & set(there)
    assert apply_plan(todo, publisher).unconfirmed_sites == ()
    for site, ad_there in publisher.ads.items():
        assert site not in retired
        if site in desired:
            assert (ad_there.generation, ad_there.content) == (
                desired[site].generation,
                desired[site].content,
            )
        else:
            assert ad_there == there[site]
    assert set(publisher.ads) == (set(there) | set(desired)) - retired
    sent = dict(publisher.ads)
    assert apply_plan(decide(), publisher).unconfirmed_sites == ()
    assert publisher.ads == sent


# ---- the store

texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)
knowns = st.builds(
    DatasetRecord,
    moments,
    st.dictionaries(texts.map(Site), st.builds(Fact, st.sampled_from(DatasetState), moments, fractions)),
    st.none() | st.integers(0, 2**63),
    st.frozensets(dids, max_size=2),
)
memories = st.builds(
    CatalogueMemory,
    st.none() | moments,
    st.frozensets(texts.map(Site)),
    st.dictionaries(dids, knowns, max_size=4),
    st.dictionaries(dids, texts, max_size=3),
    st.frozensets(texts),
    st.none() | texts,
)
remembered = st.builds(
    RememberedJobs,
    texts,
    st.lists(dids, min_size=1, max_size=3).map(tuple),
    st.integers(0, 2**40),
    moments,
    texts,
)
siteads = st.builds(
    SiteAd,
    texts.map(Site),
    moments,
    st.integers(0, 2**40),
    *[st.lists(st.tuples(texts, texts)).map(tuple)] * 2,
    st.none() | moments,
)
whole_states = st.builds(
    ReconcileState,
    st.dictionaries(texts, memories, max_size=3),
    st.builds(
        DemandMemory,
        st.lists(remembered, max_size=4, unique_by=lambda w: (w.schedd, w.dids, w.key)).map(
            lambda wants: tuple(sorted(wants, key=lambda w: (w.schedd, w.dids, w.key)))
        ),
        st.dictionaries(texts, texts, max_size=3),
    ),
    st.dictionaries(texts, st.frozensets(dids, max_size=3), max_size=3),
    st.lists(siteads, max_size=3).map(lambda made: {one.site: one for one in made}),
)


@given(st.lists(whole_states, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_was_saved_before_the_last_state_comes_back_to_the_microsecond(history):
    with tempfile.TemporaryDirectory() as folder:
        for state in history:
            with Store.open_to_write(Path(folder)) as store:
                store.save(state)
                assert store.load() == state
        with Store.open_to_read(Path(folder)) as looking:
            assert looking.load() == history[-1]
