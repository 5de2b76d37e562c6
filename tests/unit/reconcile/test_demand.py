"""What jobs, pins and patterns want, and how long that is remembered."""

from datetime import timedelta

import pytest

from hydrator.domain.ads.dataset_sets import hash_key, names_key, set_key
from hydrator.domain.model import Did, Origin, QueuedJobs, ScheddDemand, Unseen
from hydrator.reconcile.demand import (
    DemandMemory,
    RememberedJobs,
    build_demand,
    update_demand_memory,
)
from tests.factories import HOUR, L1, L2, L3, MINUTE, NOON

KEEP = 24 * HOUR


def queue(*groups: tuple[tuple[str, ...], int] | QueuedJobs, at=NOON) -> ScheddDemand:
    """The answer of a schedd; jobs that are given as a pair have the key of their datasets."""
    return ScheddDemand(
        at,
        tuple(
            group if isinstance(group, QueuedJobs) else QueuedJobs(*group, set_key(group[0] or "x"))
            for group in groups
        ),
    )


def unkeyed(*datasets: str, jobs: int = 1, key: str | None = None) -> QueuedJobs:
    return QueuedJobs(datasets, jobs, key)


def asked(memory=None, *, now=NOON, default_scope=None, **answers) -> DemandMemory:
    return update_demand_memory(memory or DemandMemory(), answers, default_scope=default_scope, now=now)


def wanted(memory, pins=(), found=frozenset(), now=NOON, never=()):
    return build_demand(memory, pins=pins, matches=found, now=now, never=never)


def test_jobs_that_name_the_same_datasets_are_one_want():
    memory = asked(ap1=queue(((L2, L1), 3), ((L1, L2, L1), 2)))
    assert memory.entries == (RememberedJobs("ap1", (L1, L2), 5, NOON, set_key((L1, L2))),)


def test_schedds_are_added_up():
    memory = asked(ap1=queue(((L1,), 3)), ap2=queue(((L1,), 4), at=NOON + MINUTE))
    (one,) = wanted(memory).entries
    assert (one.dids, one.job_count, one.last_demanded_at) == ((L1,), 7, NOON + MINUTE)


def test_names_without_a_scope_get_the_default_one():
    memory = asked(ap1=queue((("L1",), 1)), default_scope="lofar")
    assert wanted(memory).dids == {L1}


def test_job_with_one_bad_name_demands_nothing_and_its_text_is_stored():
    memory = asked(ap1=queue(((L1, "no scope"), 1), ((L2,), 1)))
    assert wanted(memory).dids == {L2}
    assert list(wanted(memory).rejected_texts) == ["no scope"]


def test_rejected_text_is_stored_as_the_job_has_it_without_default_scope():
    memory = asked(ap1=queue((("bad name",), 1)), default_scope="lofar")
    assert list(memory.rejected_texts) == ["bad name"]


def test_a_refused_text_is_forgotten_once_no_job_names_it():
    memory = asked(ap1=queue((("bad",), 1)))
    assert not asked(memory, ap1=queue()).rejected_texts


def test_a_job_without_datasets_wants_nothing():
    assert asked(ap1=queue(((), 5))).entries == ()


@pytest.mark.parametrize("has_schedd", [True, False])
@pytest.mark.parametrize(("age", "still"), [(KEEP - timedelta(seconds=1), True), (KEEP, False)])
def test_a_job_that_ended_or_whose_schedd_left_the_pool_is_remembered_for_a_day(age, still, has_schedd):
    answers = {"ap1": queue(at=NOON + age)} if has_schedd else {}
    memory = asked(asked(ap1=queue(((L1,), 4))), now=NOON + age, **answers)
    assert wanted(memory).dids == ({L1} if still else set())
    assert not has_schedd or all(want.jobs == 0 for want in memory.entries)


def test_the_day_counts_from_the_last_job_however_often_it_is_asked():
    memory = asked(ap1=queue(((L1,), 4)))
    for hour in range(1, 25):
        assert wanted(memory).dids == {L1}
        memory = asked(memory, now=NOON + hour * HOUR, ap1=queue(at=NOON + hour * HOUR))
    assert not wanted(memory).dids


