"""Warnings at submission about jobs that no site can start now."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hydrator.diagnostics.why.nowhere import explain_no_complete_site
from hydrator.domain.model import DaemonKnowledge, DatasetState, Did, Fact, Site, SiteFacts, Snapshot
from hydrator.submit.nearest_names import add_similar_names
from tests.factories import L1, L2, NOON

CONFIG = """
[daemon]
state_dir = "state"
[demand]
ask_schedds = false
[publish.collector]
enabled = false
[[catalogue]]
type = "file"
path = "catalogue.toml"
"""
CATALOGUE = """
sites = ["CAM"]
[datasets."lofar:L1234.ms"]
sites.CAM = "available"
[datasets."lofar:L5678.ms"]
sites.CAM = "nearline"
"""


def known(**sites: dict[Did, Fact]) -> DaemonKnowledge:
    facts = {Site(site): SiteFacts(NOON, here) for site, here in sites.items()}
    return DaemonKnowledge(NOON, Snapshot(facts), frozenset({L1, L2}))


def fact(state: DatasetState, fraction: float | None = None) -> Fact:
    return Fact(state, NOON, fraction)


def test_sites_are_listed_with_missing_datasets_unless_one_is_complete():
    here, coming = fact(DatasetState.AVAILABLE), fact(DatasetState.STAGING, 0.4)
    text = explain_no_complete_site(known(CAM={L1: here, L2: coming}, RAL={L2: here}), {L1, L2})
    assert text == (
        f"no site has all data of the job now: CAM has 1 of 2 ({L2} STAGING 40 %);"
        f" RAL has 1 of 2 ({L1} absent)"
    )
    assert explain_no_complete_site(known(CAM={L1: here, L2: here}), {L1, L2}) == ""


def test_name_in_no_catalogue_comes_first_and_unseen_datasets_are_skipped():
    right, wrong = Did("lofar:L1234.ms"), Did("lofar:L1243.ms")
    beliefs = known(RAL={right: fact(DatasetState.AVAILABLE)})
    beliefs = add_similar_names(replace(beliefs, queried_dids=frozenset({wrong})), {wrong})
    assert explain_no_complete_site(beliefs, {wrong, L1}).startswith(
        f"{L1} is in no catalogue; {wrong} is in no cata"
    )
    assert explain_no_complete_site(beliefs, {wrong}) == f"{wrong} is in no catalogue; did you mean {right}?"
    assert explain_no_complete_site(known(), {Did("not:asked")}) == ""
    silent = replace(known(), snapshot=Snapshot({}, {L1: "timeout"}))
    assert explain_no_complete_site(silent, {L1}) == ""
    assert explain_no_complete_site(known(), frozenset()) == ""


def test_all_absent_names_are_named_at_once():
    absent = [Did(f"x:A{number}") for number in range(9)]
    beliefs = replace(known(), queried_dids=frozenset(absent))
    assert explain_no_complete_site(beliefs, {*absent}) == f"{', '.join(absent)} are in no catalogue"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "catalogue.toml").write_text(CATALOGUE)
    (tmp_path / "job.sub").write_text("executable = /bin/true\nqueue\n")
    tool = tmp_path / "condor_submit"
    tool.write_text("#!/bin/sh\necho submitted\n")
    tool.chmod(0o755)
    return tmp_path


def wrapped(desk: Path, did: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["submit", "wrap", "-c", "config.toml", "-d", did, *options, "--", "condor_submit", "job.sub"]
    env = {**os.environ, "PATH": f"{desk}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "hydrator.cli", *words]
    return subprocess.run(
        command, cwd=desk, env=env, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.outside
def test_wrap_warns_of_jobs_without_a_site_and_refuses_them_on_request(desk):
    fine = wrapped(desk, "lofar:L1234.ms")
    assert (fine.returncode, fine.stdout, fine.stderr) == (0, "submitted\n", "")
    typo = wrapped(desk, "lofar:L1243.ms")
    assert (typo.returncode, typo.stdout) == (0, "submitted\n")
    assert typo.stderr == "hydrator: lofar:L1243.ms is in no catalogue; did you mean lofar:L1234.ms?\n"
    tape = wrapped(desk, "lofar:L5678.ms", "--refuse-nowhere")
    assert (tape.returncode, tape.stdout) == (3, "")
    assert tape.stderr == (
        "hydrator: no site has all data of the job now: CAM has 0 of 1 (lofar:L5678.ms NEARLINE);"
        " nothing was submitted\n"
    )
    (desk / "catalogue.toml").write_text("sites = 3")
    broken = wrapped(desk, "lofar:L1234.ms")
    assert (broken.returncode, broken.stdout) == (0, "submitted\n")
    assert "nobody answered where lofar:L1234.ms is: " in broken.stderr
    (desk / "config.toml").write_text('[submit]\ndaemon_url = "http://127.0.0.1:9"\n')
    silent = wrapped(desk, "lofar:L1234.ms")
    assert (silent.returncode, silent.stdout) == (0, "submitted\n")
    assert silent.stderr.startswith("hydrator: nobody answered where lofar:L1234.ms is: ")


@pytest.mark.outside
def test_wrap_names_dag_nodes_without_a_site_and_writes_no_refused_dag(desk):
    (desk / "x.dag").write_text("JOB A job.sub\nJOB B job.sub\nJOB C job.sub\n")
    (desk / "condor_submit_dag").write_text("#!/bin/sh\n")
    (desk / "condor_submit_dag").chmod(0o755)

    def submit(*options: str) -> subprocess.CompletedProcess[str]:
        given = [
            w
            for node, did in zip("ABC", ["L1234", "L5678", "L5678"], strict=True)
            for w in ("-d", f"{node}=lofar:{did}.ms")
        ]
        words = [
            "submit",
            "wrap",
            "-c",
            "config.toml",
            *given,
            *options,
            "--",
            "./condor_submit_dag",
            "x.dag",
        ]
        return subprocess.run(
            [sys.executable, "-m", "hydrator.cli", *words],
            cwd=desk,
            capture_output=True,
            text=True,
            check=False,
        )

    refused = submit("--refuse-nowhere")
    assert refused.returncode == 3
    assert "nodes B, C: no site has all data of the job now: " in refused.stderr
    assert "node A" not in refused.stderr
    assert not (desk / "x.hydrator.dag").exists()
    said = submit()
    assert said.returncode == 0
    assert "nodes B, C: no site has all data of the job now: " in said.stderr
    assert (desk / "x.hydrator.dag").exists()
