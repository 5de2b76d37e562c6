"""The hook under a real startd: the collector shows all that it prints, after every run."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hydrator import startd_cron as hook
from hydrator.domain.ads.expressions import SLOT_EXPRESSIONS
from testbed.files import write_program
from testbed.glidein_standin import Glidein
from testbed.loopback import LoopbackRequest, LoopbackServer
from testbed.pool import Pool, SiteSpec
from tests.hook_ads import OURS, ad_text, datasets, put, whole

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def pool(htcondor_release: str) -> Iterator[Pool]:
    with Pool.start(htcondor_release, [SiteSpec("UK", cpus=2)], {"all": "UPDATE_INTERVAL = 4"}) as started:
        yield started


@pytest.fixture
def place(pool, request) -> Iterator[Path]:
    """Return a folder that the startd sees, with the hook in it; the cron job ends with the test."""
    folder = pool.shared / re.sub(r"\W", "_", request.node.name)
    folder.mkdir()
    folder.chmod(0o777)
    write_program(folder / "hook", Path(hook.__file__).read_text("utf-8"))
    yield folder
    pool.reconfig(startd="")


def cron(folder: Path, *arguments: str, **environ: str) -> str:
    """Return the configuration to run the hook every second; each run appends a byte to *runs*."""
    text = f'#!/bin/sh\nprintf x >> {folder}/runs\nexec {folder}/hook "$@" 2>> {folder}/said\n'
    counted = write_program(folder / "counted", text)
    environ = {"HYDRATOR_CACHE_DIR": str(folder / "cache"), "HYDRATOR_JITTER": "0", **environ}
    return f"""
STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) LOCALITY
STARTD_CRON_LOCALITY_EXECUTABLE = {counted}
STARTD_CRON_LOCALITY_ARGS = {" ".join(arguments)}
STARTD_CRON_LOCALITY_ENV = "{" ".join(f"{name}={value}" for name, value in environ.items())}"
STARTD_CRON_LOCALITY_MODE = Periodic
STARTD_CRON_LOCALITY_PERIOD = 1s
STARTD_CRON_LOCALITY_KILL = True
STARTD_CRON_MAX_JOB_LOAD = 1.0
"""


def runs(folder: Path) -> int:
    return (folder / "runs").stat().st_size if (folder / "runs").exists() else 0


def said(folder: Path) -> str:
    return (folder / "said").read_text() if (folder / "said").exists() else ""


def slot(pool: Pool, *attributes: str) -> dict[str, object]:
    """Return these attributes of the slot in the collector, those of locality by default."""
    return pool.slots(*(attributes or OURS))[0]


def test_hook_reads_by_url_and_takes_the_site_of_the_startd_configuration(pool, place):
    as_of = int(time.time()) - 100

    def answer(to: LoopbackRequest) -> None:
        headers = {"ETag": '"1"', "X-DataLocality-AsOf": str(as_of)}
        to.send(200 if to.path == "/v1/sites/UK/ad" else 404, headers, ad_text(1, as_of).encode())

    with LoopbackServer(answer) as server:
        pool.reconfig(startd=cron(place, "--url", server.url))
        ad = pool.wait(lambda: whole_or_none(slot(pool), as_of), "the ad by HTTP")
    assert ad["DataLocalityGeneration"] == 1
    assert said(place) == ""


def whole_or_none(ad: dict[str, object], as_of: int) -> dict[str, object] | None:
    return ad if ad.get("DataLocalityAsOf") == as_of and whole(ad) else None


ADVERTISE = """
import sys, classad2, htcondor2
ad = classad2.parseOne(sys.stdin.read())
ad["MyType"] = "DataLocality"
ad["Name"] = "UK"
htcondor2.Collector().advertise([ad], "UPDATE_AD_GENERIC", True)
"""


def advertise(pool: Pool, text: str) -> None:
    """Put UK's site ad into the collector as the daemon does, as identity hydrator."""
    subprocess.run(
        [sys.executable, "-c", ADVERTISE],
        input=text,
        env={**os.environ, "CONDOR_CONFIG": str(pool.client_config)},
        text=True,
        check=True,
        timeout=120,
    )


