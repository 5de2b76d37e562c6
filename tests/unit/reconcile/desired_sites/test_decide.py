"""What DESIRED_Sites of queued jobs should say; no pool is needed."""

from datetime import timedelta

import pytest
import structlog
from prometheus_client import CollectorRegistry

from adapters.condor.bindings import desired_sites as jobsites
from hydrator.daemon.background.desired_sites import DesiredSitesMetrics
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.set_answers import SetAnswer, SiteAnswers
from hydrator.domain.errors import PoolDenied, PoolError
from hydrator.domain.model import DatasetState, Did, Fact, Site, SiteAd, Unseen, to_unix
from hydrator.domain.pool_ports import JobGroup, SavedDesiredSites
from hydrator.reconcile.desired_sites.controller import DesiredSitesController, DesiredSitesResult
from hydrator.reconcile.desired_sites.decide import (
    ASKS_ATTRIBUTE,
    SAVED_ATTRIBUTE,
    DesiredSitesEdit,
    DesiredSitesStatus,
    decide,
)
from tests.factories import NOON

HOURS = timedelta(hours=5)
L1, L2 = Did("lofar:L1"), Did("lofar:L2")


def fact(state=DatasetState.AVAILABLE, age=timedelta(0)):
    return Fact(state, NOON - age)


KNOWN = {
    Site("UK"): {L1: fact(), L2: fact()},
    Site("NL"): {L1: fact(), L2: fact(DatasetState.STAGING)},
    Site("AU"): {L1: fact(age=HOURS)},
}


def jobs(*datasets, **given):
    return JobGroup(
        **{"datasets": datasets or ("lofar:L1",), "asks": True, "jobs": 1, "example": "1.0", **given}
    )


def decided(one, known=KNOWN):
    return decide(one, known, now=NOON, max_age=HOURS, default_scope="lofar")


def listed(one, known=KNOWN):
    stand, change = decided(one, known)
    return stand, change and change.value


def kept(value="UK", own=None, **more):
    return SavedDesiredSites(value, own, **more)


@pytest.mark.parametrize(
    ("datasets", "value"),
    [
        (("lofar:L1",), "NL,UK"),
        (("L1",), "NL,UK"),
        (("lofar:L1", "lofar:L2"), "UK"),
        (("lofar:L2", "L2"), "UK"),
    ],
)
def test_a_list_has_the_sites_that_have_all_datasets_by_young_facts(datasets, value):
    assert listed(jobs(*datasets)) == (DesiredSitesStatus.SET, value)


def test_a_fact_that_is_just_young_enough_counts_as_in_the_jobs_own_clause():
    almost = {Site("AU"): {L1: fact(age=HOURS - timedelta(seconds=1))}}
    assert listed(jobs(), almost) == (DesiredSitesStatus.SET, "AU")
    assert listed(jobs(max_age=60), almost) == (DesiredSitesStatus.NO_SITE, None)


@pytest.mark.parametrize(
    "one",
    [jobs("lofar:L9"), jobs("no did at all"), JobGroup((), True, 1, "1.0"), jobs("lofar:L1", "lofar:L9")],
)
def test_job_without_a_complete_site_gets_no_list(one):
    assert decided(one) == (DesiredSitesStatus.NO_SITE, None)


@pytest.mark.parametrize("name", ["a,b", " x", 'the "Tier-1"', "back\\slash", "two\nlines"])
def test_site_name_that_no_list_can_have_confines_no_job(name):
    known = {Site("UK"): {L1: fact()}, Site(name): {L1: fact()}}
    assert decided(jobs(), known) == (DesiredSitesStatus.NO_SITE, None)


def test_a_site_name_may_have_blanks_parentheses_and_accents():
    known = {Site("Île-de-France (T2)"): {L1: fact()}}
    assert listed(jobs(), known) == (DesiredSitesStatus.SET, "Île-de-France (T2)")


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("UK", (DesiredSitesStatus.SET, None)),  # says just that already
        ("UK , NL", (DesiredSitesStatus.SET, None)),
        ("UK,AU", (DesiredSitesStatus.SET, "UK")),
        ("AU", (DesiredSitesStatus.DISJOINT, None)),
        ("uk", (DesiredSitesStatus.DISJOINT, None)),  # names are what they are
        ("", (DesiredSitesStatus.FOREIGN, None)),
        (" , ", (DesiredSitesStatus.FOREIGN, None)),
        ('a "quoted" one', (DesiredSitesStatus.FOREIGN, None)),
    ],
)
def test_list_of_a_job_is_narrowed_never_widened(own, expected):
    assert listed(jobs(desired=own)) == expected


@pytest.mark.parametrize("mode", ["wait", "prefer", None])
def test_job_whose_wait_is_over_gets_its_own_list_back(mode):
    one = jobs(desired="UK", kept=kept(own="UK,AU"), any_after=to_unix(NOON), mode=mode)
    assert decided(one) == (DesiredSitesStatus.FREE, DesiredSitesEdit(one, "UK,AU", "UK,AU", is_restore=True))


