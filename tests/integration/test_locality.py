"""Recipes of docs/how-to/operate/connect/other-schedulers.md, as printed, beside a running daemon."""

import json
import os
import shutil
import subprocess

import pytest

from testbed.installation import wait_for
from tests.integration.test_daemon import Running
from tests.pages import blocks
from tests.parts import NO_CURL, without

PAGE = "other-schedulers.md"
RECIPES = blocks("sh locality")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    running = Running(tmp_path_factory.mktemp("daemon"))
    running.catalogue(
        {
            "lofar:L1": {"CAM": "available", "RAL": "available"},
            "lofar:L2": {"RAL": "available", "CAM": "staging"},
        }
    )
    try:
        running.start()
        wait_for(lambda: '"lofar:L2"' in running.ad("RAL"), 20, "the datasets")
        yield running
    finally:
        running.end()


@pytest.fixture
def desk(daemon, tmp_path):
    """A folder to run recipes in, with stand-ins for sbatch and nextflow that record how they were called."""
    for tool in ("curl", "jq"):
        if shutil.which(tool) is None:
            without(NO_CURL, f"no {tool} on PATH")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sbatch", "nextflow"):
        file = programs / name
        file.write_text(f'#!/bin/sh\necho {name} "$@" >> "$CALLS"\n')
        file.chmod(0o755)
    (tmp_path / "names").write_text("lofar:L1\nlofar:L2\n")

    def run(text: str) -> tuple[str, list[str]]:
        calls = tmp_path / "calls"
        environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HYDRATOR_URL": f"http://127.0.0.1:{daemon.port}",
            "NO_PROXY": "127.0.0.1",
            "CALLS": str(calls),
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, calls.read_text().splitlines() if calls.exists() else []

    return run


def recipe(part: str) -> str:
    """Return the only recipe that has *part*."""
    (text,) = [block.text for block in RECIPES if part in block.text]
    return text


def test_each_recipe_of_the_page_is_run_here():
    parts = ("/v1/locality\" -d '{", "where_is()", "share \\(.share)", "best_site()", "sbatch", "nextflow")
    assert sorted(map(recipe, parts)) == sorted(block.text for block in RECIPES)
    assert {block.page for block in RECIPES} == {PAGE}


def test_curl_gets_a_line_for_each_dataset(desk):
    head, first, second, end = map(json.loads, desk(recipe("/v1/locality\" -d '{"))[0].splitlines())
    assert [site["site"] for site in head["sites"]] == ["CAM", "RAL"]
    assert [(each["site"], each["state"]) for each in first["sites"]] == [
        ("CAM", "AVAILABLE"),
        ("RAL", "AVAILABLE"),
    ]
    assert [(each["site"], each["state"]) for each in second["sites"]] == [
        ("CAM", "STAGING"),
        ("RAL", "AVAILABLE"),
    ]
    assert end == {"next": None}


def test_shell_function_prints_the_sites_of_all_names_page_by_page(desk):
    text = recipe("where_is()")
    assert desk(text)[0].splitlines() == ["lofar:L1 CAM RAL", "lofar:L2 RAL"]
    paged = text.replace("{datasets: [inputs]}", "{limit: 1, datasets: [inputs]}")
    assert paged != text
    assert desk(paged)[0].splitlines() == ["lofar:L1 CAM RAL", "lofar:L2 RAL"]


def test_set_answer_reads_as_a_table(desk):
    lines = desk(recipe("share \\(.share)"))[0].splitlines()
    assert lines[0].startswith("CAM: share 0.5, usable in null s")
    assert lines[1].startswith("RAL: share 1, usable in 0 s")


def test_broker_finds_the_site_with_the_data(desk):
    assert desk(recipe("best_site()"))[0].splitlines() == ["RAL"]
    unknown = recipe("best_site()").replace("lofar:L2", "lofar:nowhere")
    assert desk(unknown)[0].splitlines() == ["no site is known"]


def test_slurm_and_nextflow_get_the_site_with_the_data(desk):
    assert desk(recipe("sbatch"))[1] == ["sbatch --clusters=RAL job.sh"]
    assert desk(recipe("nextflow"))[1][-1] == "nextflow run main.nf -profile RAL"
