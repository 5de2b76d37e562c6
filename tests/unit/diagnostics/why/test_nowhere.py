"""Warnings at submission about jobs that no site can start now."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hydrator.diagnostics.why.nowhere import add_similar_names, explain_no_complete_site
from hydrator.domain.model import DatasetState, Did, Snapshot
from testbed.processes import run_program
from tests.factories import CAM, L1, L2, RAL
from tests.unit.cli.test_submit_rapthor import CONFIG
from tests.unit.diagnostics.test_why import beliefs, fact
from tests.unit.submit.test_submit_file import stand_in

CATALOGUE = """
sites = ["CAM"]
[datasets."lofar:L1234.ms"]
sites.CAM = "available"
[datasets."lofar:L5678.ms"]
sites.CAM = "nearline"
"""


def test_sites_are_listed_with_missing_datasets_unless_one_is_complete():
    here, coming = fact(DatasetState.AVAILABLE), fact(DatasetState.STAGING, 0.4)
    text = explain_no_complete_site(beliefs(CAM={L1: here, L2: coming}, RAL={L2: here}), {L1, L2})
    assert text == (
        f"no site has all data of the job now: CAM has 1 of 2 ({L2} STAGING 40 %);"
        f" RAL has 1 of 2 ({L1} absent)"
    )
    assert explain_no_complete_site(beliefs(CAM={L1: here, L2: here}), {L1, L2}) == ""


@pytest.mark.parametrize(
    ("size", "state", "fraction", "is_named"),
    [
        (49, None, None, True),
        (49, DatasetState.PARTIAL, None, True),
        (490, DatasetState.PARTIAL, 0.9, True),
        (49, DatasetState.STAGING, None, False),
        (51, None, None, False),
        (490, DatasetState.PARTIAL, 0.5, False),
    ],
)
def test_small_part_that_one_site_lacks_is_named(size, state, fraction, is_named):
    """P4: less than a tenth of the bytes is missing at the best site."""
    here = fact(DatasetState.AVAILABLE)
    known = beliefs(CAM={L1: here} | ({L2: fact(state, fraction)} if state else {}), RAL={L2: here})
    sizes = {L1: 450 * 10**9, L2: size * 10**9}
    text = explain_no_complete_site(
        replace(known, snapshot=replace(known.snapshot, bytes_total=sizes)), {L1, L2}
    )
    assert text.endswith(f"; a copy of {L2} (49 GB) to CAM would be enough") == is_named
    assert ("would be enough" in text) == is_named


@pytest.mark.parametrize(("sites", "is_named"), [((CAM,), True), ((RAL,), False), ((), False)])
def test_copy_is_not_enough_where_the_job_would_not_find_its_path(sites, is_named):
    here = fact(DatasetState.AVAILABLE)
    known = beliefs(CAM={L1: here}, RAL={L2: here})
    known = replace(known, snapshot=replace(known.snapshot, bytes_total={L1: 10**9, L2: 10**7}))
    text = explain_no_complete_site(known, {L1, L2}, sites)
    assert text.endswith(f"; a copy of {L2} (10 MB) to CAM would be enough") == is_named


def test_dataset_of_a_catalogue_without_a_replica_is_at_no_site():
    known = replace(beliefs(), snapshot=Snapshot({}, bytes_total={L1: 5}))
    assert explain_no_complete_site(known, {L1, L2}) == f"{L1} is at no site; {L2} is in no catalogue"


def test_name_in_no_catalogue_comes_first_and_unseen_datasets_are_skipped():
    right, wrong = Did("lofar:L1234.ms"), Did("lofar:L1243.ms")
    known = beliefs(RAL={right: fact(DatasetState.AVAILABLE)})
    known = add_similar_names(replace(known, queried_dids=frozenset({wrong})), {wrong})
    assert explain_no_complete_site(known, {wrong, L1}).startswith(
        f"{L1} is in no catalogue; {wrong} is in no cata"
    )
    assert explain_no_complete_site(known, {wrong}) == f"{wrong} is in no catalogue; did you mean {right}?"
    assert explain_no_complete_site(beliefs(), {Did("not:asked")}) == ""
    silent = replace(beliefs(), snapshot=Snapshot({}, {L1: "timeout"}))
    assert explain_no_complete_site(silent, {L1}) == ""
    assert explain_no_complete_site(beliefs(), frozenset()) == ""


def test_all_absent_names_are_named_at_once():
    """Case S13 of cases/submit.md."""
    absent = [Did(f"x:A{number}") for number in range(9)]
    known = replace(beliefs(), queried_dids=frozenset(absent))
    assert explain_no_complete_site(known, {*absent}) == f"{', '.join(absent)} are in no catalogue"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "catalogue.toml").write_text(CATALOGUE)
    (tmp_path / "job.sub").write_text("executable = /bin/true\nqueue\n")
    stand_in(tmp_path / "condor_submit", "echo submitted")
    return tmp_path


def wrap(desk: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{desk}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "hydrator.cli", "submit", "wrap", "-c", "config.toml", *words]
    return run_program(command, cwd=desk, env=env, timeout=120)


def wrapped(desk: Path, did: str, *options: str) -> subprocess.CompletedProcess[str]:
    return wrap(desk, "-d", did, *options, "--", "condor_submit", "job.sub")


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
    assert "answered where lofar:L1234.ms is: " in broken.stderr
    (desk / "config.toml").write_text('[submit]\ndaemon_url = "http://127.0.0.1:9"\n')
    silent = wrapped(desk, "lofar:L1234.ms")
    assert (silent.returncode, silent.stdout) == (0, "submitted\n")
    assert "answered where lofar:L1234.ms is: " in silent.stderr


@pytest.mark.outside
def test_wrap_names_dag_nodes_without_a_site_and_writes_no_refused_dag(desk):
    (desk / "x.dag").write_text("JOB A job.sub\nJOB B job.sub\nJOB C job.sub\n")
    stand_in(desk / "condor_submit_dag", "")

    def submit(*options: str) -> subprocess.CompletedProcess[str]:
        given = [
            w
            for node, did in zip("ABC", ["L1234", "L5678", "L5678"], strict=True)
            for w in ("-d", f"{node}=lofar:{did}.ms")
        ]
        return wrap(desk, *given, *options, "--", "./condor_submit_dag", "x.dag")

    refused = submit("--refuse-nowhere")
    assert refused.returncode == 3
    assert "nodes B, C: no site has all data of the job now: " in refused.stderr
    assert "node A" not in refused.stderr
    assert not (desk / "x.hydrator.dag").exists()
    said = submit()
    assert said.returncode == 0
    assert "nodes B, C: no site has all data of the job now: " in said.stderr
    assert (desk / "x.hydrator.dag").exists()