@pytest.mark.parametrize("mode", ["require", "Require"])
def test_a_job_that_requires_its_data_is_never_free(mode):
    assert listed(jobs(any_after=0, mode=mode)) == (DesiredSitesStatus.SET, "NL,UK")


def test_job_whose_wait_is_not_over_keeps_the_daemons_list():
    assert listed(jobs(any_after=to_unix(NOON) + 1, mode="wait")) == (DesiredSitesStatus.SET, "NL,UK")


def test_a_list_that_is_right_rests():
    assert decided(jobs(desired="NL,UK", kept=kept("NL,UK"))) == (DesiredSitesStatus.SET, None)


@pytest.mark.parametrize("was", ["AU", "NL,UK"])
def test_an_edit_that_was_broken_off_is_finished(was):
    one = jobs(desired=was, kept=kept("NL,UK", was="AU", pending="x"))
    assert decided(one) == (DesiredSitesStatus.SET, DesiredSitesEdit(one, "NL,UK", None, is_restore=False))


@pytest.mark.parametrize("desired", [None, "AU", "NL"])
def test_list_that_another_writer_changed_is_left_alone(desired):
    for one in (
        jobs(desired=desired, kept=kept("UK", own="NL")),
        jobs(desired=desired, kept=kept("UK", own="NL", was="SE", pending="x")),
        jobs(desired=desired, kept=kept("UK", own="NL"), asks=False),
    ):
        stand, change = decided(one)
        assert change is None
        assert stand is (DesiredSitesStatus.FOREIGN if one.asks else None)


def test_an_expression_or_a_mark_that_is_not_ours_is_left_alone():
    assert decided(jobs(odd=True)) == (DesiredSitesStatus.FOREIGN, None)


def test_job_that_stops_asking_gets_its_own_list_back():
    one = jobs(desired="UK", kept=kept("UK"), asks=False)
    assert decided(one) == (None, DesiredSitesEdit(one, None, None, is_restore=True))
    assert decided(jobs(asks=False, desired="UK")) == (None, None)


@pytest.mark.parametrize("known", [{}, {Site("UK"): {L1: fact(age=HOURS)}}, {Site("UK"): {}}])
def test_job_gets_its_own_list_back_when_all_facts_are_too_old(known):
    one = jobs(desired="UK", kept=kept("UK", own="UK,AU"))
    assert decided(one, known) == (
        DesiredSitesStatus.NO_SITE,
        DesiredSitesEdit(one, "UK,AU", "UK,AU", is_restore=True),
    )


def test_the_child_process_means_the_same_attributes():
    assert (jobsites.OPT_IN_ATTRIBUTE, jobsites.SAVED_ATTRIBUTE) == (ASKS_ATTRIBUTE, SAVED_ATTRIBUTE)


# --- the turns


