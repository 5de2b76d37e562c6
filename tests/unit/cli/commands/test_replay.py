"""`hydrator replay`: a trial on a workload file and on a history, its exports, and its errors."""

import json
import tomllib
from pathlib import Path

import pytest

from hydrator import wiring
from hydrator.cli.commands.outcomes.policy_table import print_policy_table, replay_json
from hydrator.cli.commands.outcomes.policy_trial import (
    ReplayTable,
    build_rules,
    describe_assumed_rules,
    parse_rates,
    try_policies,
)
from hydrator.cli.commands.outcomes.replay import ReplayOptions, replay
from hydrator.cli.output.json_schema import SCHEMAS
from hydrator.config import parse
from hydrator.diagnostics.replay.expressions import TurnRules
from hydrator.diagnostics.replay.history import build_history_workload, build_recorded_run
from hydrator.diagnostics.replay.model import RECORDED, PoolRules
from hydrator.diagnostics.replay.statistics import summarize
from hydrator.domain.errors import ConfigError
from hydrator.domain.pool_ports import EndedJobs
from hydrator.state.store import Store
from hydrator.wiring import estimate_policy
from testbed.shaped import problems
from tests.factories import CAM, L1, RAL
from tests.unit.diagnostics.replay.test_history import inputs, row
from tests.unit.diagnostics.replay.worlds import play

SITES = [
    {"site": name, "machines": 1, "cores": 4, "bytes_per_second": 166_666} for name in ("NL", "DE", "PL")
]
MIX = {"jobs": 40, "bytes": 1_000_000, "compute_seconds": 6}


@pytest.fixture
def workload_file(tmp_path):
    path = tmp_path / "workload.json"
    path.write_text(json.dumps({"version": 1, "sites": SITES, "mix": MIX}))
    return path


def options(workload_file, **more) -> ReplayOptions:
    return ReplayOptions(workload=workload_file, cycle=5.0, seeds=2, **more)


def test_table_has_a_row_for_each_policy(workload_file, capsys):
    replay(options(workload_file, policy=["off", "wait:30s", "require"]))
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[:4]] == ["policy", "off", "wait:30s", "require"]
    assert "40 jobs, 2 runs a policy" in out


def test_json_has_the_same_policies_and_its_schema(workload_file, capsys):
    replay(options(workload_file, policy=["off", "auto"], as_json=True))
    value = json.loads(capsys.readouterr().out)
    assert list(problems(SCHEMAS["replay"], value)) == []
    assert [one["policy"] for one in value["policies"]] == ["off", "auto"]
    assert value["history"] is None


def test_default_policies_are_four(workload_file):
    assert [one.name for one in try_policies(options(workload_file)).results] == [
        "off",
        "prefer",
        "wait",
        "auto",
    ]


def test_policies_do_not_change_each_other(workload_file):
    together = try_policies(options(workload_file, policy=["off", "require", "auto"])).results
    alone = [
        try_policies(options(workload_file, policy=[one])).results[0] for one in ("off", "require", "auto")
    ]
    assert list(together) == alone


def test_exports_are_written(workload_file, tmp_path):
    swf, wfcommons = tmp_path / "a.swf", tmp_path / "a.json"
    try_policies(options(workload_file, policy=["off"], export_swf=swf, export_wfcommons=wfcommons))
    assert swf.read_text().count("\n") == 40 + 15
    assert len(json.loads(wfcommons.read_text())["workflow"]["specification"]["tasks"]) == 40


def test_export_that_cannot_be_written_is_reported(workload_file, tmp_path):
    with pytest.raises(ConfigError, match="No such file or directory"):
        try_policies(options(workload_file, policy=["off"], export_swf=tmp_path / "no" / "a.swf"))


def test_text_says_how_good_the_model_is_and_what_it_does_not_know(capsys):
    jobs = build_history_workload(inputs(row(L1, site=RAL), row(L1, DataLocality="require", Owner=None)))
    again = summarize([play(jobs, RECORDED)], "seeds")
    history = summarize([build_recorded_run(jobs)], "seeds")
    print_policy_table(ReplayTable(jobs, (again,), "seeds", 1, history))
    out = capsys.readouterr().out
    assert "in the history it was 50 %" in out
    assert "- 1 job without an owner" in out
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["policy", "recorded", "history"]


def test_history_without_jobs_is_said(capsys):
    table = ReplayTable(build_history_workload(inputs()), (), "seeds", 5, None)
    print_policy_table(table)
    assert "nothing to replay" in capsys.readouterr().out
    assert list(problems(SCHEMAS["replay"], replay_json(table))) == []


