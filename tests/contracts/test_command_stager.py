"""Stager contract for a command of the operator, and its exit status, limits and unreadable lines."""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import pytest

from adapters.command_stager import CommandStager
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import (
    OwnRequest,
    RefusalKind,
    StagingKind,
    StagingOutcomeUnknown,
    StagingPermissions,
    StagingRefused,
    StagingUnavailable,
)
from tests.contracts import archive_command
from tests.contracts.stager import CAM, FILE_BYTES, FILES, RAL, StagerContract, make_order
from tests.factories import NOON

pytestmark = pytest.mark.outside

BEGIN = 1_795_000_000
L1 = Did("lofar:L1")
REQUEST = OwnRequest("a:1", "handle", StagingKind.STAGE, CAM, L1)


class TestCommandStager(StagerContract):
    cannot = MappingProxyType({"containers": "this archive has no containers"})

    @pytest.fixture(autouse=True)
    def _archive(self, tmp_path):
        self.file = tmp_path / "archive.json"
        self.save({"now": BEGIN, "requests": {}, "sizes": {}, "space": {"CAM": 10**14}})

    def load(self):
        return json.loads(self.file.read_text())

    def save(self, archive):
        self.file.write_text(json.dumps(archive))

    def now(self):
        return datetime.fromtimestamp(self.load()["now"], UTC)

    def run_on(self, file: Path) -> CommandStager:
        words = (sys.executable, archive_command.__file__, str(file))
        return CommandStager("archive", words, self.now)

    def make_stager(self):
        return self.run_on(self.file)

    def make_failing_stager(self):
        return self.run_on(self.file.with_name("none"))

    def add_dataset(self, name):
        archive = self.load()
        archive["sizes"][f"lofar:{name}"] = {"bytes": FILES * FILE_BYTES, "files": FILES}
        self.save(archive)
        return Did(f"lofar:{name}")

    def let_data_arrive(self, did):
        archive = self.load()
        for one in archive["requests"].values():
            one["state"] = "done" if one["did"] == did else one["state"]
        self.save(archive)

    def let_time_pass(self, did, seconds):
        archive = self.load()
        self.save({**archive, "now": archive["now"] + seconds})

    def add_rule_of_others(self, did, site):
        archive = self.load()
        rule = {"did": did, "site": site, "account": "other", "handle": "theirs", "state": "moving"}
        archive["requests"]["theirs"] = {**rule, "expires_at": BEGIN + 10**6, "kind": "stage"}
        self.save(archive)

    def test_the_space_of_a_site_is_known(self):
        assert self.open_stager().read_space({CAM, RAL})[CAM].free_bytes == 10**14


def run(script: str, **options) -> CommandStager:
    """Return the stager whose command is a shell script."""
    words = ("/bin/sh", "-c", script)
    return CommandStager("archive", words, lambda: datetime.fromtimestamp(BEGIN, UTC), **options)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo hello >&2; echo no quota left >&2; exit 3", StagingRefused),
        ("exit 4", StagingRefused),
        ("echo try later >&2; exit 75", StagingUnavailable),
        ("exit 1", StagingOutcomeUnknown),
        ("kill -9 $$", StagingOutcomeUnknown),
        ("echo not json", StagingOutcomeUnknown),
        ("echo '[1]'", StagingOutcomeUnknown),
        ("""echo '{"tag": "another", "handle": "h"}'""", StagingOutcomeUnknown),
        ("""echo '{"tag": "a:1"}'""", StagingOutcomeUnknown),
        ("""echo '{"tag": "a:1", "handle": "h", "handle": "g"}'""", StagingOutcomeUnknown),
        ("""for n in 1 2; do echo '{"tag": "a:1", "handle": "h"}'; done""", StagingOutcomeUnknown),
    ],
)
def test_the_exit_status_decides_the_outcome_of_an_order(script, error):
    with pytest.raises(error) as raised:
        run(script).ask([make_order("a:1", L1)])
    assert "\n" not in str(raised.value)
    if "no quota" in script:
        assert raised.value.reason == "no quota left"


def test_an_order_that_the_output_omits_has_no_result():
    assert run("exit 0").ask([make_order("a:1", L1)]) == {}


def test_a_line_refuses_one_order_with_its_kind():
    script = """
    printf %s\\\\n '{"tag": "a:1", "refused": "too\\nlarge", "kind": "quota"}'
    echo '{"tag": "a:2", "unavailable": "tape is down"}'
    echo '{"tag": "a:3", "refused": "no", "kind": "a new kind"}'
    """
    results = run(script).ask([make_order(f"a:{number}", L1) for number in (1, 2, 3)])
    assert [(type(each), each.reason) for each in results.values()] == [
        (StagingRefused, "too large"),
        (StagingUnavailable, "tape is down"),
        (StagingRefused, "no"),
    ]
    assert results["a:1"].kind is RefusalKind.QUOTA
    assert results["a:3"].kind is RefusalKind.OTHER