def test_returned_job_counts_as_new_demand():
    memory = asked(asked(ap1=queue(((L1,), 4))), now=NOON + HOUR, ap1=queue())
    memory = asked(memory, now=NOON + 2 * HOUR, ap1=queue(((L1,), 2), at=NOON + 2 * HOUR))
    assert memory.entries == (RememberedJobs("ap1", (L1,), 2, NOON + 2 * HOUR, set_key((L1,))),)


def test_two_schedds_forget_apart():
    memory = asked(ap1=queue(((L1,), 4)), ap2=queue(((L1,), 3)))
    memory = asked(memory, now=NOON + HOUR, ap1=queue(), ap2=queue(((L1,), 3), at=NOON + HOUR))
    (one,) = wanted(memory).entries
    assert (one.job_count, one.last_demanded_at) == (3, NOON + HOUR)


def test_pins_come_first_then_jobs_by_number_then_patterns():
    memory = asked(ap1=queue(((L1,), 1), ((L2,), 9), (("x:old",), 0)))
    order = wanted(memory, pins=[L3, Did("a:pin")], found={Did("b:found"), Did("a:found")}).entries
    assert [(want.origin, want.dids) for want in order] == [
        (Origin.PIN, ("a:pin",)),
        (Origin.PIN, (L3,)),
        (Origin.JOB, (L2,)),
        (Origin.JOB, (L1,)),
        (Origin.JOB, ("x:old",)),
        (Origin.PATTERN, ("a:found",)),
        (Origin.PATTERN, ("b:found",)),
    ]


def test_later_ended_job_ranks_before_an_earlier_one():
    memory = DemandMemory(
        (
            RememberedJobs("ap", (L1,), 0, NOON, set_key((L1,))),
            RememberedJobs("ap", (L2,), 0, NOON + MINUTE, set_key((L2,))),
        )
    )
    assert [want.dids for want in wanted(memory).entries] == [(L2,), (L1,)]


def test_a_refused_text_is_kept_short_and_printable():
    memory = asked(ap1=queue(unkeyed("\udcff" + "x" * 100_000)))
    ((text, _),) = memory.rejected_texts.items()
    assert text.startswith("\\udcffxxx")
    assert len(text) < 600


def test_job_that_ended_while_its_schedd_was_silent_is_remembered_from_then_on():
    before = asked(DemandMemory(), ap1=queue(((L1,), 1)))
    silent = asked(before, now=NOON + 100 * HOUR, ap1=Unseen("timeout"))
    after = asked(silent, now=NOON + 101 * HOUR, ap1=queue())
    assert [(want.dids, want.jobs) for want in after.entries] == [((L1,), 0)]
    assert asked(after, now=NOON + 125 * HOUR, ap1=queue()).entries == ()


# ---- keys

LONG = tuple(Did(f"lofar:L667000_SAP000_SB{band:03}_uv") for band in range(9))


def keys(memory) -> list[tuple[tuple[str, ...], str | None]]:
    return [(entry.dids, entry.key) for entry in wanted(memory).entries]


@pytest.mark.parametrize(
    ("dids", "key"),
    [
        ((L1, L2), names_key([L2, L1])),
        ((L1, L2), hash_key([L1, L2])),
        (LONG, hash_key(LONG)),
        (LONG, "c12.269@ap1.example"),
    ],
)
def test_set_has_the_key_of_its_jobs(dids, key):
    """The transform keeps the order of the names, takes the hash of hydrator submit, or names the cluster."""
    memory = asked(ap1=queue(QueuedJobs(dids, 3, key)))
    assert keys(memory) == [(dids, key)]
    assert wanted(memory).wrong_keys == {}


def test_same_set_with_two_keys_has_an_entry_for_each():
    memory = asked(ap1=queue(((L1, L2), 3)), ap2=queue(QueuedJobs((L2, L1), 1, names_key([L2, L1]))))
    assert keys(memory) == [((L1, L2), set_key([L1, L2])), ((L1, L2), names_key([L2, L1]))]


def test_job_without_a_key_has_that_of_hydrator_submit():
    assert keys(asked(ap1=queue(unkeyed(L2, L1)))) == [((L1, L2), set_key([L1, L2]))]


