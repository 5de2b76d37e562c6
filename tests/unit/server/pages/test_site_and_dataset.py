"""The pages of one site, one dataset and one run, and what a name that does not exist gets."""

import re
from dataclasses import replace

import httpx
import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import Openings, Outlook, Reason
from hydrator.domain.errors import PoolError
from hydrator.domain.model import (
    DatasetState,
    Did,
    Fact,
    Provenance,
    Site,
    SiteFacts,
    Snapshot,
    Unseen,
    to_unix,
)
from hydrator.domain.ports import ClusterJobs, IdleJobs, PoolLoad, RunningJobs, ScheddLoad
from hydrator.reconcile.state import DatasetChange
from hydrator.server.handlers import ChangeReader, ClusterReader
from hydrator.server.view import ServerState
from hydrator.staging.overview import StagingOverview
from tests.deploy.page_world import request
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, RAL, ad, demand, server_state, want
from tests.served import app_of
from tests.unit.server.pages.test_overview import HOSTILE, Parsed
from tests.unit.server.test_answers import answer_of

pytestmark = pytest.mark.outside

SAYS = Provenance(reason="the rule is OK", rule="a1b2", account="lofar_ops")
FACTS = {
    CAM: SiteFacts(NOON, {L1: Fact(DatasetState.AVAILABLE, None, 1.0, SAYS)}),  # of the time of the reading
    RAL: SiteFacts(NOON, {L1: Fact(DatasetState.STAGING, NOON - HOUR, 0.25)}),
}
VIEW = server_state(
    {CAM: ad(L1, generation=42)},
    Snapshot(FACTS, unseen_reasons={L2: "timeout"}, bytes_total={L1: 3 * 10**12}),
    demand(want(L1, L2, jobs=3), want(L1, jobs=4)),
    None,
    NOON,
)


def read_changes(_site: Site) -> list[DatasetChange]:
    return [DatasetChange(to_unix(NOON - HOUR), L1, None, "AVAILABLE", "why")]


def ask(
    path: str,
    state: ServerState = VIEW,
    read_changes: ChangeReader = read_changes,
    read_cluster: ClusterReader | None = None,
) -> httpx.Response:
    return answer_of(app_of(state, read_changes=read_changes, read_cluster=read_cluster), path)


def words(path: str, state: ServerState = VIEW) -> str:
    answer = ask(path, state)
    assert answer.status_code == 200
    body = answer.text.partition("<main")[2]
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


# a dataset


def test_dataset_page_says_where_it_is_and_who_said_so():
    page = Parsed(ask(f"/dataset?did={L1}").text)
    assert [CAM, "✔available", "0 s ago", "the rule is OK; rule a1b2 of lofar_ops"] in page.rows
    assert [RAL, "↻staging 25 %", "1 h ago", "the catalogue gives no reason"] in page.rows
    assert "3 TB; 7 queued or running jobs name it." in words(f"/dataset?did={L1}")


def test_dataset_page_says_how_many_of_the_jobs_wait():
    pool = load(
        IdleJobs(2, set_key([L1, L2])),
        IdleJobs(1, set_key([L1])),
        IdleJobs(5, set_key([L2])),
        IdleJobs(9, set_key([L3])),
        running=(RunningJobs((1, 2), CAM, set_key([L1])),),
    )
    state = replace(
        VIEW, demand=demand(want(L1, L2, jobs=3), want(L1, jobs=4), want(L2), want(L3)), load=pool
    )
    assert "7 queued or running jobs name it; 3 of these are idle." in words(f"/dataset?did={L1}", state)
    silent = replace(pool, schedds={**pool.schedds, "ap2": Unseen("no answer in time")})
    text = words(f"/dataset?did={L1}", replace(state, load=silent))
    assert "name it; at least 3 of these are idle (schedd ap2: no answer in time)." in text
    assert "7 queued or running jobs name it." in words(f"/dataset?did={L1}")  # the queues are not known


def test_dataset_page_lists_the_requests_and_the_sets_of_the_jobs():
    staging = StagingOverview(NOON, "request", requests=(request(L1, RAL, 0.5, minutes=9),))
    text = words(f"/dataset?did={L1}", replace(VIEW, staging=staging))
    assert "RAL : asked 11:00 UTC at RAL, request a1b2c3, 122 of 244 files" in text
    assert set_key([L1]) in text
    assert "None is open." in words(f"/dataset?did={L1}")


def test_a_dataset_that_no_catalogue_could_be_asked_about_says_so():
    text = words(f"/dataset?did={L2}", replace(VIEW, demand=demand(want(L2))))
    assert "no catalogue answered: timeout." in text
    assert "Where it is, is not known." in text


# a site


def test_site_page_has_its_state_datasets_requests_and_changes():
    staging = StagingOverview(NOON, "request", requests=(request(L3, RAL, 0.5, minutes=9),))
    text = words("/site?site=RAL", replace(VIEW, staging=staging))
    assert "Datasets 1 staging" in text
    assert "Ad not served" in text
    assert f"{L3} : asked 11:00 UTC at RAL" in text
    assert f"11:00 UTC {L1} : not listed to AVAILABLE, why" in text
    old = words("/site?site=RAL", replace(VIEW, now=NOON + 6 * HOUR))
    assert "Oldest fact 7 h ago , too old: facts are valid for 6 h" in old
    assert "42" not in words("/site?site=CAM"), "nobody reads the number of a generation"


