"""Laws of the demanded sets in site ads, for all inputs that hypothesis can think of."""

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hydrator.domain.ads.contract import DATASET_FRACTIONS
from hydrator.domain.ads.dataset_sets import SetKey, hash_key, names_key, set_key
from hydrator.domain.ads.set_answers import read_shares
from hydrator.domain.model import (
    DatasetState,
    Demand,
    Did,
    Fact,
    QueuedJobs,
    ScheddDemand,
    Site,
    SiteAd,
    SiteFacts,
    Snapshot,
    from_unix,
    to_unix,
)
from hydrator.reconcile.demand import DemandMemory, build_demand, update_demand_memory
from hydrator.reconcile.site_ads import Budget, draft_site_ads, redraft
from tests.factories import NOON, want

THOROUGH = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
HERE = Site("A")
DIDS = [Did(f"S:{name}") for name in ("a", "B", "c@d", "e", "long-name-" * 4)]
sizes = st.dictionaries(st.sampled_from(DIDS), st.integers(0, 10**15) | st.integers(0, 3))
near = st.integers(-24 * 3600, 0).map(lambda seconds: NOON + timedelta(seconds=seconds))
states = st.sampled_from(DatasetState) | st.just(DatasetState.AVAILABLE)
facts = st.builds(Fact, states, near, st.none() | st.floats(0, 1))
groups = st.lists(st.sampled_from(DIDS), min_size=1, max_size=5, unique=True).map(lambda d: tuple(sorted(d)))
wants = st.lists(
    st.builds(lambda dids, jobs: want(*dids, jobs=jobs), groups, st.integers(0, 5)),
    max_size=8,
)


@st.composite
def worlds(draw):
    here = draw(st.dictionaries(st.sampled_from(DIDS), facts))
    unread = draw(st.frozensets(st.sampled_from(DIDS), max_size=1)) - here.keys()
    view = Snapshot({HERE: SiteFacts(NOON, here)}, bytes_total=draw(sizes), unread_dids=unread)
    return view, Demand(tuple(draw(wants)))


def keys_of(demand: Demand) -> dict[SetKey, tuple[Did, ...]]:
    return {want.key: want.dids for want in demand.entries}


def shares(view, demand, budget=Budget(), **more):  # noqa: B008 - frozen
    draft = draft_site_ads(view, demand, budget=budget, **more)[HERE]
    return read_shares(SiteAd(HERE, NOON, 1, draft.content)), draft


def on_disk(dids, view) -> Fraction:
    """The exact share of the bytes on disk."""
    here, sized = view.sites[HERE].facts, [view.bytes_total.get(did) for did in dids]
    weights = sized if None not in sized and sum(sized) else [1] * len(dids)
    parts = [
        Fraction(1 if here[did].state is DatasetState.AVAILABLE else here[did].fraction or 0) * weight
        for did, weight in zip(dids, weights, strict=True)
        if did in here
    ]
    return sum(parts, Fraction(0)) / sum(weights)


@given(worlds())
@settings(THOROUGH, max_examples=300)
def test_share_is_never_above_the_truth_and_1_only_if_all_is_usable(world):
    view, demand = world
    here = view.sites[HERE].facts
    published, _ = shares(view, demand)
    for key, dids in keys_of(demand).items():
        known = [here[did] for did in dids if did in here]
        is_known = view.unread_dids.isdisjoint(dids)
        is_known = is_known and all(fact.state is not DatasetState.UNKNOWN for fact in known)
        assert (key in published) == is_known
        if not is_known:
            continue
        share, as_of = published[key].share, published[key].as_of
        is_whole = len(known) == len(dids) and all(f.state is DatasetState.AVAILABLE for f in known)
        assert (share == 1.0) == is_whole
        hundredths = round(share * 100)
        truth = on_disk(dids, view)
        excess = Fraction(1, 10**11)  # of round_down, which keeps 0.57: the float is a little less
        assert Fraction(hundredths, 100) <= truth + excess
        rounding = Fraction(len(dids), 2**53)  # each fraction counts in steps of 2**-53
        assert truth - Fraction(hundredths, 100) < Fraction(1, 100) + rounding or hundredths == 99
        assert as_of == min([to_unix(fact.as_of) for fact in known], default=to_unix(NOON))
    assert published.keys() <= keys_of(demand).keys()


