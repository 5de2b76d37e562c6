"""``hydrator why`` beside the real negotiator: the same jobs, the same slots, the same verdict.

Each job is explained while it is on hold and the pool is idle, and then released. A copy of each job
is tied to each site, so that a verdict is tested at every site and not only at the negotiator's first choice.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool, SiteSpec

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

SITES = ("UK", "AU", "NL", "BB", "XX")
HOLDINGS = {
    "why:uk": {"UK": "available", "AU": "staging"},
    "why:nl": {"NL": "available", "AU": "partial"},
    "why:bb": {"BB": "available", "XX": "available"},
    "why:away": {"RAL": "available", "NL": "nearline"},
    "why:Case": {"UK": "available"},
    "why:case": {"UK": "available"},
}


@dataclass(frozen=True)
class Case:
    """Jobs to explain, tied to each site in turn, and the sites where they match."""

    datasets: tuple[str, ...]
    matches: tuple[str, ...]
    mode: str = "require"
    requirements: str = "true"
    more: str = ""


CASES = {
    "a job that matches": Case(("why:uk",), ("UK",)),
    "data nowhere": Case(("why:gone",), ()),
    "data where too few cores are": Case(("why:nl",), (), more="request_cpus = 3"),
    "too much memory for two sites": Case(("why:uk",), ("UK",), more="request_memory = 6000"),
    "the wait is not over": Case(("why:gone",), (), mode="wait"),
    "the wait is over": Case(
        ("why:gone",), ("UK", "AU", "NL", "XX"), mode="wait", more="+DataLocalityMaxWait = 0"
    ),
    "a requirement of the user's is false": Case(("why:uk",), (), requirements="TARGET.NoSlotSaysThis =?= 1"),
    "a requirement of the user's is undefined": Case(
        ("why:uk",), (), requirements="(TARGET.NoSlotSaysThis > 1 && TARGET.Cpus > 0)"
    ),
    "a requirement of the user's is an error": Case(("why:uk",), (), requirements="(TARGET.Machine + 1 > 0)"),
    "a requirement of the user's is an or": Case(
        ("why:uk",), ("UK",), requirements='TARGET.Cpus >= 100 || strcat("&&", "a") == "&&a"'
    ),
    "START is false, another slot is not hydrated": Case(("why:bb",), ()),
    "START lets this one in": Case(("why:bb",), ("BB",), more='+WantSite = "BB"'),
    "two datasets at different sites": Case(("why:uk", "why:nl"), ()),
    "another letter case": Case(("why:Uk",), ()),
    "letter case alone": Case(("why:case",), ()),
    "a job that names no data": Case((), ("UK", "AU", "NL", "XX")),
}


class PartlyHydrated(Installation):
    """An installation whose site XX has no hook."""

    def is_hydrated(self) -> bool:
        slots = self.pool.slots("GLIDEIN_Site", "DataLocalityAsOf")
        return all((slot.get("DataLocalityAsOf") is None) == (slot["GLIDEIN_Site"] == "XX") for slot in slots)


@pytest.fixture(scope="module")
def installed(htcondor_release: str) -> Iterator[Installation]:
    sites = [SiteSpec("UK", 8), SiteSpec("AU", 4), SiteSpec("NL", 2), SiteSpec("BB", 2), SiteSpec("XX", 2)]
    extra = {
        "startd": "BB.START = (TARGET.WantSite =?= MY.GLIDEIN_Site) && (TARGET.DataLocalityHere =!= false)\n"
        "XX.STARTD_CRON_JOBLIST =\n",
        "negotiator": "LICENSE_LIMIT = 0\n",
        "schedd": "QUEUE_SUPER_USERS = $(QUEUE_SUPER_USERS), bob\n",
    }
    with Pool.start(htcondor_release, sites) as pool:
        catalogue = ListedCatalogue(pool.home, sites=(*SITES, "RAL"))
        catalogue.hold(HOLDINGS)
        with PartlyHydrated(pool, catalogue, extra=extra) as installation:
            yield installation


def ask(installed: Installation, *words: str, status: int | None = None) -> Any:
    done = installed.run("why", *words, "--json", check=False)
    if status is not None:
        assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)["answers"]


def submit(installed: Installation, case: Case, held: bool = True) -> int:
    """Submit the jobs of *case*, one for each site."""
    wanted = ", ".join(f'"{did}"' for did in case.datasets)
    ours = f'+RequiredDatasets = {{{wanted}}}\n+DataLocality = "{case.mode}"\n' if case.datasets else ""
    return installed.pool.submit(
        "executable = /bin/true\nrequest_cpus = 1\nrequest_memory = 10\nrequest_disk = 1\n"
        f'requirements = TARGET.GLIDEIN_Site == "$(site)" && ({case.requirements})\nhold = {held}\n{ours}'
        f"{case.more}\nqueue site from (\n{chr(10).join(SITES)}\n)\n"
    )


@dataclass(frozen=True)
class Verdicts:
    """Answers of `why` for every copy, and the sites where the negotiator matched one."""

    said: dict[str, dict[str, Any]]  # by case and site
    done: dict[str, set[str]]


def negotiated(pool: Pool, cluster: int, expected: int) -> set[str]:
    """Release the copies; return the sites where they ran, once *expected* have and no other can.

    The negotiator stamps the jobs that it rejects. A job that is idle at the end was rejected twice after its
    release, the last time when all others had ended and every slot was free.
    """
    released = int(time.time())
    pool.run("condor_release", str(cluster), user="alice")
    ours = f"ClusterId == {cluster}"

    def refused_since(moment: int) -> bool:
        left = pool.jobs(ours, "JobStatus", "LastRejMatchTime")
        return all(job["JobStatus"] == 1 and (job.get("LastRejMatchTime") or 0) > moment for job in left)

    pool.wait(lambda: refused_since(released) and len(pool.history(ours, "ProcId")) >= expected, "a verdict")
    rested = int(time.time())
    pool.wait(lambda: refused_since(rested), "a second verdict")
    ran = pool.history(ours, "ProcId", "LastRemoteHost")
    assert all(job["LastRemoteHost"].split("@")[1] == SITES[job["ProcId"]] for job in ran)
    return {SITES[job["ProcId"]] for job in ran}


@pytest.fixture(scope="module")
def verdicts(installed: Installation) -> Verdicts:
    pool = installed.pool
    clusters = {name: submit(installed, case) for name, case in CASES.items()}
    wanted = {did.lower() for case in CASES.values() for did in case.datasets}
    pool.wait(
        lambda: installed.status()["cycle"]["demand"]["datasets"] >= len(wanted), "every dataset to be wanted"
    )
    pool.wait(lambda: installed.states_at("BB").get("why:bb") == "AVAILABLE", "BB to advertise its data")
    pool.wait(lambda: installed.states_at("AU").get("why:nl") == "PARTIAL", "AU to advertise its data")
    pool.wait(lambda: installed.states_at("UK").get("why:uk") == "AVAILABLE", "UK to advertise its data")
    pool.wait(lambda: installed.states_at("NL").get("why:nl") == "AVAILABLE", "NL to advertise its data")
    ends = [
        job["DataLocalityAnyAfter"] for job in pool.jobs("DataLocalityMaxWait == 0", "DataLocalityAnyAfter")
    ]
    pool.wait(lambda: time.time() > max(ends), "the short wait to end")
    answers = {
        name: dict(zip(SITES, ask(installed, str(cluster)), strict=True))
        for name, cluster in clusters.items()
    }
    done = {}
    for name, cluster in clusters.items():
        expected = {site for site, answer in answers[name].items() if answer["matching_sites"]}
        done[name] = negotiated(pool, cluster, len(expected))
        pool.run("condor_rm", str(cluster), user="alice")
    return Verdicts(answers, done)


@pytest.mark.older
@pytest.mark.parametrize("case", CASES)
def test_why_says_a_job_matches_at_a_site_if_and_only_if_the_negotiator_matches_it_there(
    verdicts: Verdicts, case: str
):
    matching = {site for site, answer in verdicts.said[case].items() if site in answer["matching_sites"]}
    assert matching == verdicts.done[case] == set(CASES[case].matches)
    assert all(set(answer["matching_sites"]) <= {site} for site, answer in verdicts.said[case].items())


def test_why_before_submit_queries_catalogues_for_datasets_without_demand(installed: Installation):
    installed.catalogue.hold({**HOLDINGS, "why:new": {"AU": "available", "UK": "staging"}})
    (answer,) = ask(installed, "why:new", status=0)
    assert answer["matching_sites"] == ["AU"]
    missing = {
        at["site"]: one
        for at in answer["sites"]
        for reason in at["reasons"]
        for one in reason["missing_datasets"]
    }
    assert missing["UK"]["state"] == "STAGING"
    assert missing["XX"]["reason"] == "unhydrated"


def test_a_concurrency_limit_that_the_job_waits_for_is_the_headline(installed: Installation):
    pool = installed.pool
    job = installed.submit(["why:uk"], mode="require", more="concurrency_limits = license")
    selection = f'ClusterId == {job} && regexp("concurrency limit", LastRejMatchReason)'
    pool.wait(lambda: pool.jobs(selection), "the negotiator to refuse it")
    pool.wait(lambda: ask(installed, str(job))[0]["matching_sites"], "UK to say that its data is there")
    (answer,) = ask(installed, str(job), status=3)
    assert answer["verdict"].startswith("it waits for a concurrency limit (license), the negotiator reports")
    assert answer["job"]["budget"]["most"] > 0, "the figures of the schedd's ad, for jobs that starve others"
    assert answer["matching_sites"] == ["UK"]
    assert (answer["could_run"], answer["remedy"]) == (False, None)
    assert not [note for note in answer["notes"] if "flock" in note]  # its schedd has no FLOCK_TO
    pool.run("condor_rm", str(job), user="alice")