def test_site_page_lists_datasets_that_are_not_complete_first():
    facts = {did: Fact(DatasetState.AVAILABLE) for did in (L1, L2)}
    facts[L3] = Fact(DatasetState.STAGING, NOON - HOUR, 0.25)
    state = server_state({}, Snapshot({RAL: SiteFacts(NOON, facts)}), demand(want(L1, L2, L3)), None, NOON)
    assert Parsed(ask("/site?site=RAL", state).text).rows[1:] == [
        [L3, "↻staging 25 %", "1 h ago"],
        [L1, "✔available", "0 s ago"],
        [L2, "✔available", "0 s ago"],
    ]


def test_a_site_name_with_a_slash_and_a_space_is_found():
    odd = Site("Žilina (CZ/2) 50% ad")
    state = replace(VIEW, ads={odd: ad(L1, site=odd)})
    page = Parsed(ask("/").text)
    assert "/site?site=CAM" in {a.get("href") for a in page.attributes}
    [link] = [a["href"] for a in Parsed(ask("/", state).text).attributes if "ilina" in a.get("href", "")]
    answer = ask(link, state)
    assert answer.status_code == 200
    [to_ad] = [a["href"] for a in Parsed(answer.text).attributes if a.get("href", "").endswith("/ad")]
    assert ask(to_ad, state).status_code in {200, 404}  # 404: this ad has contract 1 only
    assert "no ad for site" not in ask(to_ad, state).text


# a run


def load(*idle: IdleJobs, running: tuple[RunningJobs, ...] = ()) -> PoolLoad:
    return PoolLoad(NOON, {"ap1": ScheddLoad(idle, running)}, ())


ARRIVING = {
    did: Fact(DatasetState.STAGING, NOON, 0.5, Provenance(ready_at=NOON + minutes * MINUTE))
    for did, minutes in ((L2, 20), (L3, 190))
}
AT_CAM = SiteFacts(NOON, {**FACTS[CAM].facts, **ARRIVING})
STAGING = replace(
    VIEW,
    demand=demand(want(L1), want(L2), want(L3)),
    knowledge=replace(VIEW.knowledge, snapshot=replace(VIEW.snapshot, sites={**FACTS, CAM: AT_CAM})),
)


def test_run_page_counts_jobs_beside_their_data_and_what_the_others_wait_for():
    key = set_key([L1])
    made = Openings(outlooks={set_key([L2]): Outlook(Reason.OPEN, (RAL,))})
    state = replace(
        STAGING,
        knowledge=replace(STAGING.knowledge, openings=made),
        load=load(
            IdleJobs(4, set_key([L2]), run="r1"),
            IdleJobs(2, set_key([L3]), run="r1"),
            IdleJobs(9, key, run="other"),
            running=(RunningJobs((1,) * 18, CAM, key, run="r1"), RunningJobs((1,), RAL, key, run="r1")),
        ),
    )
    text = words("/run?run=r1", state)
    assert (
        "25 jobs: 18 running beside their data, 1 running elsewhere, 6 wait for 2 datasets,"
        " ready about 15:10 UTC"
    ) in text
    assert "Running at CAM (18), RAL (1)." in text
    assert f"4 CAM {L2} it may start now at RAL 2 CAM {L3} Held jobs are not counted here" in text
    assert "Jobs that have ended are not counted here" in text
    assert "9 jobs: 9 wait for a slot beside their data" in words("/run?run=other", state)
    assert "28 jobs:" in words(f"/run?run={key}", state)  # all jobs that need this set


def test_a_run_whose_data_has_no_expected_time_says_so():
    state = replace(VIEW, demand=demand(want(L3)), load=load(IdleJobs(1, set_key([L3]), run="r1")))
    assert "1 job: 1 waits for 1 dataset, it is not known when these are ready" in words("/run?run=r1", state)


# a cluster


def cluster_of(**answers: ClusterJobs | Unseen) -> ClusterReader:
    """Return a reader of a pool whose schedds have these jobs of cluster 123, and no other cluster."""
    return lambda cluster, schedd: {
        name: each for name, each in answers.items() if cluster == 123 and schedd in {None, name}
    }


JOBS = ScheddLoad(
    (IdleJobs(4, set_key([L2])), IdleJobs(1, set_key([L3])), IdleJobs(1, "lofar:new")),
    (RunningJobs((1,) * 18, CAM, set_key([L1])),),
)


