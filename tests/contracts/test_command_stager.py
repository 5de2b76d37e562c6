"""Stager contract for a command of the operator, and its exit status, limits and unreadable lines."""

import json
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from adapters.command_stager import CommandStager
from adapters.remote import RemoteObject
from adapters.worker import Worker
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did
from hydrator.domain.staging_ports import (
    StagingFailed,
    StagingKind,
    StagingPermissions,
    StagingQuery,
    StagingRefused,
)
from hydrator.wiring.catalogue_worker import encode_recipe
from hydrator.wiring.catalogues import CATALOGUE_WORKER, _worker_error
from testbed.patience import wait_for
from testbed.processes import is_running
from tests.contracts import archive_command
from tests.contracts.stager import CAM, FILE_BYTES, FILES, RAL, StagerContract, make_order
from tests.factories import HOUR, MINUTE
from tests.staging_world import DAY, StagingWorld, need
from tests.staging_world import run as run_job

pytestmark = pytest.mark.outside

BEGIN = 1_795_000_000
L1, L2 = Did("lofar:L1"), Did("lofar:L2")
ALL = StagingQuery(lists_all=True)


class TestCommandStager(StagerContract):
    @pytest.fixture(autouse=True)
    def _archive(self, tmp_path):
        self.file = tmp_path / "archive.json"
        self.save(
            {"now": BEGIN, "rules": {}, "sizes": {}, "files": FILES, "space": {"CAM": 10**14, "RAL": -1}}
        )

    def load(self):
        return json.loads(self.file.read_text())

    def save(self, archive):
        self.file.write_text(json.dumps(archive))

    def now(self):
        return datetime.fromtimestamp(self.load()["now"], UTC)

    def run_on(self, file: Path) -> CommandStager:
        return CommandStager("archive", (sys.executable, archive_command.__file__, str(file)))

    def make_stager(self):
        return self.run_on(self.file)

    def make_failing_stager(self):
        return self.run_on(self.file.with_name("none"))

    def add_dataset(self, name):
        archive = self.load()
        archive["sizes"][f"lofar:{name}"] = FILES * FILE_BYTES
        self.save(archive)
        return Did(f"lofar:{name}")

    def let_data_arrive(self, did):
        archive = self.load()
        for one in archive["rules"].values():
            one["state"] = "done" if one["did"] == did else one["state"]
        self.save(archive)

    def let_time_pass(self, did, seconds):
        archive = self.load()
        now = archive["now"] + seconds
        rules = {rule: one for rule, one in archive["rules"].items() if one["expires_at"] > now}
        self.save({**archive, "now": now, "rules": rules})

    def add_rule_of_others(self, did, site):
        archive = self.load()
        rule = {"did": did, "site": site, "account": "other", "state": "moving", "ours": False}
        archive["rules"]["theirs"] = {**rule, "expires_at": BEGIN + 10**6}
        self.save(archive)

    def test_an_odd_free_space_is_a_reason_of_its_own_site(self):
        spaces = self.open_stager().list(StagingQuery(spaces=frozenset({CAM, RAL}))).spaces
        assert spaces == {CAM: 10**14, RAL: "the command reports free_bytes = '-1'"}


def test_controller_asks_renews_and_cancels_over_a_command(tmp_path):
    """Demand, a request, its data, a job, and the ends: one by its lifetime, one by a cancellation."""
    world = StagingWorld(L1=1, L2=1)
    file, sizes = tmp_path / "archive.json", dict(world.stager.sizes)
    archive = {"now": 0, "rules": {}, "sizes": sizes, "files": 2, "space": {"CAM": 10**14}}
    world.backend = CommandStager("archive", (sys.executable, archive_command.__file__, str(file)))
    world.restart()

    def step(*jobs, after=MINUTE, **rules):
        """Change the state of *rules*, let the command end what is due, make a step; return the rules."""
        archive["now"] = int((world.clock.now + after).timestamp())
        for rule, one in [*archive["rules"].items()]:
            one["state"] = rules.get(one["did"][-2:], one["state"])
            if one["expires_at"] <= archive["now"]:
                del archive["rules"][rule]
        file.write_text(json.dumps(archive))
        world.step_with(*jobs, after=after)
        archive.update(json.loads(file.read_text()))
        return {one["did"]: one["expires_at"] - archive["now"] for one in archive["rules"].values()}

    jobs = need(L1), need(L2)
    assert step(*jobs) == {L1: 15 * 86_400, L2: 15 * 86_400}
    [first, _] = archive["rules"].values()
    assert (first["did"], first["site"], first["kind"], first["state"]) == (L1, "CAM", "stage", "moving")
    world.put(L1, CAM)
    assert step(*jobs, L1="done") == {L1: 15 * 86_400 - 60, L2: 15 * 86_400 - 60}
    texts = {row.did: row.description for row in world.overview.requests}
    assert "request request-0, complete" in texts[L1]
    assert "request request-1, 0 of 2 files" in texts[L2]
    assert step(run_job(L1), need(L2), after=8 * DAY) == {L1: 15 * 86_400, L2: 15 * 86_400}
    step()
    assert step(after=HOUR) == {L1: 4 * 86_400, L2: 0}  # no job needs them
    assert step() == {L1: 4 * 86_400 - 60}
    assert step(after=5 * DAY) == {}
    assert {one.did: (one.reason, one.is_used) for one in world.table.ended} == {
        L1: ("its lifetime ended", True), L2: ("cancelled", False)
    }  # fmt: skip
    assert world.table.requests == ()


