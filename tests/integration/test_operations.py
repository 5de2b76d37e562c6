"""Operation of an installation on a real pool: the report, token expiry, and a daemon on standby."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from testbed.installation import HYDRATOR, Installation, ListedCatalogue
from testbed.pool import DOMAIN, Pool
from testbed.ports import free_port

pytestmark = [pytest.mark.pool, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
INSTALLED = "/opt/classad-hydrator/bin/"
LIFETIME = 864_000
AFTER = 12
"""Seconds that a daemon may be silent here: far more than a busy machine makes it."""
HERE = {"site:uk": {"UK": "available"}, "site:au": {"AU": "available", "NL": "staging"}}


@pytest.fixture(scope="module")
def installed(htcondor_release: str) -> Iterator[Installation]:
    with Pool.start(htcondor_release) as pool:
        lasting = ("-identity", f"hydrator@{DOMAIN}", "-lifetime", str(LIFETIME))
        made = pool.run("condor_token_create", *lasting, user="root")
        (pool.token("hydrator") / "token").write_text(made.stdout)
        catalogue = ListedCatalogue(pool.home)
        catalogue.hold(HERE)
        with Installation(pool, catalogue) as installation:
            yield installation


def test_report_and_metrics_count_the_jobs_that_found_their_data(installed):
    pool = installed.pool
    before = json.loads(installed.run("report", "--json").stdout)
    assert before["jobs"] == {"all": 0, "some": 0, "none": 0, "unknown": 0}
    assert "No job that named datasets" in installed.run("report").stdout

    pool.wait(lambda: installed.metric("hydrator_slots") > 0, 60, "the first sample of the slots")
    local = [
        installed.submit(["site:uk"], mode="require"),
        installed.submit(["site:au"], mode="require", more="+RequiredBytes = [ 'site:au' = 3000 ]"),
    ]
    astray = installed.submit(["site:nowhere"], mode="prefer", more="+DataLocalityMaxWait = 1")
    plain = pool.submit("executable = /bin/true\nrequest_memory = 10\nrequest_disk = 1\nqueue 2\n")
    never = installed.submit(["site:nowhere"], mode="require")
    assert [installed.ran_at(job) for job in local] == [["UK"], ["AU"]]
    installed.ran_at(astray)
    installed.ran_at(plain, jobs=2)
    pool.run("condor_rm", str(never), user="alice")
    pool.wait(lambda: pool.history(f"ClusterId == {never}", "JobStatus"), 60, "the removed job's history")

    report = json.loads(installed.run("report", "--since", "1h", "--json").stdout)
    assert (report["jobs"], report["never_started"]) == ({"all": 2, "some": 0, "none": 1, "unknown": 0}, 1)
    assert (report["bytes_at_site"], report["bytes_elsewhere"]) == (3000, 0)
    assert report["datasets_without_size"] == 2
    assert (report["wait_seconds"]["named"]["jobs"], report["wait_seconds"]["unnamed"]["jobs"]) == (3, 2)
    by_site = {one["site"]: one["jobs"]["all"] for one in report["sites"]}
    assert (by_site["UK"], by_site["AU"]) == (1, 1)
    (schedd,) = report["schedds"]
    assert (schedd["jobs"], schedd["complete"], schedd["failure"]) == (6, True, None)

    table = installed.run("report").stdout
    assert (
        "3 jobs that named datasets ran and ended in 7 d; 1 more jobs with datasets never started." in table
    )
    assert "2 (66 %)" in table

    def metrics():
        counts = [
            installed.metric(f'hydrator_jobs_local_total{{locality="{one}"}}') for one in ("all", "none")
        ]
        waits = [
            installed.metric(f'hydrator_job_wait_seconds_count{{datasets="{one}"}}')
            for one in ("named", "none")
        ]
        return counts + waits

    pool.wait(lambda: metrics() == [2, 1, 3, 2], 60, "the metrics to count all jobs once")
    assert installed.metric('hydrator_jobs_data_bytes_total{place="site"}') == 3000
    again = installed.metric('hydrator_cycles_total{outcome="complete"}') + 5
    pool.wait(
        lambda: installed.metric('hydrator_cycles_total{outcome="complete"}') >= again, 60, "five cycles"
    )
    assert metrics() == [2, 1, 3, 2], "each job is counted once"


def test_token_expiry_is_in_status_check_and_metrics(installed):
    def listed():
        return json.loads(installed.run("status", "--json").stdout)["credentials"]

    (one,) = installed.pool.wait(listed, 60, "the daemon to look at what it shows")
    assert (one["credential"], one["renewed_by"], one["docs_section"]) == (
        f"IDTOKEN of {DOMAIN}",
        "operator",
        "idtokens",
    )
    assert one["expires_at"] - one["issued_at"] == LIFETIME
    assert f"IDTOKEN of {DOMAIN}: ends " in installed.run("status").stdout
    findings = json.loads(installed.run("check", "--json", check=False).stdout)
    (found,) = [each for each in findings if each["subject"] == f"IDTOKEN of {DOMAIN}"]
    assert found["level"] == "ok"
    labels = f'{{credential="IDTOKEN of {DOMAIN}",renewed_by="operator"}}'
    assert installed.metric(f"hydrator_credential_expiry_timestamp_seconds{labels}") == one["expires_at"]
    assert installed.metric(f"hydrator_credential_lifetime_seconds{labels}") == LIFETIME


class Twin:
    """One of two daemons on the pool, with its own state and address."""

    def __init__(self, installed: Installation, name: str) -> None:
        self.name = name
        self._pool = installed.pool
        self._home = installed.home / name
        self._home.mkdir()
        self._port = free_port()
        (self._home / "config.toml").write_text(
            f"""
            [daemon]
            state_dir = "state"
            poll_seconds = 1
            [htcondor]
            config_file = "{installed.pool.client("hydrator")}"
            {installed.catalogue.section()}
            [demand]
            pins = ["site:uk", "site:au", "site:new"]
            ask_schedds = false
            [publish.file]
            directory = "ads"
            [publish.http]
            port = {self._port}
            [standby]
            enabled = true
            name = "{name}"
            after_seconds = {AFTER}
            """
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._home / "log").open("ab") as log:
            command = [*HYDRATOR, "run", "--config", str(self._home / "config.toml")]
            self._process = subprocess.Popen(command, stderr=log)

    def end(self, how: signal.Signals) -> None:
        if self._process:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def part(self) -> str:
        """Return ``publishes``, the daemon that it stands by for, or why it is neither."""
        try:
            answer = httpx.get(f"http://127.0.0.1:{self._port}/readyz", trust_env=False, timeout=60)
        except httpx.TransportError:
            return "does not answer"
        return "publishes" if answer.status_code == 200 else answer.json()["detail"]

    def ad(self) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self._port}/v1/sites/UK/ad", trust_env=False, timeout=60)


def test_a_daemon_takes_over_from_one_that_was_killed_and_no_site_or_generation_goes(installed):
    """After kill -9 of the publishing daemon the other publishes, and the first stays on standby."""
    installed.stop_daemon()
    pool, generations = installed.pool, {}
    first, second = Twin(installed, "first"), Twin(installed, "second")

    def watch() -> None:
        """Check that every site has an ad and no generation goes back, whichever daemon publishes."""
        ads = pool.ads('MyType == "DataLocality"', "Name", "DataLocalityGeneration")
        there = {ad["Name"]: ad["DataLocalityGeneration"] for ad in ads}
        assert there.keys() >= {"UK", "AU", "NL"}
        for site, generation in there.items():
            assert generation >= generations.get(site, 0), site
        generations.update(there)

    def parts(*wanted: str) -> bool:
        watch()
        return (first.part(), second.part()) == wanted

    try:
        first.start()
        pool.wait(lambda: first.part() == "publishes", 120, "the first to publish")
        second.start()
        pool.wait(
            lambda: parts("publishes", "on standby: the daemon first publishes"), 120, "one to stand by"
        )
        before = dict(generations)
        assert second.ad().status_code == 503, "what it knows is not for hooks"
        assert not (installed.home / "second" / "ads").exists()

        first.end(signal.SIGKILL)
        installed.catalogue.hold({**HERE, "site:new": {"UK": "available"}})
        pool.wait(lambda: parts("does not answer", "publishes"), 180, "the second to take over")
        pool.wait(lambda: "site:new" in second.ad().text, 120, "news of the second")

        def is_newer() -> bool:
            watch()
            return generations["UK"] > before["UK"]

        pool.wait(is_newer, 60, "the later generation in the collector")

        first.start()
        pool.wait(
            lambda: parts("on standby: the daemon second publishes", "publishes"), 180, "the first back"
        )
        second.end(signal.SIGTERM)
        pool.wait(lambda: parts("publishes", "does not answer"), 180, "the first to take over again")
        pool.wait(lambda: "site:new" in first.ad().text, 120, "what the second had published")
        watch()
    finally:
        for twin in (first, second):
            twin.end(signal.SIGKILL)


def test_commands_of_the_upgrade_and_remove_pages_work_as_printed(installed):
    """The commands are as printed, except for paths and the service manager."""
    installed.stop_daemon()
    pages = [ROOT / "docs/how-to/operate/install" / f"{name}.md" for name in ("upgrade", "remove")]
    lines = [line.strip() for page in pages for line in page.read_text("utf-8").splitlines()]
    ours = re.compile(rf"(HYDRATOR_\w+=\S+ )?({INSTALLED})?hydrator \S.* -c /etc/")
    asked = [line for line in lines if ours.match(line)]
    assert len(asked) == 4
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in asked:
        here = {
            "/etc/classad-hydrator/config.toml": installed.config,
            INSTALLED: "",
            "=DIR ": f"={installed.pool.token('condor')} ",
        }
        command = line
        for there, instead in here.items():
            command = command.replace(there, str(instead))
        done = subprocess.run(
            command,
            shell=True,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        failed = "hydrator check" in line and "fail" in done.stdout  # no daemon runs, and it says so
        assert done.returncode == 0 or failed, f"{line}: {done.stderr}"
        if "--remove" in line:
            assert [text for text in done.stdout.splitlines() if text and not text.startswith("#")] == []
            assert "# Parameters that still have parts of DataLocality: START, STARTD_ATTRS." in done.stdout
    text = installed.config.read_text()
    assert "[sites]" not in text
    installed.start_daemon()
    try:
        installed.config.write_text(text + '\n[sites]\nretired = ["UK", "AU", "NL"]\n')
        os.kill(installed.pid, signal.SIGHUP)  # systemctl reload
        installed.pool.wait(
            lambda: not installed.pool.ads('MyType == "DataLocality"', "Name"), 60, "the site ads to leave"
        )
        installed.pool.wait(lambda: not list(installed.ads.iterdir()), 60, "the files to leave")
    finally:
        installed.stop_daemon()
        installed.config.write_text(text)