def test_cluster_page_says_what_the_run_page_says():
    jobs = ClusterJobs(NOON, JOBS, held_count=2)
    answer = ask("/run?cluster=123", STAGING, read_cluster=cluster_of(ap1=jobs))
    assert answer.status_code == 200
    assert "<title>Cluster 123 at ap1" in answer.text
    assert "26 jobs: 18 running beside their data, 1 waits, 2 held, 5 wait for 2 datasets, ready about" in (
        " ".join(answer.text.split())
    )
    assert "more jobs than are counted" not in answer.text
    assert "Held jobs are not counted" not in answer.text
    cut = ask("/run?cluster=123", read_cluster=cluster_of(ap1=replace(jobs, is_complete=False)))
    assert "The cluster has more jobs than are counted here." in cut.text


@pytest.mark.parametrize("text", ["abc", "", "12.0", "-1", "12345678901", "\u0661", "1%0A2", "1 2"])
def test_a_text_that_is_not_a_cluster_gets_a_page_with_one_sentence(text):
    answer = ask(f"/run?cluster={text}", read_cluster=cluster_of())
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "text/html; charset=utf-8")
    assert "is not a cluster: write its number, such as 123." in answer.text


def test_a_cluster_that_no_schedd_has_gets_a_page_with_one_sentence():
    answer = ask("/run?cluster=5", read_cluster=cluster_of())
    assert answer.status_code == 404
    assert "No schedd has queued or running jobs of cluster 5." in answer.text
    silent = ask("/run?cluster=123", read_cluster=cluster_of(ap2=Unseen("no answer in time")))
    assert silent.status_code == 404
    assert "No schedd that answered has" in silent.text
    assert "schedd ap2 did not answer: no answer in time." in silent.text


def test_a_cluster_at_several_schedds_offers_each_of_them():
    read = cluster_of(**{"ap1": ClusterJobs(NOON, JOBS), "ap 2": ClusterJobs(NOON, JOBS)})
    answer = ask("/run?cluster=123", read_cluster=read)
    assert answer.status_code == 400
    [other] = [a["href"] for a in Parsed(answer.text).attributes if "ap%202" in a.get("href", "")]
    assert "<title>Cluster 123 at ap 2" in ask(other, read_cluster=read).text


def test_a_pool_that_does_not_answer_and_a_daemon_without_schedds_say_so():
    def fail(cluster: int, schedd: str | None) -> dict[str, ClusterJobs | Unseen]:
        raise PoolError("collector", "no answer in time")

    answer = ask("/run?cluster=123", read_cluster=fail)
    assert (answer.status_code, "no answer in time" in answer.text) == (502, True)
    answer = ask("/run?cluster=123")
    assert (answer.status_code, "demand.ask_schedds is false" in answer.text) == (404, True)


def test_questions_of_one_client_about_clusters_are_few():
    asked: list[int] = []

    def read(cluster: int, schedd: str | None) -> dict[str, ClusterJobs | Unseen]:
        asked.append(cluster)
        return {}

    app = app_of(VIEW, read_cluster=read)
    statuses = [answer_of(app, f"/run?cluster={cluster}").status_code for cluster in range(60)]
    assert statuses[0] == 404
    assert statuses[-1] == 429
    assert len(asked) == statuses.count(404) < 60


# names that do not exist


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/site?site=CAMM", 404, "The daemon knows no site &#39;CAMM&#39;."),
        ("/site", 404, "The daemon knows no site &#39;&#39;."),
        (
            "/dataset?did=lofar:nothing",
            404,
            "No job, pin or pattern names the dataset &#39;lofar:nothing&#39;",
        ),
        ("/run?run=r1", 404, "The daemon does not know the jobs in the queues: the daemon has not read"),
    ],
)
def test_an_unknown_name_gets_a_page_with_one_sentence(path, status, sentence):
    answer = ask(path)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "text/html; charset=utf-8")
    assert sentence in answer.text
    assert ("/site?site=CAM" in answer.text) == (path == "/site?site=CAMM")


def test_an_unknown_run_gets_a_page_with_one_sentence():
    answer = ask("/run?run=r9", replace(VIEW, load=load(IdleJobs(1, run="r1"))))
    assert answer.status_code == 404
    assert "No queued or running job belongs to the run &#39;r9&#39;" in answer.text
    assert "Held jobs are on the page of their cluster, /run?cluster=NUMBER" in answer.text


@pytest.mark.parametrize("path", ["/site?site=", "/dataset?did=", "/run?run="])
def test_hostile_names_are_shown_as_text(path):
    site, did = Site(HOSTILE), Did(HOSTILE)
    state = server_state(
        ads={site: replace(ad(L1), site=site)},
        snapshot=Snapshot({site: SiteFacts(NOON, {did: Fact(DatasetState.STUCK, NOON, 0.1, SAYS)})}),
        demand=demand(replace(want(L1), dids=(did,))),
        load=load(IdleJobs(2, set_key([did]), run=HOSTILE)),
    )
    changes = [DatasetChange(to_unix(NOON), did, HOSTILE, HOSTILE, HOSTILE)]
    answer = ask(path + HOSTILE.replace("&", "%26"), state, lambda _site: changes)
    assert answer.status_code == 200
    assert HOSTILE not in answer.text
    assert Parsed(answer.text).outside == []
    missing = ask(path + "%3Cscript%3E1", state)
    assert missing.status_code == 404
    assert Parsed(missing.text).tags.count("script") == 1
