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
    Did,
    Site,
    SiteAd,
)
from testbed.glideinwms_standin import groups_of, load_policy
from tests.memory import system_clock
from tests.slots import hooked

DEPLOY = Path(__file__).parents[2] / "deploy" / "glideinwms"
LOCAL = groups_of(DEPLOY / "frontend-groups.xml", DEPLOY)["locality_local"]
MAX_AGE = timedelta(seconds=20700)
DIDS = [Did(f"ska:d{number}") for number in range(5)] + [Did("ska:00ff")]
SITES = [Site("UK"), Site("SKA UK (Cambridge)"), Site("Observatoire de la Côte d'Azur"), Site("CERN/Meyrin")]

ages = st.sampled_from([timedelta(0), timedelta(hours=5), timedelta(hours=6), timedelta(days=3)])
"""Of a site's last reading; none so near the bound that the seconds of this test decide."""


def slot_of(ad: SiteAd) -> ClassAd:
    return hooked(ClassAd(f"[{';'.join(f'{name} = {literal}' for name, literal in ad.attributes)}]"))


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
    wait = timedelta(days=1) if is_paced or mode != "auto" else timedelta(0)
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
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sites.json"
        publisher = SitesFilePublisher(
            path, valid_for=timedelta(hours=1), max_age=MAX_AGE, clock=system_clock
        )
        publisher.publish(list(ads.values()))
        policy = load_policy(LOCAL)
        assert policy
        policy.PATH = str(path)
        job = {"RequiredDatasetsCSV": ",".join(DIDS[:2]), "DataLocality": mode, "DataLocalityKey": key}
        asked = {site for site in ads if policy.match(job, {"attrs": {"GLIDEIN_Site": site}})}
    assert asked == {
        site
        for site, ad in ads.items()
        if any(matches_keyed(ad, mode, {"DataLocalityKey": key, "DataLocalityLane": lane}) for lane in LANES)
    }