@pytest.mark.older
def test_hook_reads_the_site_ad_in_the_collector(pool, place):
    as_of = int(time.time()) - 50
    advertise(pool, ad_text(2, as_of))
    # the cron job runs as condor, which cannot read root's tokens: it needs a READ token of its own
    token = pool.token("hydrator", ["READ"], uid=64500)
    environ = {"_CONDOR_SEC_TOKEN_DIRECTORY": str(token)}
    pool.reconfig(startd=cron(place, "--site", "UK", "--collector", pool.collector, **environ))
    ad = pool.wait(lambda: whole_or_none(slot(pool), as_of), f"the site ad in the slot; {said(place)}")
    assert ad["DataLocalityGeneration"] == 2
    text = pool.run("condor_status", "-any", "-constraint", 'MyType == "DataLocality"', "-long").stdout
    assert hook.ad_text(hook.read_classads(text.encode(), "UK", int(time.time()))) == ad_text(2, as_of)


@pytest.mark.older
def test_replaced_hook_leaves_no_attribute_behind(pool, place):
    now = int(time.time())
    put(place / "UK.ad", ad_text(now, now))
    ours = (place / "hook").read_text()
    other = ours.replace(
        "'DataLocalitySource = \"hook\"'", "'DataLocalitySource = \"hook\"', 'DataLocalityOther = 7'"
    )
    other = other.replace('VERSION = "', 'VERSION = "other-')
    assert other.count("DataLocalityOther") == 1
    replace_hook(place, other)
    pool.reconfig(startd=cron(place, "--site", "UK", "--file", str(place / "UK.ad")))
    names = ("Name", "DataLocalityOther", "AvailableDatasets", "DataLocalityGeneration")
    pool.wait(lambda: slot(pool, *names).get("DataLocalityOther") == 7, "the other hook's attribute")

    replace_hook(place, ours)
    left = pool.wait(lambda: "DataLocalityOther" not in (ad := slot(pool, *names)) and ad, "it to go")
    assert left["DataLocalityGeneration"] == now

    put(place / "UK.ad", re.sub("AvailableDatasets.*\n", "", ad_text(now + 1, now)))
    pool.wait(lambda: "AvailableDatasets" not in slot(pool, *names), "the list, left out now, to go")

    replace_hook(place, other)
    pool.wait(lambda: slot(pool, *names).get("DataLocalityOther") == 7, "the other hook's attribute again")


def replace_hook(folder: Path, text: str) -> None:
    write_program(folder / "hook.new", text).replace(folder / "hook")


def generation_of(ad: dict[str, object]) -> object:
    return ad.get("DataLocalityGeneration")


@pytest.mark.older
def test_why_a_hook_fails_stands_in_the_slot_beside_what_it_had(pool, place):
    put(place / "UK.ad", ad_text(101, int(time.time())))
    pool.reconfig(startd=cron(place, "--site", "UK", "--file", str(place)))
    pool.wait(lambda: slot(pool).get("DataLocalityGeneration") == 101, "the first run")
    (place / "UK.ad").unlink()
    for copy in ("with its copy", "without"):
        if copy == "without":
            shutil.rmtree(place / "cache")
        begun = runs(place)
        pool.wait(lambda begun=begun: runs(place) > begun + 2, f"runs {copy}")
        ad = pool.wait(lambda: told(pool), f"the trouble, {copy}")
        assert str(place) in str(ad["DataLocalityError"])
        assert "No such file" in str(ad["DataLocalityError"])
        assert whole(ad), copy
    put(place / "UK.ad", ad_text(102, int(time.time())))
    pool.wait(lambda: slot(pool).get("DataLocalityGeneration") == 102, "the next generation")
    pool.wait(lambda: told(pool) is None, "the trouble to be taken back")


