"""CPU cost of one run of the hook on a worker node, compared with a Python that does nothing."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from adapters.files.ad_files import AdFilePublisher
from hydrator import startd_cron
from hydrator.config import Settings
from hydrator.domain.model import DatasetState, Replica, Site, SiteAd, from_unix
from hydrator.reconcile.evaluate import evaluate
from hydrator.reconcile.state import ReconcileState
from hydrator.server.app import build_app
from hydrator.server.handlers import Sources
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from testbed.pool import Pool, SiteSpec

from . import _spawn
from .material import SITES, short_dids, survey, wants
from .record import Figure, Result, Spread, round_samples

SIZES = (100, 2000)
GOAL_MS = 100.0
"""CPU seconds of one run from start to end."""

Runs = Mapping[str, Sequence[tuple[float, float, int, int]]]
"""CPU seconds, seconds, bytes printed and exit status of each run, by command."""


def ad_of(count: int) -> SiteAd:
    """Build the ad of a site where *count* datasets are available and nothing else."""
    now, site = from_unix(time.time()), Site(f"SITE{count}")
    answer = survey(((did, [Replica(did, site, DatasetState.AVAILABLE)]) for did in short_dids(count)), now)
    demand = wants(short_dids(count))
    return evaluate(
        ReconcileState(),
        {"list": answer},
        demand,
        published_generations={},
        settings=Settings(),
        now=now,
    ).ads[site]


@contextmanager
def serve_ads(ads: Sequence[SiteAd]) -> Iterator[str]:
    """Run the daemon's own HTTP server with these ads; yield its URL."""
    by_site = {ad.site: ad for ad in ads}

    def view() -> ServerState:
        return ServerState(ads=by_site, now=from_unix(time.time()))

    server = HttpServer(build_app(Sources(view), CollectorRegistry()), "127.0.0.1", 0)
    server.start()
    try:
        assert server.url
        yield server.url
    finally:
        server.stop()


def commands(hook: Path, folder: Path, url: str, ads: Sequence[SiteAd]) -> dict[str, list[str]]:
    """Return the commands for every source except the collector, by name."""
    AdFilePublisher(folder, lambda: from_unix(time.time())).publish(ads)
    words_by_name = {"python3 -c pass": ["python3", "-c", "pass"]}
    for count, ad in zip(SIZES, ads, strict=True):
        hook_at = [str(hook), "--site", ad.site]
        cache_options = ["--cache-dir", str(folder / f"kept-{count}")]
        asks = ["--url", url, "--jitter", "0"]
        words_by_name[f"--file, {count:,} datasets"] = [*hook_at, "--file", str(folder), *cache_options]
        words_by_name[f"--url, 200, {count:,} datasets"] = [*hook_at, *asks, "--cache-dir", "{fresh}"]
        words_by_name[f"--url, 304, {count:,} datasets"] = [
            *hook_at,
            *asks,
            "--cache-dir",
            str(folder / f"web-{count}"),
        ]
    return words_by_name


