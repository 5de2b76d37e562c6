"""DESIRED_Sites on queued jobs that ask for it, at real schedds.

``bob`` edits: a queue super user that the schedd has a record of, without other rights. ``alice`` submits.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from adapters.condor import CondorClient, CondorSettings
from adapters.condor.schedds import ScheddJobSites
from hydrator.domain.errors import PoolDenied
from hydrator.domain.model import Site, SiteAd
from hydrator.reconcile.desired_sites.controller import DesiredSitesController, DesiredSitesResult
from hydrator.reconcile.desired_sites.decide import DesiredSitesStatus
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool, SiteSpec

pytestmark = [pytest.mark.pool, pytest.mark.timeout(600)]

SUPER = "QUEUE_SUPER_USERS = $(QUEUE_SUPER_USERS), bob\n"
PARIS = "Île-de-France (T2)"
ASKS = "+DataLocalityDesiredSites = true\n"
NEVER = "executable = /bin/sleep\narguments = 1\nrequirements = false\n"
SAID = ("DESIRED_Sites", "DataLocalityDesiredSitesKept", "ProcId", "JobStatus")


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  (a real schedd keeps real time)


@pytest.fixture(scope="module")
def pool(htcondor_release: str) -> Iterator[Pool]:
    with Pool.start(htcondor_release, (SiteSpec("UK", cpus=1),), {"schedd": SUPER}) as running:
        running.submit(f"{NEVER}queue", user="bob")  # gives bob a user record
        yield running


@pytest.fixture
def queue(pool: Pool) -> Iterator[Pool]:
    yield pool

    def empty() -> bool:
        for more in ((), ("-forcex",)):  # 23.9 sometimes keeps a removed job without end
            pool.run("condor_rm", *more, "-constraint", 'Owner == "alice"', check=False)
        return not pool.jobs('Owner == "alice"', "ProcId")

    pool.wait(empty, 60, "alice's jobs to be gone")


def client(pool: Pool, who: str = "bob") -> CondorClient:
    return CondorClient(CondorSettings(pool.collector, token_directory=pool.token(who)))


def schedd_of(client: CondorClient) -> str:
    return str(client.schedds()[0]["Name"])


@pytest.fixture
def editor(pool: Pool) -> Iterator[CondorClient]:
    with client(pool) as made:
        yield made


@pytest.fixture
def desiring(editor: CondorClient) -> DesiredSitesController:
    return desiring_by(editor)


def desiring_by(who: CondorClient, pace: float = 1000) -> DesiredSitesController:
    return DesiredSitesController(
        ScheddJobSites(who),
        now,
        max_age=timedelta(hours=5),
        default_scope="lofar",
        edits_per_second=pace,
        interval=timedelta(seconds=1),
    )


def ads(age: timedelta = timedelta(0), **sites: str) -> dict[Site, SiteAd]:
    """Return the ads of sites that have these datasets, as of *age* ago; ``PARIS`` is an odd name."""
    found = {}
    for name, listed in sites.items():
        site = Site(PARIS if name == "PARIS" else name)
        states = ";".join(f"'{did}'=\"AVAILABLE\"" for did in listed.split())
        content = (("DatasetStates", f"[{states}]"), ("DataLocalityVersion", "1"))
        found[site] = SiteAd(site, now() - age, 1, content)
    return found


def submit(pool: Pool, *lines: str, datasets: str = '"lofar:L1"', count: int = 1) -> int:
    more = "".join(f"{line}\n" for line in lines)
    return pool.submit(f"{NEVER}+RequiredDatasets = {{{datasets}}}\n{ASKS}{more}queue {count}")


def said(pool: Pool, cluster: int) -> list[str | None]:
    """Return DESIRED_Sites of each job of *cluster*."""
    jobs = pool.jobs(f"ClusterId == {cluster}", *SAID)
    return [job.get("DESIRED_Sites") for job in sorted(jobs, key=lambda job: job["ProcId"])]


def marks(pool: Pool, cluster: int) -> list[object]:
    return [job.get("DataLocalityDesiredSitesKept") for job in pool.jobs(f"ClusterId == {cluster}", *SAID)]


def turn(desiring: DesiredSitesController, known: dict[Site, SiteAd]) -> DesiredSitesResult:
    (placed,) = desiring.run_once(known).values()
    return placed


def qedit(pool: Pool, cluster: int, attribute: str, value: str, user: str = "alice") -> None:
    pool.run("condor_qedit", str(cluster), attribute, value, user=user)


def test_job_with_the_option_gets_the_sites_of_its_data_and_others_none(queue, desiring):
    asks = submit(queue, datasets='"lofar:L1", "L2"', count=2)
    silent = queue.submit(f'{NEVER}+RequiredDatasets = {{"lofar:L1"}}\n+DESIRED_Sites = "NL"\nqueue')
    both = "lofar:L1 lofar:L2"
    placed = turn(desiring, ads(UK=both, PARIS=both, AU="lofar:L1"))
    assert (placed.error, placed.edited_count, placed.jobs_by_status) == (
        None,
        2,
        {DesiredSitesStatus.SET: 2},
    )
    assert said(queue, asks) == [f"UK,{PARIS}"] * 2
    assert (said(queue, silent), marks(queue, silent)) == (["NL"], [None])


def test_desired_sites_are_edited_only_when_they_change(queue, desiring):
    first, other = submit(queue), submit(queue, datasets='"lofar:L2"')
    turn(desiring, ads(UK="lofar:L1 lofar:L2"))
    assert turn(desiring, ads(UK="lofar:L1 lofar:L2")).edited_count == 0
    assert turn(desiring, ads(UK="lofar:L1 lofar:L2", NL="lofar:L2")).edited_count == 1
    assert (said(queue, first), said(queue, other)) == (["UK"], ["NL,UK"])


def test_own_list_of_a_user_is_shortened_and_restored_without_the_option(queue, desiring):
    job = submit(queue, '+DESIRED_Sites = "AU, UK,NL"')
    turn(desiring, ads(UK="lofar:L1", NL="lofar:L1", PARIS="lofar:L1"))
    assert said(queue, job) == ["NL,UK"]
    qedit(queue, job, "DataLocalityDesiredSites", "false")
    turn(desiring, ads(UK="lofar:L1"))
    assert (said(queue, job), marks(queue, job)) == (["AU, UK,NL"], [None])


def test_own_list_without_a_site_of_the_data_is_kept_and_reported(queue, desiring):
    job = submit(queue, '+DESIRED_Sites = "AU"')
    placed = turn(desiring, ads(UK="lofar:L1"))
    assert (placed.jobs_by_status, placed.edited_count, placed.disjoint_example) == (
        {DesiredSitesStatus.DISJOINT: 1},
        0,
        f"{job}.0",
    )
    assert (said(queue, job), marks(queue, job)) == (["AU"], [None])


def test_no_job_is_confined_by_an_answer_that_is_old_or_missing(queue, desiring):
    with_own, without = submit(queue, '+DESIRED_Sites = "UK,NL"'), submit(queue)
    for known in (ads(timedelta(hours=6), UK="lofar:L1"), ads(UK="lofar:L9"), {}):
        turn(desiring, ads(UK="lofar:L1"))
        assert (said(queue, with_own), said(queue, without)) == (["UK"], ["UK"])
        turn(desiring, known)
        assert (said(queue, with_own), said(queue, without)) == (["UK,NL"], [None])


def test_job_sets_its_own_age_limit_of_facts(queue, desiring):
    strict, lax = submit(queue, "+DataLocalityMaxAge = 600"), submit(queue)
    turn(desiring, ads(timedelta(hours=1), UK="lofar:L1"))
    assert (said(queue, strict), said(queue, lax)) == ([None], ["UK"])


def test_job_that_may_run_anywhere_gets_its_own_list_back(queue, desiring):
    job = submit(queue, f"+DataLocalityAnyAfter = {int(now().timestamp()) + 3600}", '+DataLocality = "wait"')
    turn(desiring, ads(UK="lofar:L1"))
    assert said(queue, job) == ["UK"]
    qedit(queue, job, "DataLocalityAnyAfter", "1")
    placed = turn(desiring, ads(UK="lofar:L1"))
    assert (said(queue, job), placed.jobs_by_status) == ([None], {DesiredSitesStatus.FREE: 1})


def test_a_users_later_edit_is_never_overwritten_also_when_it_takes_the_list_out(queue, desiring):
    edited, emptied = submit(queue, '+DESIRED_Sites = "UK,NL"'), submit(queue)
    turn(desiring, ads(UK="lofar:L1"))
    qedit(queue, edited, "DESIRED_Sites", '"UK,NL"')  # what it had at first is an edit, too
    qedit(queue, emptied, "DESIRED_Sites", "undefined")
    for known in (ads(UK="lofar:L1"), ads(NL="lofar:L1"), {}):
        placed = turn(desiring, known)
        assert (placed.edited_count, placed.jobs_by_status) == (0, {DesiredSitesStatus.FOREIGN: 2})
    assert (said(queue, edited), said(queue, emptied)) == (["UK,NL"], [None])


def test_desired_sites_that_is_not_a_list_of_names_is_kept_and_blocks_no_other(queue, desiring):
    odd = ("strcat(GLIDEIN_Site, MachineAttrX)", '{"UK"}', '""', "5")
    jobs = [submit(queue, f"+DESIRED_Sites = {own}") for own in odd]
    well = submit(queue)
    placed = turn(desiring, ads(UK="lofar:L1"))
    assert (placed.edited_count, placed.error) == (1, None)
    assert [marks(queue, job) for job in jobs] == [[None]] * len(odd)
    assert said(queue, well) == ["UK"]


def test_a_malformed_list_of_datasets_confines_no_job(queue, desiring):
    wrong = ("nonsense", '"a,b", "c"', '"Ä:ö"', '5, "lofar:L1"')
    jobs = [submit(queue, datasets=text, count=2) for text in wrong]
    assert turn(desiring, ads(UK="lofar:L1")).edited_count == 0
    assert [said(queue, job) for job in jobs] == [[None, None]] * len(wrong)


def test_only_idle_jobs_are_edited(queue, desiring):
    job = submit(queue, "hold = true")
    placed = turn(desiring, ads(UK="lofar:L1"))
    assert (placed.edited_count, said(queue, job)) == (0, [None])


def test_jobs_of_a_late_materialization_are_edited_one_by_one(queue, desiring):
    text = f'{NEVER}+RequiredDatasets = {{"lofar:L1"}}\n{ASKS}+DESIRED_Sites = "UK,NL"\n'
    job = queue.submit(f"{text}max_materialize = 2\nqueue 4")
    queue.wait(lambda: len(said(queue, job)) == 2, 60, "two jobs to be there")
    assert turn(desiring, ads(UK="lofar:L1")).edited_count == 2
    assert said(queue, job) == ["UK", "UK"]


def test_cycle_edits_no_more_jobs_than_the_rate_allows(queue, editor):
    job = submit(queue, count=5)
    slow = desiring_by(editor, pace=2)
    assert turn(slow, ads(UK="lofar:L1")).edited_count == 2
    assert sorted(said(queue, job), key=str) == [None, None, None, "UK", "UK"]
    assert [turn(slow, ads(UK="lofar:L1")).edited_count for _ in range(3)] == [2, 1, 0]


@pytest.mark.parametrize("broken_off", ["before", "after"])
def test_an_edit_that_was_broken_off_is_finished_not_taken_for_a_users(queue, desiring, broken_off):
    job = submit(queue, '+DESIRED_Sites = "UK,NL"')
    mark = '[ Value = "UK"; Own = "UK,NL"; Was = "UK,NL"; Pending = "somebody" ]'
    qedit(queue, job, "DataLocalityDesiredSitesKept", mark)
    if broken_off == "after":
        qedit(queue, job, "DESIRED_Sites", '"UK"')
    assert turn(desiring, ads(UK="lofar:L1")).edited_count == 1
    assert turn(desiring, ads(UK="lofar:L1")).edited_count == 0
    turn(desiring, {})
    assert (said(queue, job), marks(queue, job)) == (["UK,NL"], [None])


# --- who may not


def refused(pool: Pool, who: str, known: dict[Site, SiteAd]) -> str:
    with client(pool, who) as other:
        return str(turn(desiring_by(other), known).error)


@pytest.mark.parametrize(
    ("who", "why"), [("hydrator", "hydrator@pool.test"), ("admin", "QUEUE_SUPER_USERS, condor_qusers -add")]
)
def test_denied_editor_gets_one_sentence_and_no_job_changes(queue, who, why):
    job = submit(queue, count=2)
    said_why = refused(queue, who, ads(UK="lofar:L1"))
    assert why in said_why
    assert "\n" not in said_why
    assert (said(queue, job), marks(queue, job)) == ([None, None], [None, None])


def test_immutable_desired_sites_leave_no_mark(queue, pool, desiring):
    job = submit(queue, '+DESIRED_Sites = "UK,NL"', count=3)
    pool.reconfig(schedd=f"{SUPER}IMMUTABLE_JOB_ATTRS = $(IMMUTABLE_JOB_ATTRS) DESIRED_Sites\n")
    try:
        pool.wait(lambda: "DESIRED_Sites" in knob(pool, "IMMUTABLE_JOB_ATTRS"), 30, "the schedd to know")
        for _ in range(2):
            placed = turn(desiring, ads(UK="lofar:L1"))
            assert placed.edited_count == 0
            assert "IMMUTABLE_JOB_ATTRS" in str(placed.error)
            assert (said(queue, job), marks(queue, job)) == (["UK,NL"] * 3, [None] * 3)
    finally:
        pool.reconfig(schedd=SUPER)
    pool.wait(lambda: "DESIRED_Sites" not in knob(pool, "IMMUTABLE_JOB_ATTRS"), 30, "the schedd to know")
    edited = [turn(desiring, ads(UK="lofar:L1")).edited_count for _ in range(2)]
    assert (edited, said(queue, job)) == ([1, 2], ["UK"] * 3)


def knob(pool: Pool, name: str) -> str:
    with client(pool) as asked:
        return asked.config_of("schedd", [name])[name] or ""


def test_queue_super_user_edits_protected_attributes(queue, pool, desiring):
    job = submit(queue)
    pool.reconfig(schedd=f"{SUPER}PROTECTED_JOB_ATTRS = $(PROTECTED_JOB_ATTRS) DESIRED_Sites\n")
    try:
        pool.wait(lambda: "DESIRED_Sites" in knob(pool, "PROTECTED_JOB_ATTRS"), 30, "the schedd to know")
        assert turn(desiring, ads(UK="lofar:L1")).edited_count == 1
    finally:
        pool.reconfig(schedd=SUPER)
    assert said(queue, job) == ["UK"]


# --- taking it out


def test_run_anywhere_restores_all_lists_except_those_that_users_edited(queue, desiring, editor):
    own, none, edited = submit(queue, '+DESIRED_Sites = "UK,NL"'), submit(queue, count=2), submit(queue)
    held = submit(queue)
    turn(desiring, ads(UK="lofar:L1"))
    qedit(queue, edited, "DESIRED_Sites", '"AU"')
    queue.run("condor_hold", str(held), user="alice")
    assert editor.restore_desired_sites(schedd_of(editor), should_opt_out=False) == 5
    assert [said(queue, job) for job in (own, none, edited, held)] == [["UK,NL"], [None] * 2, ["AU"], [None]]
    assert [marks(queue, job) for job in (own, none, edited, held)] == [[None], [None] * 2, [None], [None]]
    assert editor.restore_desired_sites(schedd_of(editor), should_opt_out=False) == 0


def test_a_freed_job_gets_no_list_any_more(queue, desiring, editor):
    job, other = submit(queue), submit(queue)
    turn(desiring, ads(UK="lofar:L1"))
    editor.restore_desired_sites(schedd_of(editor), f"ClusterId == {job}", should_opt_out=True)
    assert turn(desiring, ads(UK="lofar:L1")).edited_count == 0
    assert (said(queue, job), said(queue, other)) == ([None], ["UK"])


def test_denied_run_anywhere_restores_nothing_and_is_reported(queue, desiring):
    job = submit(queue)
    turn(desiring, ads(UK="lofar:L1"))
    with client(queue, "hydrator") as other, pytest.raises(PoolDenied):
        other.restore_desired_sites(schedd_of(other), should_opt_out=False)
    assert said(queue, job) == ["UK"]


# --- the daemon


@pytest.fixture(scope="module")
def installed(pool: Pool) -> Iterator[Installation]:
    key = pool.home / "private-key"
    key.touch(mode=0o600)
    key.write_text("0123456789abcdef" * 4)
    settings = (
        "[publish.desired_sites]\nenabled = true\ninterval_seconds = 1\n"
        f'token_directory = "{pool.token("bob")}"\n'
        f'[private]\npatterns = ["embargo:*"]\nkey_file = "{key}"\n'
    )
    catalogue = ListedCatalogue(pool.home, ("UK", "NL"))
    catalogue.hold({"lofar:L1": {"UK": "available"}, "embargo:secret": {"UK": "available"}})
    installation = Installation(pool, catalogue, settings=settings)
    installation.install()
    try:
        installation.start_daemon()
        yield installation
    finally:
        installation.stop_daemon()


def test_daemon_updates_desired_sites_as_data_moves_and_run_anywhere_ends_it(queue, installed):
    job = submit(queue, '+DESIRED_Sites = "UK,NL,AU"')
    queue.wait(lambda: said(queue, job) == ["UK"], 60, "the list to be there")
    installed.catalogue.hold({"lofar:L1": {"UK": "available", "NL": "available"}})
    queue.wait(lambda: said(queue, job) == ["NL,UK"], 60, "the list to follow")
    lines = httpx.get(f"{installed.url}/metrics", trust_env=False, timeout=60).text.splitlines()
    assert any(
        line.startswith("hydrator_desired_sites_jobs{") and 'status="set"} 1' in line for line in lines
    )
    installed.stop_daemon()
    (given_back,) = json.loads(
        installed.run("run-anywhere", "--all", "--desired-sites", "--json").stdout
    ).values()
    assert (given_back, said(queue, job), marks(queue, job)) == (1, ["UK,NL,AU"], [None])
    installed.start_daemon()
    queue.wait(lambda: said(queue, job) == ["NL,UK"], 60, "the list to be there again")
    installed.run("run-anywhere", str(job))
    asked = queue.jobs(f"ClusterId == {job}", "DataLocalityDesiredSites")
    assert (said(queue, job), asked) == (["UK,NL,AU"], [{"DataLocalityDesiredSites": False}])


def test_check_reports_the_rights_of_the_editor_and_few_of_the_daemon(installed):
    found = json.loads(installed.run("check", "--json", check=False).stdout)
    (finding,) = [one for one in found if "every queued job" in one["message"]]
    assert finding["level"] == "advice"
    assert "bob@pool.test" in finding["message"]
    assert not [one for one in found if "also lets" in one["message"]]


def test_desired_sites_show_no_name_of_a_private_dataset(queue, installed):
    plain = submit(queue, datasets='"embargo:secret"')
    other = submit(queue)
    queue.wait(lambda: said(queue, other) != [None], 60, "the other job's list")
    assert said(queue, plain) == [None], "a plain private name is known nowhere"
    metrics = httpx.get(f"{installed.url}/metrics", trust_env=False, timeout=60).text
    assert "secret" not in installed.log + metrics
