"""Playground: a small HTCondor pool with a shell, as docs/try.md and operators/install.md use it.

    python -m testbed.playground [--bare] [--release 25.14|23.9]

The shell's commands of HTCondor and of ``hydrator`` act on this pool. Without ``--bare`` the pool has three
sites and the daemon. With ``--bare`` it has one site and nothing of this project. All ends with the shell.
The shell reads its commands from stdin if stdin is not a terminal.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import processes
from .cached import Unavailable
from .demo import BRISK, WAITING
from .installation import Installation
from .pool import DOMAIN, THREE_SITES, Pool, SiteSpec, ToolFailed
from .ports import free_port

ROOT = Path(__file__).parents[1]
USERS = {
    "condor_submit": "alice",
    "condor_q": "alice",
    "condor_rm": "alice",
    "condor_release": "alice",
    "condor_wait": "alice",
    "condor_status": "alice",
    "condor_history": "root",
    "condor_token_create": "root",
    "condor_reconfig": "root",
    "condor_config_val": "root",
}
"""By tool, the user that runs it in the pool."""
DATASETS = """\
sites = ["UK", "AU", "NL"]
[datasets."lofar:L1"]
sites.UK = "available"
[datasets."lofar:L2"]
sites.AU = "available"
[datasets."lofar:L3"]
sites.NL = "available"
[datasets."lofar:L4"]
sites.NL = "staging"
"""
"""The catalogue of the pool with three sites."""
ONE_SITE = (SiteSpec("UK", cpus=4),)
_REPORT_FAILURES = "trap 'echo \"status $?: $BASH_COMMAND\" >&2' ERR\n"
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux: orphans below this process become its children."""


class ListInAFile:
    """The file catalogue with *path*, a list that the reader of the page edits."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text(DATASETS, "utf-8")

    def section(self) -> str:
        return f'[[catalogue]]\ntype = "file"\nname = "list"\npath = "{self.path}"\n'


@contextmanager
def furnished(pool: Pool) -> Iterator[dict[str, str]]:
    """Start the daemon beside *pool* and yield the environment of the shell."""
    listed = ListInAFile(pool.user_home("alice") / "datasets.toml")
    with Installation(pool, listed, period_seconds=2, extra=BRISK, settings=WAITING) as installed:
        yield {"HYDRATOR_CONFIG": str(installed.config)}


@contextmanager
def bare(pool: Pool) -> Iterator[dict[str, str]]:
    """Let the pool read a folder for configuration, and yield the environment of the shell."""
    folder = pool.shared / "config.d"
    folder.mkdir()
    pool.reconfig(all=f"LOCAL_CONFIG_DIR = {folder}\n", **BRISK)
    port = str(free_port())
    yield {
        "CONDOR_D": str(folder),
        "DOMAIN": DOMAIN,
        "COLLECTOR": pool.collector,
        "DAEMON": f"http://127.0.0.1:{port}",
        "STATE": str(pool.user_home("alice") / "state"),
        "HYDRATOR_PUBLISH__HTTP__PORT": port,
    }


def shell(pool: Pool, extra: dict[str, str]) -> int:
    """Run a shell at *pool* until it ends, then end what it started; return its exit status."""
    folder, programs = pool.user_home("alice"), pool.shared / "bin"
    programs.mkdir()
    for tool, user in USERS.items():
        pool.tool(tool, user, programs)
    environment = {
        **os.environ,
        **extra,
        "CHECKOUT": str(ROOT),
        "CONDOR_CONFIG": str(pool.client_config),
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PS1": "playground$ ",
    }
    command = ["bash", "--norc", "--noprofile"]
    if not sys.stdin.isatty():
        command += ["-c", f"{_REPORT_FAILURES}{sys.stdin.read()}"]
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    before = set(processes.below(os.getpid()))
    try:
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode
    finally:
        for pid in set(processes.below(os.getpid())) - before:
            _end(pid)


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        return


def run(release: str | None, *, is_bare: bool) -> int:
    """Start the pool and its shell; return the exit status of the shell."""
    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begun:5.1f} s  {line}", file=sys.stderr, flush=True)

    version = Pool.prepare(release, say)
    sites = ONE_SITE if is_bare else THREE_SITES
    cores = ", ".join(f"{site.name} {site.cpus} cores" for site in sites)
    say(f"starting a pool with HTCondor {version}: {cores}")
    with Pool.start(release, sites, say=say, recommended=is_bare) as pool:
        if not is_bare:
            say("starting the daemon, and its hook in every startd")
        with (bare if is_bare else furnished)(pool) as extra:
            typed, read = "type exit, or Ctrl-D, to end the pool", "commands run at the end of standard input"
            say(f"ready: {typed if sys.stdin.isatty() else read}")
            status = shell(pool, extra)
    say("the pool is gone; nothing is left running")
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; exit status of the shell, 1 where there can be no pool, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m testbed.playground", description="A pool with a shell.")
    parser.add_argument("--bare", action="store_true", help="one site, and nothing of this project")
    parser.add_argument("--release", default="25.14", help="25.14 or 23.9 (%(default)s)")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        return run(options.release, is_bare=options.bare)
    except (Unavailable, ToolFailed, AssertionError) as reason:
        print(f"no playground here: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing is left running", file=sys.stderr)
        return 130


def _stop(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    sys.exit(main())