@pytest.mark.parametrize(
    "key",
    [
        *(hash_key(LONG), "s" + "a" * 20, names_key([L1]), names_key([L1, L2]).upper(), "x" * 2000),
        *(names_key([L1]) + "~0", f"{names_key([L1])},", "c1.5@"),
    ],
)
def test_key_of_another_list_is_answered_for_that_list_alone(key):
    """A job whose owner wrote a key takes no answer away from the jobs that have it by right."""
    memory = asked(ap1=queue(((L1,), 1), (LONG, 1)), ap2=queue(unkeyed(L1, L2, jobs=4, key=key)))
    assert sorted(keys(memory), key=str) == sorted(
        [((L1, L2), None), ((L1,), set_key([L1])), (LONG, hash_key(LONG))], key=str
    )
    assert list(wanted(memory).wrong_keys.values()) == [4]
    assert wanted(memory, pins=[L1]).entries[0].key == set_key([L1])


def test_clusters_key_with_two_lists_is_withheld_until_one_is_gone():
    """Lists of equal length in one cluster."""
    one, other, key = LONG, (*LONG[:-1], Did(LONG[-1][:-1] + "w")), "c12.269@ap1"
    memory = asked(ap1=queue(QueuedJobs(one, 1, key), QueuedJobs(other, 2, key)))
    assert keys(memory) == [(other, None), (one, None)]
    assert (wanted(memory).wrong_keys, wanted(memory).lists_of_wrong_keys) == ({key: 3}, {key: None})
    later = asked(memory, now=NOON + HOUR, ap1=queue(QueuedJobs(one, 1, key)))
    assert keys(later) == [(one, key), (other, hash_key(other))]


@pytest.mark.parametrize("forger", ["ap1", "ap2"])
def test_clusters_key_stands_for_the_list_of_that_cluster(forger):
    """A job that Condor-C or a job router sent on keeps its key. So the only list counts, of whatever job."""
    other, key = (*LONG[:-1], Did("x:1")), "c12.269@ap1"
    own, forged = QueuedJobs(LONG, 1, key, is_of_cluster=True), QueuedJobs(other, 2, key)
    assert keys(asked(ap2=queue(forged))) == [(other, key)]
    memory = asked(
        **{"ap1": queue(own), "ap2": queue(), forger: queue(forged, QueuedJobs(LONG, 1, key), own)}
    )
    assert sorted(keys(memory)) == [(LONG, key), (other, None)]
    assert wanted(memory).wrong_keys == {key: 2}
    assert wanted(memory).lists_of_wrong_keys == {key: hash_key(LONG)}
    private = wanted(memory, never=(LONG[-1],))
    assert [entry.key for entry in private.entries] == [None], "the key of a private list is of no other"


def test_set_whose_last_job_ended_keeps_its_key_but_not_that_of_a_cluster_or_a_wrong_one():
    jobs = [QueuedJobs((L2, L1), 1, names_key([L2, L1])), QueuedJobs(LONG, 1, "c12.269@ap1.example")]
    memory = asked(ap1=queue(*jobs, QueuedJobs((L3,), 1, "wrong")))
    ended = asked(memory, now=NOON + HOUR, ap1=queue())
    assert sorted(keys(ended)) == [
        ((L1, L2), names_key([L2, L1])),
        ((L3,), set_key([L3])),
        (LONG, hash_key(LONG)),
    ]
    assert wanted(ended).wrong_keys == {}


def test_dataset_that_matches_never_is_not_demanded_and_neither_is_a_set_with_it():
    memory = asked(ap1=queue(((L1, L2), 3), ((L3,), 1), (("embargo:X 1",), 1)))
    found = wanted(memory, [L1], frozenset([L1, L2]), never=("*:L1", "embargo:*"))
    assert [(entry.dids, entry.origin) for entry in found.entries] == [
        ((L3,), Origin.JOB),
        ((L2,), Origin.PATTERN),
    ]
    assert not found.rejected_texts
    assert wanted(memory, [L1], never=("*:l1",)).dids == {L1, L2, L3}


def test_private_name_in_a_bad_list_is_hidden_in_the_default_scope_too():
    memory = asked(ap1=queue((("secret1 x",), 1)), default_scope="own")
    assert memory.rejected_texts
    found = build_demand(
        memory, pins=(), matches=frozenset(), now=NOON, never=("own:secret*",), default_scope="own"
    )
    assert not found.rejected_texts
