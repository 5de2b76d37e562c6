"""The hook in a pilot, in stand-ins for GlideinWMS, pyglidein and a container."""

import configparser
import re
import shutil
import time
from pathlib import Path

import pytest

from hydrator import startd_cron
from testbed.debs import program
from testbed.files import write_program
from testbed.glidein_standin import PATH, Glidein, Ran
from testbed.processes import run_program
from tests.parts import needs

pytestmark = pytest.mark.outside

DEPLOY = Path(__file__).parents[3] / "deploy"
SCRIPT = DEPLOY / "pilots" / "locality_hook.sh"
HOOK = Path(startd_cron.__file__)
NAME, HOOK_NAME = "locality_hook.sh", "classad-hydrator-hook"
AD = """\
DataLocalitySite = "UK"
AvailableDatasets = {"lofar:L1"}
DatasetStates = ['lofar:L1'="AVAILABLE"]
DatasetFractions = []
DatasetAsOf = []
DataLocalityTruncated = false
DataLocalitySets = []
DataLocalitySetsAsOf = []
DataLocalityAsOf = %d
DataLocalityGeneration = 1763690000
DataLocalityVersion = 1
"""


@pytest.fixture
def settings(tmp_path) -> dict[str, str]:
    """Return glidein_config of a pilot at UK whose hook reads a file."""
    ad = tmp_path / "UK.ad"
    ad.write_text(AD % time.time())
    return {"GLIDEIN_Site": "UK", "HYDRATOR_FILE": str(ad)}


@pytest.fixture
def glidein(tmp_path, settings) -> Glidein:
    return Glidein(tmp_path / "glide_1", {NAME: SCRIPT, HOOK_NAME: HOOK}, settings)


def blocks(out: str) -> list[str]:
    """Split the output as the startd does; each block ends with its dash line."""
    return re.findall(r"(?:(?!-).*\n)*-.*\n", out)


def published(ran: Ran) -> bool:
    return "DatasetStates = (['lofar:L1'=\"AVAILABLE\"])" in ran.out


# GlideinWMS, by periodic script


def test_hook_prints_nothing_at_the_start_of_a_glidein(glidein):
    assert glidein.start(NAME) == Ran(0, "", "")


def test_unreachable_source_fails_no_run_and_publishes_nothing(glidein, settings):
    Path(settings["HYDRATOR_FILE"]).unlink()
    assert glidein.start(NAME).status == 0
    ran = glidein.periodic(NAME)
    assert (ran.status, published(ran)) == (0, False)
    assert ran.err.startswith("hydrator hook: ")
    trouble, theirs = blocks(ran.out)
    assert trouble.strip().startswith('DataLocalityError = "cannot read ')
    assert "GLIDEIN_PS_OK = true" in theirs


@pytest.mark.parametrize("delivery", ["cvmfs", "both: the attribute wins", "environment"])
def test_the_hook_may_be_on_cvmfs_or_in_a_container(tmp_path, settings, delivery):
    elsewhere = tmp_path / "cvmfs" / HOOK_NAME
    elsewhere.parent.mkdir()
    shutil.copy(HOOK, elsewhere)
    files, environ = {NAME: SCRIPT}, {}
    if delivery == "environment":
        environ["HYDRATOR_HOOK"] = str(elsewhere)
    else:
        settings["HYDRATOR_HOOK"] = str(elsewhere)
    if delivery.startswith("both"):
        broken = tmp_path / "broken"
        broken.write_text("raise SystemExit('the one beside the script was started')")
        files[HOOK_NAME] = broken
    glidein = Glidein(tmp_path / "glide_1", files, settings)
    assert glidein.start(NAME, **environ) == Ran(0, "", "")
    assert published(glidein.periodic(NAME, **environ))


def test_missing_hook_is_one_line_and_the_pilot_goes_on(tmp_path, settings):
    glidein = Glidein(tmp_path / "glide_1", {NAME: SCRIPT}, {**settings, "HYDRATOR_HOOK": "/cvmfs/no/hook"})
    for ran in (glidein.start(NAME), glidein.periodic(NAME)):
        assert (ran.status, published(ran), ran.err.count("\n")) == (0, False, 1)
        assert "no hook at /cvmfs/no/hook" in ran.err


# pilots without Python 3


def tools(folder: Path, **scripts: str) -> str:
    """Build a PATH with the tools of a shell script and these *scripts*, without Python."""
    folder.mkdir()
    for name in ("sed", "tail", "mktemp", "rm", "sh"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    for name, text in scripts.items():
        write_program(folder / name, f"#!/bin/sh\n{text}\n")
    return str(folder)


NO_PYTHON = pytest.mark.skipif(
    Path("/usr/libexec/platform-python").exists(), reason="this machine has a platform-python"
)


@NO_PYTHON
@pytest.mark.parametrize(
    "scripts",
    [{}, {"python": "exit 0"}, {"python3": "exit 1"}, {"python3": "exec false", "python2": "exit 0"}],
    ids=["none", "python 2 only", "python 3.5", "python 3 that does not start"],
)
def test_pilot_without_python_3_publishes_nothing_and_goes_on(glidein, tmp_path, scripts):
    path = tools(tmp_path / "bin", **scripts)
    for ran in (glidein.start(NAME, PATH=path), glidein.periodic(NAME, PATH=path)):
        assert (ran.status, ran.err) == (
            0,
            f"locality_hook: no Python 3.6 or later on PATH={path}: this pilot publishes no datasets\n",
        )
        assert not published(ran)


# the files


def pyglidein() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "pyglidein" / "client.cfg")
    return parser


def test_values_for_pyglidein_have_no_blank():
    custom = pyglidein()["CustomEnv"]
    assert custom["HYDRATOR_URL"].startswith("https://")
    assert not [value for value in custom.values() if re.search(r"""[\s'"$;&|<>()\\]""", value)]
    assert pyglidein().getboolean("StartdChecks", "enable_startd_checks") is False


def assert_published_with(environ: dict[str, str]) -> None:
    done = run_program([SCRIPT], env=environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert published(Ran(0, done.stdout, ""))


def test_a_pilot_of_pyglidein_publishes_by_its_environment_alone(tmp_path, settings):
    # the startd's environment: what `env -i` left, CustomEnv, and what glidein_start.sh exports
    environ = {
        "PATH": PATH,
        "HOME": str(tmp_path),
        "HYDRATOR_HOOK": str(HOOK),
        "HYDRATOR_FILE": settings["HYDRATOR_FILE"],
        "_condor_GLIDEIN_Site": '"UK"',
        "CONDOR_CONFIG": str(tmp_path / "glidein_condor_config"),
    }
    assert_published_with(environ)


def test_hook_in_a_glidein_finds_its_files_beside_condor_config(tmp_path, settings):
    settings["HYDRATOR_HOOK"] = str(HOOK)
    glidein = Glidein(tmp_path / "glide_1", {NAME: SCRIPT}, settings)
    environ = {"PATH": PATH, "CONDOR_CONFIG": str(glidein.folder / "condor_config")}
    assert_published_with(environ)


def reader(name: str, package: str, places: str) -> str:
    """Return the program that reads the script: the machine's own, else that of Debian's package."""
    with needs("reader of shell scripts"):
        return shutil.which(name) or str(program(name, package, places)[0])


@pytest.mark.parametrize("script", [SCRIPT, DEPLOY / "systemd" / "hydrator"], ids=["pilots", "systemd"])
def test_shellcheck_has_no_findings(script):
    found = reader("shellcheck", "shellcheck", "usr/bin")
    done = run_program([found, "-s", "sh", script])
    assert (done.returncode, done.stdout) == (0, "")