def spawn_runs(found: Mapping[str, Sequence[str]], rounds: int) -> Runs:
    """Run *commands* here, with the PATH of a startd."""
    done = subprocess.run(
        [sys.executable, _spawn.__file__],
        input=json.dumps({"rounds": rounds, "commands": found}),
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    return dict(json.loads(done.stdout))


def from_collector(rounds: int, ads: Sequence[SiteAd]) -> tuple[Runs, str]:
    """Run the hook inside a pool, with condor_status; return also HTCondor's version."""
    with Pool.start(os.environ.get("HYDRATOR_TEST_HTCONDOR"), [SiteSpec(SITES[0], cpus=1)]) as pool:
        for ad in ads:
            generic = f'MyType = "DataLocality"\nName = "{ad.site}"\nClassAdLifetime = 100000\n{ad.text}'
            pool.run("condor_advertise", "UPDATE_AD_GENERIC", "-", input=generic)
        pool.wait(lambda: len(pool.ads('MyType == "DataLocality"', "Name")) == len(ads), "the site ads")
        hook, spawn = pool.shared / "hook", pool.shared / "spawn.py"
        hook.write_bytes(Path(startd_cron.__file__).read_bytes())
        hook.chmod(0o755)
        spawn.write_bytes(Path(_spawn.__file__).read_bytes())
        words_by_name: dict[str, list[str]] = {
            "python3 -c pass": ["python3", "-c", "pass"],
            "condor_status alone": ["condor_status", "-pool", pool.collector, "-any", "-constraint", "false"],
        }
        for count, ad in zip(SIZES, ads, strict=True):
            words = ["--site", ad.site, "--collector", pool.collector, "--jitter", "0"]
            cache_options = ["--cache-dir", str(pool.shared / f"kept-{count}")]
            words_by_name[f"--collector, {count:,} datasets"] = [str(hook), *words, *cache_options]
        done = pool.run(
            "python3",
            str(spawn),
            input=json.dumps({"rounds": rounds, "commands": words_by_name}),
            timeout=600,
        )
        return dict(json.loads(done.stdout)), pool.version


def figures(runs: Runs, where: str = "") -> list[Figure]:
    """Return the median CPU of each command, and the difference to Python alone, run by run."""
    python = [run[0] for run in runs["python3 -c pass"]]
    all_figures = [Figure(f"python3 -c pass{where}", statistics.median(python) * 1000, "ms")]
    for name, each in runs.items():
        if name == "python3 -c pass":
            continue
        cpu = [run[0] for run in each]
        ratio = Spread.of([ours / alone for ours, alone in zip(cpu, python, strict=True)])
        seconds = statistics.median(run[1] for run in each)
        goal = GOAL_MS if name.startswith("--") else None
        note = f"{ratio.p50:.1f} times python3 -c pass; {seconds * 1000:.0f} ms from start to end"
        all_figures.append(Figure(name, statistics.median(cpu) * 1000, "ms", goal, note))
    return all_figures


def check(runs: Runs) -> None:
    """Check that every run of the hook printed its ad: a failure would look cheap.

    Raises:
        AssertionError: one did not.
    """
    for name, each in runs.items():
        least = 0 if not name.startswith("--") else 20 * int(name.split()[-2].replace(",", ""))
        for _, _, size, status in each:
            if status or size < least:
                raise AssertionError(f"{name}: exit status {status}, {size} bytes")


def run(quick: bool = False) -> Result:
    """Measure every source with 100 and with 2,000 datasets."""
    rounds = 3 if quick else 40
    ads = [ad_of(count) for count in SIZES]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hook = folder / "hook"
        hook.write_bytes(Path(startd_cron.__file__).read_bytes())
        hook.chmod(0o755)
        url = stack.enter_context(serve_ads(ads))
        local_runs = spawn_runs(commands(hook, folder, url, ads), rounds)
    inside, version = from_collector(rounds, ads)
    for runs in (local_runs, inside):
        check(runs)
    raw = {
        place: {name: round_samples([each[0] for each in taken], 5) for name, taken in runs.items()}
        for place, runs in (("here", local_runs), ("in the pool", inside))
    }
    how = " ".join(HOW.split()).format(rounds=rounds)
    all_figures = (*figures(local_runs), *figures(inside, ", in the pool's tree"))
    return Result("hook_cpu", all_figures, how, raw, {"HTCondor": version, "hook's Python": python_version()})


def python_version() -> str:
    done = subprocess.run(
        ["python3", "-c", "import platform; print(platform.python_version())"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    return done.stdout.strip()


HOW = """\
User and system CPU of the hook as the startd starts it, and of every process it waits for (os.wait4),
each command in turn for {rounds} rounds, medians; the ratio is the median of the rounds' ratios to
python3 -c pass. The source is the daemon's own HTTP server (200: no local copy yet, which is then
written; 304: the copy is current), an ad file, or a real collector asked through condor_status inside the
pool's tree, whose Python is another one. Every run's exit status and output were checked."""

__all__ = ["run"]
