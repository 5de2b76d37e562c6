"""Rates between sites: the order of the sources, the laws of the median, and samples that users invent."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.config.network import NetworkSettings
from hydrator.domain.model import Site
from hydrator.domain.network import TransferOrigin, TransferSample
from hydrator.reconcile.rates import (
    MAX_SAMPLES,
    MAX_SAMPLES_OF_LINK,
    MAX_SAMPLES_OF_USER,
    MIN_BYTES,
    RateTable,
    count_readers,
    is_plausible,
    link_rate,
    select_samples,
)
from tests.factories import NOON

UK, NL, DE = Site("UK"), Site("NL"), Site("DE")
SITES = frozenset({UK, NL, DE})
MIN = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def sample(seconds=10.0, age=MIN, gigabytes=1.0, user="alice", readers=1.0, **more):
    """A read of 1 GB from UK to NL in 10 s, a minute old, alone on its link, unless said otherwise."""
    values = {"source": UK, "destination": NL, "origin": TransferOrigin.WRAPPER, "job": "1.0"} | more
    ended_at = values.pop("ended_at", NOON - age)
    size = round(gigabytes * 1e9)
    return TransferSample(
        bytes=size, seconds=seconds, ended_at=ended_at, user=user, readers=readers, **values
    )


def table_of(samples=(), **network):
    return RateTable(samples, now=NOON, network=NetworkSettings(**network))


def rate_of(samples, source=UK, destination=NL):
    """The measured rate."""
    found = table_of(samples).rate(source, destination)
    return found.bytes_per_second if found.samples else None


THREE = [sample(seconds) for seconds in (10, 20, 40)]


def test_rate_is_the_median_with_its_origin_age_and_samples():
    samples = [sample(10, 3 * MIN), sample(20, 2 * MIN), sample(40, 5 * MIN)]
    rate = table_of(samples).rate(UK, NL)
    assert rate.bytes_per_second == 50e6
    assert (rate.origin, rate.samples, rate.measured_at) == ("job wrapper", 3, NOON - 2 * MIN)


@pytest.mark.parametrize("samples", [[], THREE[:1], THREE[:2]])
def test_fewer_than_three_samples_are_never_used(samples):
    assert rate_of(samples) is None


@pytest.mark.parametrize(
    ("ages", "rate"),
    [
        (["hour"] * 3 + ["day"] * 3 + ["week"] * 3, 100e6),
        (["hour"] * 2 + ["day"] * 3 + ["week"] * 3, 10e6),
        (["hour"] * 2 + ["week"] * 3, 1e6),
        (["hour"] * 2 + ["day"], 100e6),
        (["hour"] * 2 + ["month"] * 5, None),
        (["week"] * 3, 1e6),
    ],
)
def test_shortest_period_with_three_samples_decides(ages, rate):
    kinds = {
        "hour": sample(10, HOUR),
        "day": sample(100, 24 * HOUR),
        "week": sample(1000, 168 * HOUR),
        "month": sample(1, 169 * HOUR),
    }
    samples = [kinds[age] for age in ages]
    assert rate_of(samples) == rate


SECONDS = st.floats(1, 1e5)
USERS = st.sampled_from(["alice", "bob", "carol", "dave"])
SAMPLES = st.lists(st.builds(sample, SECONDS, user=USERS), min_size=3, max_size=12)


@given(SAMPLES, st.data(), st.floats(1, 1000))
def test_a_faster_sample_never_lowers_the_rate(samples, data, factor):
    at = data.draw(st.integers(0, len(samples) - 1))
    faster = [*samples]
    faster[at] = replace(samples[at], seconds=samples[at].seconds / factor)
    assert rate_of(faster) >= rate_of(samples)
    fastest = min(each.seconds for each in samples)
    assert rate_of([*samples, sample(fastest, user="erin")]) >= rate_of(samples)


@given(st.lists(SECONDS.map(sample), min_size=3, max_size=12), st.data())
def test_one_outlier_moves_the_rate_by_one_rank_at_most(samples, data):
    at = data.draw(st.integers(0, len(samples) - 1))
    factor = data.draw(st.sampled_from([1000, 1 / 1000]))
    odd = [*samples]
    odd[at] = replace(samples[at], seconds=samples[at].seconds / factor)
    ranks = sorted(map(link_rate, samples))
    middle = (len(ranks) - 1) // 2
    # one rank up or down of the median of those that did not change, or the outlier itself between them
    assert ranks[max(0, middle - 1)] <= rate_of(odd) <= ranks[min(len(ranks) - 1, middle + 1)]


@given(st.lists(st.builds(sample, SECONDS, readers=st.none()), min_size=1, max_size=12))
def test_one_user_moves_the_rate_between_those_of_others_only(invented):
    honest = [sample(seconds, user=user) for seconds, user in ((10, "bob"), (20, "carol"), (40, "dave"))]
    lies = [replace(each, user="mallory") for each in invented]
    assert 25e6 <= rate_of(honest + lies) <= 100e6


def test_learned_uplink_of_the_source_serves_sites_without_samples():
    table = table_of(THREE)
    assert table.rate(UK, DE).bytes_per_second == 50e6
    assert table.rate(UK, DE).origin == "job wrapper to all sites"
    assert table.rate(DE, UK).origin == "[network] default"


TO_ALL = {"source": UK, "gbit_per_second": 5}
TO_NL = {"source": UK, "destination": NL, "gbit_per_second": 4}
UPLINK, LINK = {"links": [TO_ALL]}, {"links": [TO_NL]}


@pytest.mark.parametrize(
    ("given", "rate", "origin"),
    [
        ({"links": [TO_ALL, TO_NL]}, 500e6, "[[network.links]]"),
        (UPLINK, 625e6, "[[network.links]]"),
        ({"default_gbit_per_second": 8}, 1e9, "[network] default"),
        ({}, 125e6, "[network] default"),
    ],
)
def test_first_source_with_an_answer_decides(given, rate, origin):
    found = table_of(**given).rate(UK, NL)
    assert (found.bytes_per_second, found.origin) == (rate, origin)
    assert table_of(THREE, **given).rate(UK, NL).bytes_per_second == 50e6


def test_a_site_has_no_rate_to_itself():
    assert table_of(THREE, **LINK).rate(UK, UK) is None


def test_rate_is_of_the_link_for_all_its_readers():
    """Four readers for the whole time: each has a quarter of the link."""
    assert rate_of([replace(each, readers=4.0) for each in THREE]) == 200e6
    together = [sample(10, job=f"{n}.0", readers=None) for n in range(4)]
    assert rate_of(together) == 400e6
    alone = [sample(10, n * MIN, readers=None) for n in range(1, 4)]
    assert rate_of(alone) == 100e6


def test_reader_of_half_the_time_counts_half():
    long, short = sample(20, readers=None), sample(10, gigabytes=0.5, readers=None)
    assert [each.readers for each in count_readers([long, short])] == [1.5, 2.0]


def test_invented_readers_of_another_user_do_not_count():
    mine = sample(10, readers=None)
    others = [sample(10, user="mallory", job=f"{n}.0", readers=None) for n in range(9)]
    assert count_readers([mine, *others])[0].readers == 1.0
    records = [replace(each, origin=TransferOrigin.SCHEDD) for each in others]
    assert count_readers([mine, *records])[0].readers == 10.0


def test_readers_of_another_source_do_not_count():
    assert count_readers([sample(readers=None), sample(readers=None, source=DE)])[0].readers == 1.0


@pytest.mark.parametrize(
    ("changes", "is_kept"),
    [
        ({}, True),
        ({"bytes": MIN_BYTES - 1}, False),
        ({"bytes": 10**16}, False),
        ({"seconds": 0.0}, False),
        ({"seconds": -1.0}, False),
        ({"seconds": 1e9}, False),
        ({"seconds": 0.001}, False),
        ({"source": Site("nowhere")}, False),
        ({"destination": Site("nowhere")}, False),
        ({"destination": UK}, False),
        ({"ended_at": NOON + HOUR}, False),
        ({"ended_at": NOON + MIN}, True),
        ({"ended_at": NOON - 169 * HOUR}, False),
    ],
)
def test_only_plausible_samples_are_kept(changes, is_kept):
    assert is_plausible(replace(sample(), **changes), SITES, NOON) == is_kept


def test_user_has_few_samples_of_a_link_and_hour():
    many = [sample(job=f"{n}.0") for n in range(50)]
    other = [sample(job="b", user="bob"), sample(job="c", source=DE), sample(2, 3 * HOUR)]
    kept = select_samples(many + other, SITES, NOON)
    assert len(kept) == MAX_SAMPLES_OF_USER + len(other)


def test_busy_link_does_not_displace_the_samples_of_another_link():
    busy = [sample(job=f"{n}.0", user=f"u{n}") for n in range(MAX_SAMPLES_OF_LINK + 50)]
    rare = sample(10, 160 * HOUR, source=DE)
    kept = select_samples([*busy, rare], SITES, NOON)
    assert kept[0] == rare
    assert len(kept) == MAX_SAMPLES_OF_LINK + 1


def test_kept_samples_do_not_depend_on_the_order_and_come_once():
    many = [sample(10 + n % 7, n * MIN, job=f"{n}.0", user="abcde"[n % 5]) for n in range(60)]
    shuffled = [*many, *many]
    random.Random(1).shuffle(shuffled)
    kept = select_samples(many, SITES, NOON)
    assert select_samples(shuffled, SITES, NOON) == kept == select_samples(kept, SITES, NOON)
    assert [each.ended_at for each in kept] == sorted(each.ended_at for each in kept)


def test_of_too_many_samples_the_newest_are_kept():
    sites = [Site(f"S{n}") for n in range(60)]
    many = [
        sample(10, timedelta(seconds=n), source=site, user=f"u{n}")
        for site in sites
        for n in range(MAX_SAMPLES_OF_LINK)
    ]
    kept = select_samples(many, SITES.union(sites), NOON)
    assert len(kept) == MAX_SAMPLES
    assert kept[0].ended_at == NOON - timedelta(seconds=MAX_SAMPLES // len(sites))