def told(pool: Pool) -> dict[str, object] | None:
    """Return the slot once it reports that its hook fails."""
    ad = slot(pool, *OURS, "DataLocalityError")
    return ad if ad.get("DataLocalityError") else None


# --- in pilots: their cron lines and their configuration, on a real startd

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPT = DEPLOY / "pilots" / "locality_hook.sh"


def here(pool: Pool) -> tuple[object, object]:
    """Return the slot's dataset states, and the record of a glidein wrapper's last run."""
    found = slot(pool, "DatasetStates", "DataLocalityGeneration", "GLIDEIN_PS_OK")
    return found.get("DatasetStates"), found.get("GLIDEIN_PS_OK")


def glidein_at(place: Path, **settings: str) -> Glidein:
    files = {"locality_hook.sh": SCRIPT, "classad-hydrator-hook": Path(hook.__file__)}
    settings = {"GLIDEIN_Site": "UK", "HYDRATOR_FILE": str(place / "UK.ad"), **settings}
    glidein = Glidein(place / "glide_1", files, settings)
    glidein.folder.chmod(0o777)  # the startd's user owns a real one
    return glidein


def test_as_a_periodic_script_in_a_stand_in_for_glideinwms_our_block_and_the_wrappers_both_stay(pool, place):
    now = int(time.time())
    put(place / "UK.ad", ad_text(now, now, many=5))
    # a run on a busy machine does not exceed this period: else the startd would end the run
    lines = glidein_at(place).cron("locality_hook.sh", "5")
    pool.reconfig(startd=f"{lines}STARTD_CRON_MAX_JOB_LOAD = 1.0\n")
    wanted = dict.fromkeys(datasets(now, 5), "AVAILABLE")
    pool.wait(lambda: here(pool) == (wanted, True), "the first generation")
    put(place / "UK.ad", ad_text(now + 1, now, many=5))
    wanted = dict.fromkeys(datasets(now + 1, 5), "AVAILABLE")
    pool.wait(lambda: here(pool) == (wanted, True), "the second generation")


def lines_of(file: str) -> str:
    """Return the configuration for pilots in *file*; pyglidein has the same in the startd's environment."""
    text = (DEPLOY / file).read_text()
    return "\n".join(re.findall(r"^_condor_(.*)", text, re.MULTILINE)) if file.endswith(".cfg") else text


@pytest.mark.parametrize(
    "file",
    [
        "glideinwms/locality.condor",
        "ospool/60-locality.config",
        "pyglidein/client.cfg",
        "packages/60-datalocality-startd.conf",
    ],
)
def test_configuration_lines_for_startds_work_in_a_startd(pool, place, file):
    write_program(place / "locality_hook.sh", SCRIPT.read_text("utf-8"))
    now = int(time.time())
    put(place / "UK.ad", ad_text(now, now, many=5))
    environ = {
        "HYDRATOR_HOOK": place / "hook",
        "HYDRATOR_FILE": place / "UK.ad",
        "HYDRATOR_SITE": "UK",
        "HYDRATOR_CACHE_DIR": place / "cache",
    }
    environment = " ".join(f"{name}={value}" for name, value in environ.items())
    lines = re.sub(r"(_EXECUTABLE = ).*", rf"\g<1>{place}/locality_hook.sh", lines_of(file))
    source = "DATALOCALITY_HOOK_ARGS = --site UK\n"
    pool.reconfig(startd=f'{source}{lines}\nSTARTD_CRON_LOCALITY_ENV = "{environment}"\n')
    wanted = dict.fromkeys(datasets(now, 5), "AVAILABLE")
    pool.wait(lambda: generation_of(slot(pool)) == now and here(pool)[0] == wanted, "the ad to arrive")
    assert set(SLOT_EXPRESSIONS) <= slot(pool, *SLOT_EXPRESSIONS).keys()