def run(script: str) -> CommandStager:
    """Return the stager whose command is a shell script."""
    return CommandStager("archive", ("/bin/sh", "-c", script))


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo hello >&2; echo no quota left >&2; exit 3", StagingRefused),
        ("exit 1", StagingFailed),
        ("kill -9 $$", StagingFailed),
        ("exit 0", StagingFailed),
        ("echo not json", StagingFailed),
        ("echo '[1]'", StagingFailed),
        ("""echo '{"rule": ""}'""", StagingFailed),
        ("""for n in 1 2; do echo '{"rule": "h"}'; done""", StagingFailed),
    ],
)
def test_the_exit_status_decides_the_outcome_of_a_request(script, error):
    with pytest.raises(error) as raised:
        run(script).request(make_order(L1))
    assert "\n" not in str(raised.value)
    if "no quota" in script:
        assert raised.value.reason == "no quota left"


def test_a_command_that_does_not_exist_fails():
    stager = CommandStager("archive", ("/no/such/command",))
    with pytest.raises(StagingFailed):
        stager.request(make_order(L1))
    with pytest.raises(CatalogueError):
        stager.list(ALL)


@pytest.fixture
def supervise():
    """Return the stager whose command is a shell script, in a worker."""
    stagers = []

    def build(script: str) -> RemoteObject:
        recipe = partial(CommandStager, "archive", ("/bin/sh", "-c", script))
        worker = Worker(CATALOGUE_WORKER, limit_bytes=200_000_000, setup=encode_recipe(recipe))
        stagers.append(RemoteObject("archive", worker, 5, partial(_worker_error, "archive")))
        return stagers[-1]

    yield build
    for stager in stagers:
        stager.close()


@pytest.mark.parametrize("call", ["request", "list"])
def test_a_slow_command_is_killed_with_its_children_and_its_outcome_is_unknown(call, tmp_path, supervise):
    child = tmp_path / "child"
    stager = supervise(f"sleep 1000 & echo $! > {child}; wait")
    with pytest.raises(StagingFailed if call == "request" else CatalogueError, match="no answer within 5 s"):
        stager.request(make_order(L1)) if call == "request" else stager.list(ALL)
    wait_for(lambda: not is_running(child.read_text().strip()), "end of the child")


@pytest.mark.parametrize("stream", [1, 2])
def test_endless_output_ends_the_command_and_its_outcome_is_unknown(stream, supervise):
    stager = supervise(f"yes >&{stream} & wait")
    for _ in range(2):
        with pytest.raises(StagingFailed, match="the command wrote more than 16 MiB"):
            stager.request(make_order(L1))
    assert stager._worker.restart_count == 0


def test_a_command_that_takes_much_memory_fails(supervise):
    with pytest.raises(StagingFailed, match="MemoryError"):
        supervise(f"{sys.executable} -c 'bytes(10**9)'").request(make_order(L1))


GOOD = {"rule": "h", "kind": "stage", "site": "CAM", "did": "lofar:L1", "state": "done"}


@pytest.mark.parametrize(
    "line",
    [
        [],
        {"site": "CAM"},
        {"did": "lofar:L1", "bytes": -1},
        {**GOOD, "kind": "steal"},
        {**GOOD, "did": "no did"},
        {**GOOD, "state": "fine"},
        {**GOOD, "files_done": -1},
        {**GOOD, "files": 1.5},
        {**GOOD, "expires_at": "tomorrow"},
        {**GOOD, "expires_at": 10**15},
        {**GOOD, "ours": True},
        {**GOOD, "rule": "h" * 1000},
    ],
)
def test_an_unreadable_line_makes_the_whole_answer_unknown(line):
    with pytest.raises(CatalogueError) as raised:
        run(f"echo '{json.dumps(line)}'").list(ALL)
    assert run(f"echo '{json.dumps(GOOD)}'").list(ALL).rules
    assert "\n" not in str(raised.value)


def test_a_line_that_is_repeated_counts_once_for_each_site():
    lines = "\n".join(json.dumps({**GOOD, "site": site}) for site in ("CAM", "RAL", "CAM"))
    assert [rule.site for rule in run(f"echo '{lines}'").list(ALL).rules] == ["CAM", "RAL"]


def test_a_line_may_say_since_when_a_rule_is_stuck():
    line = json.dumps({**GOOD, "state": "stuck", "stuck_since": 86_400})
    [rule] = run(f"echo '{line}'").list(ALL).rules
    assert rule.stuck_since == datetime.fromtimestamp(86_400, UTC)


def test_permissions_of_a_command_are_not_known():
    assert run("exit 1").probe_permissions() == StagingPermissions()


def test_the_command_reads_all_of_an_order(tmp_path):
    seen = tmp_path / "seen"
    order = make_order(L1, storage="POOL", source=RAL, kind=StagingKind.PIN)
    with pytest.raises(StagingFailed):
        run(f"cat > {seen}").request(order)
    assert json.loads(seen.read_text()) == {
        "version": 1,
        "action": "request",
        "kind": "pin",
        "site": "CAM",
        "did": "lofar:L1",
        "bytes": FILES * FILE_BYTES,
        "lifetime_seconds": 259_200,
        "storage": "POOL",
        "source": "RAL",
        "rule": "",
    }


def test_a_shell_does_not_read_the_words_of_the_command(tmp_path):
    seen = tmp_path / "seen"
    script = f"import sys; open({str(seen)!r}, 'w').write('|'.join(sys.argv[1:]))"
    words = (sys.executable, "-c", script, "$(touch x)", "{did}; rm -r *")
    CommandStager("archive", words).list(ALL)
    assert seen.read_text() == "$(touch x)|{did}; rm -r *"


def test_a_large_query_is_given_to_a_command_that_does_not_read_it():
    dids = frozenset(Did(f"lofar:{number:0>200}") for number in range(2000))
    assert run("exit 0").list(StagingQuery(dids)).rules == ()