def test_jobs_that_never_start_are_named(workload_file, capsys):
    content = json.loads(workload_file.read_text())
    far = {"site": "TAPE", "machines": 0, "cores": 1}
    job = {"compute_seconds": 5, "inputs": [{"bytes": 1, "sites": ["TAPE"]}]}
    workload_file.write_text(json.dumps({**content, "mix": None, "sites": [*SITES, far], "jobs": [job]}))
    replay(options(workload_file, policy=["require"]))
    assert "require: 1 job never started." in capsys.readouterr().out


def test_rates_are_bits_or_bytes():
    rates = parse_rates(["RAL=10Gb/s", "CAM=1.5GB/s", "A=B=8b/s"[2:]])
    assert rates == {"RAL": 1.25e9, "CAM": 1.5e9, "B": 1.0}


@pytest.mark.parametrize("text", ["RAL", "RAL=", "=1Gb/s", "RAL=1", "RAL=0Gb/s", "RAL=-1Gb/s", "RAL=1gb/s"])
def test_other_rates_are_rejected(text):
    with pytest.raises(ConfigError, match="--uplink"):
        parse_rates([text])


def test_rates_of_a_workload_file_are_in_the_file(workload_file):
    with pytest.raises(ConfigError, match="a workload file has the rates"):
        try_policies(options(workload_file, uplink=["NL=1Gb/s"]))


SETTINGS = """
[[catalogue]]
type = "file"
path = "catalogue.json"
[estimates]
max_readers_per_source = 3
portion = 5
valid_seconds = 120
[demand]
settle_seconds = 77
[daemon]
max_age_hours = 2
[jobs]
others_weight = 9
auto_settle_seconds = 44
[network.uplinks.CAM]
gbit_per_second = 8
"""


def test_rules_of_the_model_are_those_of_the_daemon():
    settings = parse(tomllib.loads(SETTINGS), folder=Path("/"), origin="config.toml")
    rules = build_rules(settings, PoolRules(cycle_seconds=7))
    assert rules.estimates == estimate_policy(settings)
    assert (rules.estimates.max_readers_per_source, rules.estimates.portion) == (3, 5)
    assert (rules.cycle_seconds, rules.settle_seconds, rules.others_weight) == (7, 77, 9)
    assert rules.max_age_seconds == 105 * 60
    assert (rules.publish_seconds, rules.delivery_seconds) == (settings.daemon.poll_seconds, 150)
    assert settings.daemon.poll_seconds != PoolRules().publish_seconds
    assert rules.turns == TurnRules(4)  # a pool has at least 4 readers of a source


def test_settings_of_the_pool_that_nobody_knows_are_named():
    text = describe_assumed_rules(PoolRules(cycle_seconds=7, delivery_seconds=150, turns=TurnRules(12)))
    for part in ("NEGOTIATOR_INTERVAL = 7", "CLAIM_WORKLIFE = 1200", "PERIOD = 300", "1 s between two jobs"):
        assert part in text
    assert "DATALOCALITY_READERS = 12 and DATALOCALITY_TURN = 64" in text
    assert "no limit of jobs that begin to read" in describe_assumed_rules(PoolRules(turns=None))


@pytest.mark.parametrize("off", ["[estimates]\nenabled = false", "[demand]\nask_schedds = false"])
def test_daemon_that_makes_no_estimates_has_none_in_the_model(off):
    catalogue = '[[catalogue]]\ntype = "file"\npath = "catalogue.json"\n'
    rules = build_rules(
        parse(tomllib.loads(catalogue + off), folder=Path("/"), origin="config.toml"), PoolRules()
    )
    assert not rules.estimates.is_enabled


def test_history_has_the_rates_of_the_daemon_unless_an_uplink_overrides_them(tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    path.write_text(SETTINGS)
    monkeypatch.setenv("HYDRATOR_DAEMON__STATE_DIR", str(tmp_path / "state"))
    with Store.open_to_write(tmp_path / "state"):
        pass

    class History:
        def read_ended_jobs(self, since):
            times = {
                "QDate": 1_700_000_000,
                "JobStartDate": 1_700_000_060,
                "JobCurrentStartDate": 1_700_000_060,
            }
            rows = [row(L1, site=RAL, EnteredCurrentStatus=1_700_003_660, **times), row(site=CAM)]
            return {"ap1": EndedJobs(rows, is_complete=True)}

        def close(self):
            pass

    monkeypatch.setattr(wiring, "build_job_history", lambda *_: History())

    def sites(*uplink: str) -> dict:
        table = try_policies(ReplayOptions(config=path, policy=["off"], seeds=1, uplink=list(uplink)))
        return {site.name: (site.bytes_per_second, site.rates_to) for site in table.workload.sites}

    assert sites() == {CAM: (None, {RAL: 1e9}), RAL: (None, {})}
    assert sites("CAM=4Gb/s", "RAL=1GB/s") == {CAM: (5e8, {}), RAL: (1e9, {})}