class Queues:
    """The queues of schedds that may refuse; an edit is done as it is asked."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []
        self.refuses = set()

    def read_job_groups(self):
        if "down" in self.answers:
            raise PoolError("collector", "it is down")
        return self.answers

    def set_desired_sites(self, schedd, one, value, original_value, *, should_keep_mark, max_jobs):
        self.asked.append((schedd, one.example, value, max_jobs))
        if schedd in self.refuses:
            raise PoolDenied(f"schedd {schedd}", "it denies us")
        return min(one.jobs, max_jobs)

    def close(self):
        pass


ADS = {Site("UK"): SiteAd(Site("UK"), NOON, 1, (("DatasetStates", "['lofar:L1'=\"AVAILABLE\"]"),))}


def turns(queues, pace=10):
    return DesiredSitesController(
        queues,
        lambda: NOON,
        max_age=HOURS,
        default_scope=None,
        edits_per_second=pace,
        interval=timedelta(seconds=1),
    )


def test_restored_lists_come_before_new_ones():
    queues = Queues(ap=[jobs(example="1.0"), jobs(example="2.0", asks=False, kept=kept("UK"), desired="UK")])
    assert turns(queues).run_once(ADS)["ap"].edited_count == 2
    assert [(job, value) for _, job, value, _ in queues.asked] == [("2.0", None), ("1.0", "UK")]


def test_schedd_that_rejects_edits_hinders_no_other_and_is_tried_with_one_job():
    queues = Queues(bad=[jobs(jobs=5)], good=[jobs(jobs=5)], hung=Unseen("schedd hung: no answer"))
    queues.refuses = {"bad"}
    desiring = turns(queues)
    done = desiring.run_once(ADS)
    assert (done["good"].edited_count, done["good"].error) == (5, None)
    assert "it denies us" in done["bad"].error
    assert "no answer" in done["hung"].error
    desiring.run_once(ADS)
    queues.refuses = set()
    desiring.run_once(ADS)
    desiring.run_once(ADS)
    assert [at_most for schedd, _, _, at_most in queues.asked if schedd == "bad"] == [10, 1, 1, 10]


def test_a_turn_edits_no_more_jobs_than_the_pace_allows_until_the_next():
    queues = Queues(ap=[jobs(jobs=8), jobs(jobs=8, example="2.0")])
    assert turns(queues, pace=10).run_once(ADS)["ap"].edited_count == 10


def test_unreachable_collector_is_reported_once_and_nothing_is_edited():
    queues = Queues(down=True)
    (done,) = turns(queues).run_once(ADS).values()
    assert "it is down" in done.error
    assert queues.asked == []


def test_closed_controller_runs_no_more():
    desiring = turns(Queues(ap=[jobs()]))
    desiring.close()
    assert desiring.run_once(ADS) == {}


# --- what is told


def told(*done, registry=None):
    """What the metrics say after these turns at one schedd."""
    registry = registry or CollectorRegistry()
    telling = DesiredSitesMetrics(registry)
    for one in done:
        telling.record({"ap": one})
    return telling, registry


def standing(registry, stand):
    return registry.get_sample_value("hydrator_desired_sites_jobs", {"schedd": "ap", "status": stand})


def test_jobs_are_counted_by_status_and_after_a_failure_by_the_last_one():
    _, registry = told(
        DesiredSitesResult(
            {DesiredSitesStatus.SET: 3, DesiredSitesStatus.DISJOINT: 1},
            edited_count=2,
            disjoint_example="7.0",
        ),
        DesiredSitesResult(error="it hangs"),
    )
    assert [standing(registry, stand) for stand in ("set", "disjoint", "no_site")] == [3, 1, 0]
    assert registry.get_sample_value("hydrator_desired_sites_edits_total", {"schedd": "ap"}) == 2
    assert registry.get_sample_value("hydrator_desired_sites_errors_total", {"schedd": "ap"}) == 1


def test_disabled_controller_counts_no_jobs():
    telling, registry = told(DesiredSitesResult({DesiredSitesStatus.SET: 3}))
    telling.clear()
    assert standing(registry, "set") is None


def test_lasting_error_is_logged_once_and_at_its_end():
    lasting = DesiredSitesResult(
        {DesiredSitesStatus.DISJOINT: 2}, error="it denies us", disjoint_example="7.0"
    )
    with structlog.testing.capture_logs() as lines:
        told(lasting, lasting, DesiredSitesResult(), lasting)
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("error", "update of desired sites failed"),
        ("warning", "no site of a job's own DESIRED_Sites has its data: it keeps its list"),
        ("info", "update of desired sites works again"),
        ("error", "update of desired sites failed"),
        ("warning", "no site of a job's own DESIRED_Sites has its data: it keeps its list"),
    ]


# --- sets of datasets, and jobs in mode auto


KEY = set_key([L1, L2])


def answers(
    share: float,
    read: int | None = None,
    queue: int | None = None,
    own: int = 0,
    age=timedelta(0),
    *,
    is_observing: bool = False,
):
    answer = SetAnswer(share, to_unix(NOON - age), read, queue)
    return SiteAnswers({KEY: answer}, own, to_unix(NOON + HOURS), is_observing)


def chosen(by_site, **given):
    one = jobs("lofar:L1", "lofar:L2", **{"mode": "auto", "any_after": to_unix(NOON) + 600, **given})
    status, change = decide(one, {}, now=NOON, max_age=HOURS, default_scope="lofar", answers_by_site=by_site)
    return status, change and change.value


@pytest.mark.parametrize("mode", ["auto", "wait", "prefer"])
def test_observed_sites_leave_a_job_its_own_list(mode):
    """In an observe-only block of an experiment the job matches any slot, so no list may follow the data."""
    by_site = {Site("UK"): answers(1.0, is_observing=True), Site("DE"): answers(0.5, 240, 720)}
    assert chosen(by_site, mode=mode) == (DesiredSitesStatus.FREE, None)
    assert chosen(by_site, mode=mode, desired="UK", kept=kept(own="UK,AU")) == (
        DesiredSitesStatus.FREE,
        "UK,AU",
    )
    assert chosen(by_site, mode="require") == (DesiredSitesStatus.SET, "UK"), "it stays bound to its data"


def test_auto_lists_sites_with_the_set_and_sites_where_reading_ends_sooner():
    by_site = {
        Site("UK"): answers(1.0),
        Site("DE"): answers(0.5, 240, 720),
        Site("PL"): answers(0.0, 240, 720, own=480),
        Site("AU"): answers(0.0, None, 720),
    }
    assert chosen(by_site) == (DesiredSitesStatus.SET, "DE,UK")
    assert chosen(by_site, mode="require") == (DesiredSitesStatus.SET, "UK")
    assert chosen(by_site, any_after=to_unix(NOON) - 1) == (DesiredSitesStatus.SET, "DE,UK")


def test_auto_without_estimates_is_free_after_its_wait_like_wait():
    by_site = {Site("UK"): answers(1.0), Site("DE"): answers(0.0)}
    for mode in ("auto", "wait"):
        assert chosen(by_site, mode=mode) == (DesiredSitesStatus.SET, "UK")
        assert chosen(by_site, mode=mode, any_after=to_unix(NOON) - 1)[0] is DesiredSitesStatus.FREE


def test_set_with_facts_too_old_lists_no_site():
    assert chosen({Site("UK"): answers(1.0, age=HOURS)})[0] is DesiredSitesStatus.NO_SITE