def test_a_command_that_does_not_exist_did_nothing():
    stager = CommandStager("archive", ("/no/such/command",), lambda: NOON)
    with pytest.raises(StagingUnavailable):
        stager.ask([make_order("a:1", L1)])
    with pytest.raises(CatalogueError):
        stager.look({"a:1"}, "a:")


@pytest.mark.parametrize("call", ["ask", "look"])
def test_a_slow_command_is_killed_with_its_children_and_its_outcome_is_unknown(call, tmp_path):
    started = tmp_path / "started"
    limit = timedelta(seconds=5)
    stager = run(f": > {started}; sleep 1000 & wait", call_limit=limit, read_limit=limit)
    begun = time.monotonic()
    with pytest.raises(StagingOutcomeUnknown if call == "ask" else CatalogueError):
        stager.ask([make_order("a:1", L1)]) if call == "ask" else stager.look({"a:1"}, "a:")
    assert time.monotonic() - begun < 100
    assert started.exists()


def test_endless_output_is_cut_and_its_outcome_is_unknown():
    with pytest.raises(StagingOutcomeUnknown, match="more than 100000 bytes"):
        run("yes", max_bytes=100_000).ask([make_order("a:1", L1)])


GOOD = {"tag": "a:1", "handle": "h", "kind": "stage", "site": "CAM", "did": "lofar:L1", "state": "done"}


@pytest.mark.parametrize(
    "line",
    [
        [],
        {**GOOD, "kind": "steal"},
        {**GOOD, "did": "no did"},
        {**GOOD, "state": "fine"},
        {**GOOD, "files_done": -1},
        {**GOOD, "files_total": 1.5},
        {**GOOD, "expires_at": "tomorrow"},
        {**GOOD, "expires_at": 10**15},
        {**GOOD, "handle": None},
        {**GOOD, "handle": "h" * 1000},
    ],
)
def test_an_unreadable_line_makes_the_whole_answer_unknown(line):
    with pytest.raises(CatalogueError) as raised:
        run(f"echo '{json.dumps(line)}'").look({"a:1"}, "a:")
    assert run(f"echo '{json.dumps(GOOD)}'").look({"a:1"}, "a:")
    assert "\n" not in str(raised.value)


def test_a_command_without_an_action_knows_nothing():
    stager = run("exit 4")
    assert stager.find_rules({L1}, {CAM}) == []
    assert stager.measure({L1}) == {}
    assert stager.read_space({CAM}) == {}
    assert stager.probe_permissions() == StagingPermissions()
    with pytest.raises(CatalogueError):
        stager.look({"a:1"}, "a:")
    for call in (stager.cancel, lambda request: stager.renew(request, timedelta(days=1))):
        with pytest.raises(StagingRefused):
            call(REQUEST)


def test_the_command_reads_all_of_an_order(tmp_path):
    seen = tmp_path / "seen"
    order = make_order("a:1", L1, storage="POOL", source=RAL, kind=StagingKind.PIN)
    run(f"cat > {seen}").ask([order])
    assert json.loads(seen.read_text()) == {
        "version": 1,
        "action": "ask",
        "orders": [
            {
                "tag": "a:1",
                "batch": "b1",
                "kind": "pin",
                "site": "CAM",
                "did": "lofar:L1",
                "bytes": FILES * FILE_BYTES,
                "lifetime_seconds": 259_200,
                "storage": "POOL",
                "source": "RAL",
            }
        ],
    }


def test_a_shell_does_not_read_the_words_of_the_command(tmp_path):
    seen = tmp_path / "seen"
    script = f"import sys; open({str(seen)!r}, 'w').write('|'.join(sys.argv[1:]))"
    words = (sys.executable, "-c", script, "$(touch x)", "{did}; rm -r *")
    CommandStager("archive", words, lambda: NOON).ask([make_order("a:1", L1)])
    assert seen.read_text() == "$(touch x)|{did}; rm -r *"


def test_a_large_batch_is_given_to_a_command_that_does_not_read_it():
    orders = [make_order(f"a:{number}", Did(f"lofar:{number:0>200}")) for number in range(2000)]
    assert run("exit 0").ask(orders) == {}
    assert run("exit 0").look({order.tag for order in orders}, "b:") == {}
    assert run("exit 0").read_space({Site("CAM")}) == {}