@given(worlds(), st.integers(30, 500), st.integers(100, 1500))
@settings(THOROUGH, max_examples=300)
def test_no_line_and_no_ad_exceeds_its_budget(world, line_bytes, ad_bytes):
    view, demand = world
    published, draft = shares(view, demand, Budget(line_bytes, ad_bytes))
    long = [(name, text) for name, text in draft.content if text[0] in "[{"]
    sizes_of_lines = [len(f"{name} = {text}".encode()) for name, text in long]
    assert max(sizes_of_lines) <= line_bytes
    is_empty = all(text in ("[]", "{}") for _, text in long)
    assert is_empty or sum(sizes_of_lines) <= ad_bytes
    roomy, _ = shares(view, demand)
    assert published.items() <= roomy.items()


@given(worlds(), st.randoms(use_true_random=False))
@settings(THOROUGH)
def test_order_of_demand_changes_no_ad_with_room_for_all(world, random):
    view, demand = world
    mixed = list(demand.entries)
    random.shuffle(mixed)
    assert shares(view, demand)[1].content == shares(view, Demand(tuple(mixed)))[1].content


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ap1", "ap2"]),
            groups,
            st.integers(1, 3),
            st.sampled_from([None, set_key, names_key, hash_key]),
        )
    ),
    st.randoms(use_true_random=False),
    st.integers(60, 300),
)
@settings(THOROUGH)
def test_order_in_a_queue_changes_no_ad_also_where_room_is_short(jobs, random, line_bytes):
    def ad_of(rows):
        answers = {
            schedd: ScheddDemand(
                NOON,
                tuple(
                    QueuedJobs(dids, count, make_key(dids) if make_key else None)
                    for name, dids, count, make_key in rows
                    if name == schedd
                ),
            )
            for schedd in dict.fromkeys(name for name, *_ in rows)
        }
        memory = update_demand_memory(DemandMemory(), answers, default_scope=None, now=NOON)
        demand = build_demand(memory, pins=DIDS[:1], matches=frozenset(DIDS[1:2]), now=NOON)
        here = {did: Fact(DatasetState.AVAILABLE, NOON) for did in DIDS[::2]}
        view = Snapshot({HERE: SiteFacts(NOON, here)})
        return draft_site_ads(view, demand, budget=Budget(line_bytes))[HERE].content

    mixed = list(jobs)
    random.shuffle(mixed)
    assert ad_of(jobs) == ad_of(mixed)


@pytest.mark.parametrize("hundredths", range(1, 100))
def test_redraft_writes_the_fractions_that_it_read(hundredths):
    fact = Fact(DatasetState.STAGING, NOON, hundredths / 100)
    view = Snapshot({HERE: SiteFacts(NOON, {DIDS[0]: fact})})
    demand = Demand((want(DIDS[0]),))
    ad = SiteAd(HERE, NOON, 1, shares(view, demand)[1].content)
    assert dict(ad.content)[DATASET_FRACTIONS] == f"['{DIDS[0]}'={hundredths / 100:.2f}]"
    assert redraft(ad, demand, now=NOON, max_age=timedelta(hours=1)).content == ad.content


@given(worlds(), st.integers(0, 30 * 3600), st.integers(0, 30 * 3600))
@settings(THOROUGH)
def test_set_is_usable_in_a_redraft_only_while_all_its_facts_are_fresh(world, later, bound):
    view, demand = world
    published, draft = shares(view, demand)
    ad = SiteAd(HERE, NOON, 1, draft.content)
    now, max_age = NOON + timedelta(seconds=later), timedelta(seconds=bound)
    redrafted = redraft(ad, demand, now=now, max_age=max_age)
    after = read_shares(replace(ad, content=redrafted.content))
    assert after == {key: one for key, one in published.items() if now - from_unix(one.as_of) <= max_age}
    assert [name for name, _ in redrafted.content] == [name for name, _ in draft.content]
