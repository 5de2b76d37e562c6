"""Pilots are requested exactly where slots would match: the policy's answer and the negotiator's are one."""

import tempfile
from datetime import timedelta
from pathlib import Path

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
from classad2 import ClassAd, ExprTree
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.files.sites_file import SitesFilePublisher
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.expressions import HERE, MODES
from hydrator.domain.ads.openings import Opening, write_openings
from hydrator.domain.model import (
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Fact,
    Origin,
    Site,
    SiteAd,
    SiteFacts,
    Snapshot,
)
from hydrator.reconcile.site_ads import Budget, assign_generations, draft_site_ads
from hydrator.wiring import system_clock
from testbed.glideinwms_standin import groups_of, load_policy
from tests.slots import hooked

DEPLOY = Path(__file__).parents[2] / "deploy" / "glideinwms"
LOCAL = groups_of(DEPLOY / "frontend-groups.xml", DEPLOY)["locality_local"]
MAX_AGE = timedelta(seconds=20700)
DIDS = [Did(f"ska:d{number}") for number in range(5)] + [Did("ska:00ff")]
SITES = [Site("UK"), Site("SKA UK (Cambridge)"), Site("Observatoire de la Côte d'Azur"), Site("CERN/Meyrin")]

held = st.dictionaries(st.sampled_from(DIDS), st.sampled_from(list(DatasetState)))
ages = st.sampled_from([timedelta(0), timedelta(hours=5), timedelta(hours=6), timedelta(days=3)])
"""Of a site's last reading; none so near the bound that the seconds of this test decide."""
pools = st.dictionaries(st.sampled_from(SITES), st.tuples(held, ages), min_size=1)
jobs = st.lists(st.lists(st.sampled_from(DIDS), min_size=1, unique=True), min_size=1, max_size=4)


def ads_of(
    pool: dict[Site, tuple[dict[Did, DatasetState], timedelta]], wanted: list[list[Did]]
) -> dict[Site, SiteAd]:
    now = system_clock()
    facts = {
        site: SiteFacts(now - age, {did: Fact(state, now - age) for did, state in states.items()})
        for site, (states, age) in pool.items()
    }
    sets = {tuple(sorted(names)) for names in wanted}
    demand = Demand(tuple(DemandEntry(dids, 1, Origin.JOB, now, set_key(dids)) for dids in sorted(sets)))
    return assign_generations(
        draft_site_ads(Snapshot(facts), demand, budget=Budget()), {}, published_generations={}, now=now
    )


def slot_of(ad: SiteAd) -> ClassAd:
    return hooked(ClassAd(f"[{';'.join(f'{name} = {literal}' for name, literal in ad.attributes)}]"))


def matches(names: list[Did], ad: SiteAd) -> bool:
    """What ClassAds say of a `require` job at a slot of this site."""
    key = set_key(names)
    job = ClassAd({"DataLocalityMaxAge": int(MAX_AGE.total_seconds()), "DataLocalityKey": key})
    job["DataLocalityHere"] = ExprTree(HERE["require"])
    return job.lookup("DataLocalityHere").eval(job, slot_of(ad)) is True


def entries_that_match(ads: dict[Site, SiteAd], jobs: list[dict[str, str]]) -> list[set[Site]]:
    """Return for each of *jobs* the sites where the policy requests pilots, by a sites file of *ads*."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sites.json"
        hour = timedelta(hours=1)
        SitesFilePublisher(path, valid_for=hour, max_age=MAX_AGE, clock=system_clock).publish(
            list(ads.values())
        )
        policy = load_policy(LOCAL)
        assert policy
        policy.PATH = str(path)  # as an operator sets it
        return [
            {site for site in ads if policy.match(job, {"attrs": {"GLIDEIN_Site": site}})} for job in jobs
        ]


@given(pools, jobs)
@settings(deadline=None, max_examples=60)
def test_the_policy_requests_pilots_exactly_where_the_slots_would_match(pool, wanted):
    ads = ads_of(pool, wanted)
    asked = entries_that_match(ads, [{"RequiredDatasetsCSV": ",".join(names)} for names in wanted])
    assert asked == [{site for site, ad in ads.items() if matches(names, ad)} for names in wanted]


keyed_rows = st.tuples(
    st.sampled_from([None, 0.0, 0.62, 1.0]),
    st.sampled_from(["", "~0", "~7", None]),
    st.sampled_from([timedelta(minutes=-1), timedelta(minutes=20)]),
    ages,
)
"""The share; the open lane ("": the whole set, None: it is closed); the end of the openings; age of facts."""
keyed_pools = st.dictionaries(st.sampled_from(SITES), keyed_rows, min_size=1)
KEY = set_key(DIDS[:2])
LANES = [0, 7]


def matches_keyed(ad: SiteAd, mode: str, attributes: dict[str, object]) -> bool:
    now = system_clock()
    is_paced = ad.open_until is not None and now < ad.open_until
    job = ClassAd({"DataLocalityMaxAge": int(MAX_AGE.total_seconds()), **attributes})
    # a minute ago, not now: time() of C may be some milliseconds, and so a second, behind Python's clock
    wait = timedelta(days=1) if is_paced or mode != "auto" else timedelta(minutes=-1)
    job["DataLocalityAnyAfter"] = int((now + wait).timestamp())
    job["DataLocalityHere"] = ExprTree(HERE[mode])
    return job.lookup("DataLocalityHere").eval(job, slot_of(ad)) is True


def keyed_ad(site: Site, row: tuple) -> SiteAd:
    share, lane, valid, age = row
    now = system_clock()
    sets = [("DataLocalitySets", f"['{KEY}'={share}]")] if share is not None else []
    opened = {} if lane is None else {f"{KEY}{lane}": Opening(240, Site("UK"), 10**9)}
    content = (*sets, ("DataLocalityVersion", "1"))
    return SiteAd(site, now - age, 1, content, write_openings(opened, 0), now + valid)


@given(keyed_pools, st.sampled_from(MODES), st.sampled_from([KEY, set_key(DIDS[:1])]))
@settings(deadline=None, max_examples=150)
def test_the_policy_lets_keyed_jobs_read_where_the_slots_would(pool, mode, key):
    """A job of mode auto also gets pilots where its set, or a lane of it, is open.

    Where no daemon paces the reads, it gets those of a job whose wait is over.
    """
    ads = {site: keyed_ad(site, row) for site, row in pool.items()}
    job = {"RequiredDatasetsCSV": ",".join(DIDS[:2]), "DataLocality": mode, "DataLocalityKey": key}
    [asked] = entries_that_match(ads, [job])
    assert asked == {
        site
        for site, ad in ads.items()
        if any(matches_keyed(ad, mode, {"DataLocalityKey": key, "DataLocalityLane": lane}) for lane in LANES)
    }
