"""The startd configuration in deploy/ has the effect of the text that pool-config prints for startds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hydrator.submit.expressions import LIMIT_EXPRESSIONS, SLOT_EXPRESSIONS
from hydrator.submit.pool_config import START_CLAUSE, startd_config
from scripts.packages.targets import CONFIG_FOLDER, HOOK, TARGETS
from scripts.packages.tree import build_tree
from scripts.startd_files import DEPLOY, FILES, outdated

pytestmark = pytest.mark.outside

BASE = "START = (Cpus > 1)\nSTARTD_ATTRS = Own\n"
SOURCE = "DATALOCALITY_HOOK_ARGS = --url https://hydrator.example.org\n"
KNOBS = ("DATALOCALITY_READERS", "DATALOCALITY_TURN")
NAMES = ("START", "STARTD_ATTRS", *KNOBS, *SLOT_EXPRESSIONS, *LIMIT_EXPRESSIONS)
WITHOUT_CLAUSES = {
    "glideinwms/locality.condor": "locality_clauses.condor beside it has them",
    "htcondor-ce/60-datalocality-summary.conf": "the hook runs in a schedd",
    "pyglidein/client.cfg": "its values have no blanks",
}
"""Files that start the hook and do not have the clauses, each with the reason."""


def read_values(folder: Path, text: str) -> dict[str, str | None]:
    """Return what HTCondor reads for NAMES from a configuration of *text* alone."""
    (folder / "condor_config").write_text(text)
    ask = (
        "import htcondor2, json, sys\n"
        "print(json.dumps({name: htcondor2.param.get(name) for name in sys.argv[1:]}))"
    )
    environment = {**os.environ, "CONDOR_CONFIG": str(folder / "condor_config")}
    command = [sys.executable, "-W", "ignore", "-c", ask, *NAMES]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    values: dict[str, str | None] = json.loads(done.stdout)
    return values


def read_package_configuration(folder: Path) -> str:
    """Build the files of the hook's package in *folder*; return its configuration, with its include there."""
    build_tree(HOOK, TARGETS[0], folder)
    text = (folder / CONFIG_FOLDER / "60-datalocality-startd.conf").read_text()
    assert text.count(": /usr/") == 1
    return text.replace(": /usr/", f": {folder}/usr/")


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> dict[str, str | None]:
    """The values with the text that pool-config prints."""
    values = read_values(tmp_path_factory.mktemp("printed"), BASE + startd_config({}))
    assert values["START"] == f"((Cpus > 1)) && {START_CLAUSE}"
    assert set(SLOT_EXPRESSIONS) | set(LIMIT_EXPRESSIONS) < set((values["STARTD_ATTRS"] or "").split())
    return values


def test_the_package_of_the_hook_configures_a_startd_as_pool_config_does(tmp_path, printed):
    text = read_package_configuration(tmp_path)
    assert read_values(tmp_path, BASE + SOURCE + text) == printed


def test_the_package_of_the_hook_changes_nothing_before_its_source_is_set(tmp_path):
    text = read_package_configuration(tmp_path)
    assert read_values(tmp_path, BASE + text) == read_values(tmp_path, BASE)


@pytest.mark.parametrize(("name", "has_start"), FILES.items(), ids=FILES)
def test_startd_files_in_deploy_have_the_values_of_pool_config(tmp_path, printed, name, has_start):
    text = BASE + SOURCE + (DEPLOY / name).read_text()
    wanted = printed if has_start else {**printed, "START": "(Cpus > 1)"}
    assert read_values(tmp_path, text) == wanted


def test_startd_files_in_deploy_are_what_the_script_writes():
    assert list(outdated()) == []


def test_every_file_in_deploy_that_starts_the_hook_has_the_clauses():
    starting = {
        str(path.relative_to(DEPLOY))
        for path in DEPLOY.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "_CRON_LOCALITY_EXECUTABLE" in path.read_text("utf-8")
    }
    assert starting - set(FILES) == set(WITHOUT_CLAUSES)
