"""A real HTCondor pool on this machine: central manager, schedd and a startd for each site.

    with Pool.start(release="23.9", sites=[SiteSpec("UK", cpus=8)], extra={"negotiator": "…"}) as pool:
        pool.submit("executable = /bin/true\\nqueue")

HTCondor comes from Debian in a private tree (`testbed.debian`), so a pool needs root. The daemons run in
namespaces of their own under `testbed.keeper`, so several pools run side by side and nothing stays behind.
Security is a production pool's: IDTOKENS only, all levels closed, `hydrator@pool.test` allowed READ
everywhere and DAEMON at the collector, nothing more.
With ``recommended=True`` it is what HTCondor's own package sets up, and nothing else.
"""

import contextlib
import fcntl
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self, TypeVar

import classad2

from . import debian, keeper, processes
from .cached import Unavailable
from .files import umask, write_program, write_secret
from .patience import LIMIT_SECONDS, PATIENCE, polls
from .ports import free_port

__all__ = ["DOMAIN", "Pool", "SiteSpec", "ToolFailed", "site_of"]

DOMAIN = "pool.test"
"""UID_DOMAIN and TRUST_DOMAIN: whoever submits as ``alice@pool.test`` runs as alice."""

KINDS = ("all", "collector", "negotiator", "schedd", "startd")
"""The kinds of extra configuration, in the order they are read; the last one wins."""

UIDS = {"root": 0, "hydrator": 0, "alice": 1000, "bob": 1001}
"""Users that may run tools inside; ``root`` is ``condor@``, the administrator."""

_T = TypeVar("_T")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONDOR_UID = 64500


class ToolFailed(RuntimeError):
    """A tool inside the pool failed; the text is its command and its output."""


@dataclass(frozen=True, slots=True)
class SiteSpec:
    """One site: a startd with one partitionable slot. *extra* is configuration of this startd alone.

    ``name`` has letters, digits and ``_`` only: it is also the startd's -local-name.
    ``memory`` is in MiB; by default 1 GiB for every core. ``gpus`` are stand-ins:
    the startd's configuration lists them, and it assigns them like real ones.
    """

    name: str
    cpus: int = 2
    memory: int | None = None
    gpus: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def daemon(self) -> str:
        """Return the startd's name in DAEMON_LIST."""
        return f"STARTD_{self.name.upper()}"


_CLOSED = f"""\
# authorization: IDTOKENS only, and no anonymous client
SEC_DEFAULT_AUTHENTICATION_METHODS = IDTOKENS
SEC_CLIENT_AUTHENTICATION_METHODS = IDTOKENS
SEC_READ_AUTHENTICATION = REQUIRED
ALLOW_ADMINISTRATOR = condor@{DOMAIN} admin@{DOMAIN}
ALLOW_CONFIG = condor@{DOMAIN} admin@{DOMAIN}
ALLOW_DAEMON = condor@{DOMAIN}
ALLOW_NEGOTIATOR = condor@{DOMAIN}
ALLOW_ADVERTISE_STARTD = condor@{DOMAIN}
ALLOW_ADVERTISE_SCHEDD = condor@{DOMAIN}
ALLOW_ADVERTISE_MASTER = condor@{DOMAIN}
ALLOW_WRITE = condor@{DOMAIN} admin@{DOMAIN} alice@{DOMAIN} bob@{DOMAIN}
ALLOW_READ = *@{DOMAIN}
COLLECTOR.ALLOW_DAEMON = condor@{DOMAIN} hydrator@{DOMAIN}
QUEUE_SUPER_USERS = root, condor, admin
"""
_RECOMMENDED = """\
# no list of our own: they are those of `use security:recommended` above. A pool on one host has a
# session from birth in which all is allowed; daemons on several hosts have none.
SEC_USE_FAMILY_SESSION = False
"""

THREE_SITES = (SiteSpec("UK", cpus=8), SiteSpec("AU", cpus=4), SiteSpec("NL", cpus=2))


@dataclass(slots=True)
class Pool:
    """A pool that is up; :meth:`start` makes one, and leaving the ``with`` block removes it."""

    version: str
    """HTCondor's version, such as ``25.14.1``."""
    collector: str
    """The collector's address, ``127.0.0.1:PORT``."""
    home: Path
    """The run folder, the same path inside and outside; removed with the pool."""
    sites: tuple[SiteSpec, ...]
    _init: int | None
    _keeper: subprocess.Popen[str] | None = None
    _alive: IO[str] | None = None
    _extra: dict[str, str] = field(default_factory=dict)
    _recommended: bool = False

    @classmethod
    def start(
        cls,
        release: str | None = None,
        sites: Sequence[SiteSpec] = THREE_SITES,
        extra: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
        *,
        recommended: bool = False,
    ) -> Self:
        """Start a pool and wait until its slots are in the collector: 5 s, a minute more to build its tree.

        Args:
            release: ``25.14``/``sid``, which is the default, or ``23.9``/``trixie``.
            sites: a startd for each, with different names.
            extra: configuration text by kind (``all``, ``collector``, ``negotiator``, ``schedd``,
                ``startd``), read after the pool's own, so it overrides. All daemons see all of it.
            say: gets one line for each slow step and for each difference from the request.
            recommended: use the security of HTCondor's own package, with no family session, so
                that each daemon authenticates to the collector; `hydrator@` has no rights.

        Raises:
            Unavailable: there can be no pool on this machine, with the reason.
        """
        with umask(0o022):  # its users share folders, as below a service of the system
            tree = _find_tree(release, say)
            home, alive = _run_folder()
            port = free_port()
            pool = cls(
                version=debian.version(tree),
                collector=f"127.0.0.1:{port}",
                home=home,
                sites=tuple(sites),
                _init=None,
                _alive=alive,
                _extra=_check_kinds(extra or {}),
                _recommended=recommended,
            )
            try:
                _furnish(pool, tree)
                pool._launch(tree)
                pool.token("condor")
                pool.wait_ready()
            except BaseException:
                pool.stop()
                raise
            return pool

    @staticmethod
    def prepare(release: str | None = None, say: Callable[[str], None] = print) -> str:
        """Build HTCondor if it is missing, so that :meth:`start` takes seconds; return its version.

        Raises:
            Unavailable: there can be no pool on this machine, with the reason.
        """
        return debian.version(_find_tree(release, say))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the pool: every process, mount and file of it. A second call is not an error."""
        running, self._keeper = self._keeper, None
        if running is not None:
            for end in (running.stdin, running.stdout):
                if end is not None:
                    end.close()
            running.terminate()  # a process forked from this one may hold the pipe open
            running.wait(30 * PATIENCE)
            keeper.remove(self.home)
        if self._alive is not None:
            self._alive.close()
            self._alive = None

    # --- where things are ---------------------------------------------------------------------------

    @property
    def shared(self) -> Path:
        """Return a folder that every user may write to, under one path inside and outside, also for jobs."""
        return self.home / "shared"

    @property
    def client_config(self) -> Path:
        """Return CONDOR_CONFIG for clients outside, as ``hydrator@``; :meth:`client` makes others."""
        return self.client("hydrator")

    def client(self, identity: str | None, authz: Sequence[str] | None = None) -> Path:
        """Return CONDOR_CONFIG for clients outside, as *identity*, or without one for None."""
        tokens = self.home / "tokens" / "none" if identity is None else self.token(identity, authz)
        tokens.mkdir(mode=0o700, exist_ok=True)
        file = self.home / "clients" / f"{tokens.name}.conf"
        file.write_text(
            f"COLLECTOR_HOST = {self.collector}\nUID_DOMAIN = {DOMAIN}\nTRUST_DOMAIN = {DOMAIN}\n"
            f"SEC_TOKEN_DIRECTORY = {tokens}\nSEC_TOKEN_SYSTEM_DIRECTORY = {tokens}\n"
            "SEC_CLIENT_AUTHENTICATION_METHODS = IDTOKENS\n"
            "NETWORK_INTERFACE = 127.0.0.1\nBIND_ALL_INTERFACES = False\nENABLE_IPV6 = False\n"
            f"LOG = {self.home}/clients\nSPOOL = {self.home}/clients\nLOCK = {self.home}/clients\n",
            "utf-8",
        )
        return file

    def token(self, identity: str, authz: Sequence[str] | None = None, *, uid: int | None = None) -> Path:
        """A folder with an IDTOKEN for *identity*, for SEC_TOKEN_DIRECTORY; the same one when asked again.

        Args:
            identity: ``hydrator`` or ``hydrator@pool.test``.
            authz: the levels the token is limited to (``condor_token_create -authz``), or None for no limit.
            uid: who owns it; by default root.
        """
        name = identity if "@" in identity else f"{identity}@{DOMAIN}"
        owner = uid or 0
        folder = self.home / "tokens" / "-".join([name, *(authz or ()), str(owner)])
        if folder.exists():
            return folder
        limits = [word for level in authz or () for word in ("-authz", level)]
        made = self._exec(["condor_token_create", "-identity", name, *limits], "root", {})
        if made.returncode != 0:
            raise ToolFailed(f"condor_token_create -identity {name}: {made.stderr.strip()}")
        # two commands of one user may start at the same time
        fresh = Path(tempfile.mkdtemp(dir=folder.parent))
        write_secret(fresh / "token", made.stdout)
        for path in (fresh / "token", fresh):
            os.chown(path, owner, -1)
        try:
            fresh.rename(folder)
        except OSError:
            shutil.rmtree(fresh)
        return folder

    def logs(self, name: str) -> str:
        """Return a log: ``collector``, ``schedd``, ``startd:UK``, … or a log file by its name."""
        kind, _, site = name.partition(":")
        known = {"collector", "negotiator", "schedd", "master", "startd", "starter", "shadow"}
        stem = f"{kind.capitalize()}Log" if kind.lower() in known else kind
        file = self.home / "log" / (f"{stem}.{site}" if site else stem)
        return file.read_text("utf-8", "replace") if file.is_file() else ""

    # --- tools inside -------------------------------------------------------------------------------

    def run(
        self,
        *command: str | Path,
        user: str = "root",
        check: bool = True,
        input: str | None = None,  # noqa: A002 - as in subprocess.run
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = LIMIT_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool inside the pool.

        Args:
            command: the tool and its arguments.
            user: ``root`` (with the administrator's token), ``alice``, ``bob``, ``hydrator`` or another
                identity.
            check: raise if the exit status is not 0.
            input: the tool's standard input.
            cwd: its folder; by default the user's home.
            env: more environment.
            timeout: seconds until it is killed.

        Raises:
            ToolFailed: it did not end with 0.
        """
        words = [str(word) for word in command]
        more = {**self._identity(user), **(env or {})}
        done = self._exec(words, user, more, input=input, cwd=cwd, timeout=timeout)
        if check and done.returncode != 0:
            output = (done.stderr.strip() or done.stdout.strip())[-2000:]
            raise ToolFailed(f"{' '.join(words)[:300]}: exit status {done.returncode}: {output}")
        return done

    def tool(self, name: str, user: str, folder: Path) -> None:
        """Write a program *name* into *folder* that runs that tool inside, as *user*, where it is called."""
        words = [*self._within(user, self._identity(user), "FOLDER"), name]
        line = shlex.join(words).replace("--chdir=FOLDER", '--chdir="$PWD"')
        write_program(folder / name, f'#!/bin/sh\nexec {line} "$@"\n')

    def submit(self, text: str, user: str = "alice", *arguments: str) -> int:
        """Submit this description as *user*; return the cluster's id. Files go to the user's home."""
        return _cluster(self.run("condor_submit", "-terse", *arguments, "-", user=user, input=text))

    def submit_file(self, file: Path) -> int:
        """Submit this file as alice, in its folder; return the cluster's id."""
        return _cluster(self.run("condor_submit", "-terse", file.name, user="alice", cwd=file.parent))

    def user_home(self, user: str) -> Path:
        """Return the home of *user*, inside and outside: jobs put their files there."""
        return self.shared / "home" / user

    def slots(self, *attributes: str, constraint: str = "true", collector: str = "") -> list[dict[str, Any]]:
        """Return the slots' ads, or these attributes of them, as the collector has them, or another one."""
        where = ["-pool", collector or self.collector, "-constraint", constraint]
        return self._ads("condor_status", where, attributes)

    def ads(self, constraint: str, *attributes: str, collector: str = "") -> list[dict[str, Any]]:
        """Return any ads in the collector, or in another one."""
        where = ["-any", "-pool", collector or self.collector, "-constraint", constraint]
        return self._ads("condor_status", where, attributes)

    def jobs(self, constraint: str = "true", *attributes: str) -> list[dict[str, Any]]:
        """Return jobs in the queue; those that left it are in :meth:`history`."""
        return self._ads("condor_q", ["-allusers", "-constraint", constraint], attributes)

    def history(self, constraint: str = "true", *attributes: str) -> list[dict[str, Any]]:
        """Return jobs that have left the queue, the last one first."""
        return self._ads("condor_history", ["-constraint", constraint], attributes)

    def job(self, cluster: int, *attributes: str) -> dict[str, Any] | None:
        """Return the first job of *cluster*, from the queue or else from the history."""
        which = f"ClusterId == {cluster}"
        found = self.jobs(which, *attributes) or self.history(which, *attributes)
        return found[0] if found else None

    def until_running(self, cluster: int, jobs: int = 1) -> None:
        """Wait until *jobs* jobs of *cluster* run."""
        running = f"ClusterId == {cluster} && JobStatus == 2"
        self.wait(lambda: len(self.jobs(running, "ProcId")) == jobs, f"{jobs} of job {cluster} to run")

    def fill(self, site: str, cpus: int, jobs: int = 1) -> int:
        """Run *jobs* jobs without data for an hour at *site*, each with *cpus* cores; return the cluster."""
        cluster = self.submit(
            "executable = /bin/sleep\narguments = 3600\nrequest_memory = 10\nrequest_disk = 1\n"
            f'request_cpus = {cpus}\nrequirements = TARGET.GLIDEIN_Site == "{site}"\nqueue {jobs}\n'
        )
        self.until_running(cluster, jobs)
        return cluster

    def is_idle(self, cluster: int) -> bool:
        """Return True if the first job of *cluster* is idle."""
        return self.job(cluster, "JobStatus") == {"JobStatus": 1}

    def stays_idle(self, cluster: int) -> bool:
        """Return whether the first job of *cluster* is idle after a rejection at the present slots."""
        rejected = f"ClusterId == {cluster} && LastRejMatchTime > {int(time.time())}"
        self.wait(lambda: self.jobs(rejected, "ProcId"), f"the negotiator to reject job {cluster}")
        return self.is_idle(cluster)

    def empty_queue(self) -> None:
        """Remove all jobs, also those that 23.9 sometimes keeps as removed without end."""

        def empty() -> bool:
            for more in ((), ("-forcex",)):
                self.run("condor_rm", *more, "-all", check=False)  # it fails without a job
            return not self.jobs("true", "ClusterId")

        self.wait(empty, "the queue to be empty")

    def wait_free(self) -> None:
        """Wait until all cores are free in the ads of all slots; a slot in use is smaller than it is."""
        in_use = 'SlotType == "Dynamic" || Cpus < TotalSlotCpus'
        self.wait(lambda: not self.slots("Name", constraint=in_use), "all cores to be free")

    def done(self, cluster: int, jobs: int = 1) -> bool:
        """Return whether *jobs* jobs of *cluster* have completed."""
        return len(self.history(f"ClusterId == {cluster} && JobStatus == 4", "ProcId")) >= jobs

    def ran_at(self, cluster: int, jobs: int = 1) -> list[str]:
        """Wait until *jobs* jobs of *cluster* have completed; return their sites, by process number."""

        def ended() -> list[dict[str, Any]]:
            found = self.history(f"ClusterId == {cluster} && JobStatus == 4", "ProcId", "LastRemoteHost")
            return found if len(found) >= jobs else []

        found = self.wait(ended, f"{jobs} of job {cluster} to end")
        return [site_of(job["LastRemoteHost"]) for job in sorted(found, key=lambda job: int(job["ProcId"]))]

    # --- faults and changes -------------------------------------------------------------------------

    def reconfig(self, *, read_by: Sequence[str] = (), **extra: str) -> None:
        """Replace the extra configuration of these kinds and have every daemon read it.

        Args:
            read_by: the daemons to wait for, by the names of their logs.
            extra: the configuration by kind.
        """
        before = {name: self._times_read(name) for name in read_by}
        self._extra |= _check_kinds(extra)
        _write_extra(self.home, self._extra)
        self.run("condor_reconfig", "-addr", self._master())  # the master reconfigures all daemons

        def is_read() -> bool:
            return all(self._times_read(name) > times for name, times in before.items())

        self.wait(is_read, f"{', '.join(read_by)} to read the texts")

    def _times_read(self, daemon: str) -> int:
        return self.logs(daemon).count("Re-reading config files")

    def stop_daemon(self, name: str) -> None:
        """Stop a daemon until it is started: ``collector``, ``negotiator``, ``schedd``, ``startd:UK``."""
        self._send_command("condor_off", "-fast", name=name)
        self.wait(lambda: not self.pids(name), f"{name} to stop")

    def start_daemon(self, name: str) -> None:
        """Start a daemon that :meth:`stop_daemon` stopped, on the same address where it is the collector."""
        self._send_command("condor_on", name=name)
        self.wait(lambda: self.pids(name), f"{name} to start")

    def restart_daemon(self, name: str) -> None:
        """Stop a daemon and start it again."""
        self.stop_daemon(name)
        self.start_daemon(name)

    def kill_daemon(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a daemon; the master starts a killed one again after a second or two."""
        pids = self.pids(name)
        if not pids:
            raise ToolFailed(f"{name} does not run")
        for pid in pids:
            os.kill(pid, number)

    def pids(self, name: str) -> list[int]:
        """Return the processes of one daemon (or ``starter``, ``shadow``), by this machine's process ids."""
        kind, _, site = name.lower().replace("startd_", "startd:").partition(":")
        found = []
        for pid, command in self.processes().items():
            words = command.split("\0")
            if Path(words[0]).name != f"condor_{kind}":
                continue
            if not site or site in [word.lower() for word in words]:
                found.append(pid)
        return sorted(found)

    def processes(self) -> dict[int, str]:
        """Return every process below the keeper, with its command line, words ended by NUL."""
        top = self._keeper.pid if self._keeper else self._init
        return processes.below(top) if top else {}

    def wait(self, condition: Callable[[], _T], what: str, seconds: float = LIMIT_SECONDS) -> _T:
        """Wait like :func:`testbed.patience.wait_for`, also past failed calls of the tools.

        Args:
            what: the condition in words, for the failure.
            seconds: the limit; benchmarks have longer ones.

        Raises:
            AssertionError: it was not true in time, or the pool has ended; with *what*, queue and slots.
        """
        failure = ""
        for _ in polls(seconds):
            failure = ""
            try:
                if answer := condition():
                    return answer
            except (ToolFailed, subprocess.TimeoutExpired) as failed:
                failure = f"\n{failed}"
            if self._keeper is not None and self._keeper.poll() is not None:
                raise AssertionError(f"the pool ended while we waited for {what}")
        raise AssertionError(f"waited {seconds:g} s for {what}{failure}\n{self._state()}")

    def wait_ready(self) -> None:
        """Wait until central manager, schedd and all slots are in the collector.

        Raises:
            Unavailable: condor_master has ended; with the last line of its log.
        """
        here = [
            site for site in self.sites if "COLLECTOR_HOST" not in site.extra
        ]  # without those of another pool
        wanted = {"Collector": 1, "Negotiator": 1, "Scheduler": 1, "Machine": len(here)}

        def there() -> bool:
            # on a busy machine condor_master's process may still be the shell that starts it
            if not set(self.processes()) - {self._init}:
                last = (self.logs("master") or self.logs("start.log")).strip().splitlines()[-1:]
                raise Unavailable(f"condor_master ended at once: {' '.join(last)}")
            kinds = [ad["MyType"] for ad in self.ads("true", "MyType")]
            return all(kinds.count(kind) >= count for kind, count in wanted.items())

        self.wait(there, f"{', '.join(wanted)} ads in the collector")

    # --- within -------------------------------------------------------------------------------------

    def _identity(self, user: str) -> dict[str, str]:
        """Return the environment that gives a tool its token."""
        tokens = self.token("condor" if user == "root" else user, uid=UIDS.get(user, 0))
        names = ("_CONDOR_SEC_TOKEN_DIRECTORY", "_CONDOR_SEC_TOKEN_SYSTEM_DIRECTORY")
        # the recommended security also accepts the Unix user's name, which is root for most of these users
        methods = {"_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS": "IDTOKENS"} if self._recommended else {}
        return {**methods, **dict.fromkeys(names, str(tokens))}

    def _launch(self, tree: Path) -> None:
        what = {
            "run": str(self.home),
            "tree": str(tree),
            "command": ["/usr/sbin/condor_master", "-f"],
            "environment": {"CONDOR_CONFIG": str(self.home / "etc" / "condor_config"), "PATH": _PATH},
        }
        file = self.home / "keeper.json"
        file.write_text(json.dumps(what), "utf-8")
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", keeper.__file__, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            pass_fds=[self._alive.fileno()] if self._alive else [],
        )
        assert self._keeper.stdout is not None
        reply = json.loads(self._keeper.stdout.readline() or '{"error": "the keeper died"}')
        if "error" in reply:
            raise Unavailable(f"HTCondor cannot be started here: {reply['error']}")
        self._init = reply["init"]

    def _exec(
        self,
        command: list[str],
        user: str,
        more: Mapping[str, str],
        *,
        input: str | None = None,  # noqa: A002
        cwd: Path | None = None,
        timeout: float = LIMIT_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run *command* inside, with a clean environment and without raising."""
        return processes.run_program(
            [*self._within(user, more, str(cwd or self._home_of(user))), *command],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            errors="replace",
            timeout=timeout,
        )

    def _home_of(self, user: str) -> Path:
        return self.user_home(user if user in UIDS else "root")

    def _within(self, user: str, more: Mapping[str, str], folder: str) -> list[str]:
        """Build the prefix of a command that *user* runs inside, in *folder*."""
        uid = UIDS.get(user, 0)
        environment = {
            "CONDOR_CONFIG": str(self.home / "etc" / "condor_config"),
            "PATH": _PATH,
            "HOME": str(self._home_of(user)),
            "USER": user,
            "LOGNAME": user,
            "LC_ALL": "C.UTF-8",
            **more,
        }
        words = ["/usr/bin/env", "-i", f"--chdir={folder}"]
        words += [f"{name}={value}" for name, value in environment.items()]
        who = [f"--setuid={uid}", f"--setgid={uid}"]
        return ["nsenter", f"--target={self._init}", "--mount", "--pid", "--root", *who, *words]

    def _ads(self, tool: str, options: Sequence[str], attributes: Sequence[str]) -> list[dict[str, Any]]:
        chosen = ["-attributes", ",".join(attributes)] if attributes else []
        output = self.run(tool, *options, *chosen, "-json").stdout.strip()
        ads: list[dict[str, Any]] = json.loads(output) if output else []
        return [{name: _evaluate(value) for name, value in ad.items()} for ad in ads]

    def _master(self) -> str:
        return (self.home / "log" / ".master_address").read_text("utf-8").splitlines()[0]

    def _send_command(self, tool: str, *options: str, name: str) -> None:
        daemon = name.upper().replace("STARTD:", "STARTD_")
        self.run(tool, "-addr", self._master(), *options, "-daemon", daemon)

    def _state(self) -> str:
        """Return queue, slots and the ends of the important logs, for people."""
        parts = []
        for command in (
            ["condor_q", "-allusers", "-nobatch"],
            ["condor_q", "-allusers", "-hold"],
            ["condor_status"],
        ):
            try:
                done = self.run(*command, check=False, timeout=120)
                parts.append(f"$ {' '.join(command)}\n{done.stdout.strip()}\n{done.stderr.strip()}")
            except (OSError, ToolFailed, subprocess.TimeoutExpired) as failure:
                parts.append(f"$ {' '.join(command)}: {failure}")
        for name in ("start.log", "master", "negotiator"):
            last = "\n".join(self.logs(name).splitlines()[-8:])
            parts.append(f"--- {name}\n{last}")
        return "\n".join(parts)


def site_of(host: str) -> str:
    """Return the site of a job's RemoteHost or LastRemoteHost, such as ``slot1_1@UK@this.machine``."""
    return host.split("@")[1]


def _find_tree(release: str | None, say: Callable[[str], None]) -> Path:
    """Return the tree with HTCondor *release*; report it if it has another one."""
    suite = debian.SUITES.get(release or "25.14", release or "25.14")
    if suite not in debian.SUITES.values():
        known = ", ".join([*debian.SUITES, *debian.SUITES.values()])
        raise Unavailable(f"no release {release!r} of HTCondor is known here: choose one of {known}")
    probe = ["unshare", "--mount", "--pid", "--fork", "true"]
    if os.geteuid() != 0 or subprocess.run(probe, capture_output=True, check=False).returncode:
        raise Unavailable(
            "a test pool needs root, and its right to make mount and pid namespaces (CAP_SYS_ADMIN)"
        )
    tree = debian.tree(suite, say)
    asked = next((number for number, name in debian.SUITES.items() if name == suite), "")
    if not f"{debian.version(tree)}.".startswith(f"{asked}."):
        say(f"HTCondor {asked} was asked for; Debian {suite} has {debian.version(tree)}")
    return tree


def _run_folder() -> tuple[Path, IO[str]]:
    """Create a run folder, with the lock by which other processes see that it is in use.

    Not below /tmp or /var/tmp, which jobs do not see, nor /run, which may be noexec, nor a home,
    which other users cannot enter.
    """
    base = Path("/var/lib/classad-hydrator-testbed")
    for _ in range(100):
        base.mkdir(parents=True, exist_ok=True)
        _sweep(base)
        home = base / f"pool-{os.getpid()}-{random.randrange(16**4):04x}"
        try:
            home.mkdir(mode=0o755)
        except (FileExistsError, FileNotFoundError):  # the last pool there has just removed the base
            continue
        alive = (home / "alive.new").open("w", encoding="utf-8")
        fcntl.flock(alive, fcntl.LOCK_EX)
        (home / "alive.new").rename(home / "alive")  # other processes never see it unlocked
        return home, alive
    raise Unavailable(f"cannot make a folder in {base}")


def _sweep(base: Path) -> None:
    """Remove run folders whose keeper was killed: neither it nor its owner has the lock any more."""
    for file in base.glob("*/alive"):
        with file.open("a", encoding="utf-8") as alive, contextlib.suppress(BlockingIOError):
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(file.parent, ignore_errors=True)


def _furnish(pool: Pool, tree: Path) -> None:
    """Fill the run folder: configuration, key, users, folders."""
    home = pool.home
    for name in ("etc", "log", "spool", "execute", "lock", "tokens", "clients", "shared", "layer", "root"):
        (home / name).mkdir()
    for site in pool.sites:
        (home / "execute" / site.name).mkdir()
    (home / "etc" / "passwords").mkdir(mode=0o700)
    key = home / "etc" / "passwords" / "POOL"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(64))
    (home / "etc" / "tokens.d").mkdir(mode=0o700)
    for user, uid in UIDS.items():
        folder = pool.user_home(user)
        folder.mkdir(parents=True)
        os.chown(folder, uid, uid)
    pool.shared.chmod(0o1777)
    for name in ("log", "spool", "execute", "lock", *(f"execute/{site.name}" for site in pool.sites)):
        os.chown(home / name, _CONDOR_UID, _CONDOR_UID)
    _write_users(home, tree)
    (home / "etc" / "condor_config").write_text(_config(pool), "utf-8")
    if any(site.gpus for site in pool.sites):
        write_program(home / "etc" / "gpus", _gpu_inventory(pool.sites))
    _write_extra(home, pool._extra)


def _write_users(home: Path, root: Path) -> None:
    """Write passwd, group and hosts for inside: the pool's users, and the machine's other names and ids."""
    ours = {"condor": _CONDOR_UID, "alice": UIDS["alice"], "bob": UIDS["bob"]}
    for name in ("passwd", "group"):
        lines = []
        for line in (root / "etc" / name).read_text("utf-8").splitlines():
            fields = line.split(":")
            if fields[0] not in ours and fields[2] not in map(str, ours.values()):
                lines.append(line)
        for user, uid in ours.items():
            place = home / "shared" / "home" / user if user in UIDS else Path("/nonexistent")
            lines.append(f"{user}:x:{uid}:{uid}::{place}:/bin/sh" if name == "passwd" else f"{user}:x:{uid}:")
        (home / "etc" / name).write_text("\n".join(lines) + "\n", "utf-8")
    (home / "etc" / "hosts").write_text(f"127.0.0.1 {socket.gethostname()} localhost\n", "utf-8")


def _config(pool: Pool) -> str:
    """Return the pool's configuration: fast, on loopback, and as closed as a production pool."""
    home, port = pool.home, pool.collector.rpartition(":")[2]
    startds = " ".join(site.daemon for site in pool.sites)
    return f"""\
if version >= 23.10.0
    use security:recommended
else
    use security:recommended_v9_0
endif
RELEASE_DIR = /usr
BIN = /usr/bin
SBIN = /usr/sbin
LIB = /usr/lib/condor
LIBEXEC = /usr/libexec/condor
CONDOR_IDS = {_CONDOR_UID}.{_CONDOR_UID}
LOCAL_DIR = {home}
LOG = {home}/log
SPOOL = {home}/spool
EXECUTE = {home}/execute
LOCK = {home}/lock
RUN = {home}/lock
LOCAL_CONFIG_FILE =
LOCAL_CONFIG_DIR =
UID_DOMAIN = {DOMAIN}
TRUST_DOMAIN = {DOMAIN}
CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:{port}
NETWORK_INTERFACE = 127.0.0.1
BIND_ALL_INTERFACES = False
ENABLE_IPV6 = False
USE_SHARED_PORT = False
DAEMON_LIST = MASTER COLLECTOR NEGOTIATOR SCHEDD {startds}
DC_DAEMON_LIST = + {startds}
MASTER_ADDRESS_FILE = $(LOG)/.master_address

SEC_PASSWORD_DIRECTORY = {home}/etc/passwords
SEC_TOKEN_POOL_SIGNING_KEY_FILE = {home}/etc/passwords/POOL
SEC_TOKEN_SYSTEM_DIRECTORY = {home}/etc/tokens.d
COLLECTOR_BOOTSTRAP_SSL_CERTIFICATE = False

{_RECOMMENDED if pool._recommended else _CLOSED}
STARTD_ATTRS = $(STARTD_ATTRS) GLIDEIN_Site
# one partitionable slot each; startds do not look for these under their local name
NUM_SLOTS_TYPE_1 = 1
SLOT_TYPE_1 = 100%
SLOT_TYPE_1_PARTITIONABLE = True

# quick, so that a test does not wait
NEGOTIATOR_INTERVAL = 5
NEGOTIATOR_MIN_INTERVAL = 2
NEGOTIATOR_CYCLE_DELAY = 2
NEGOTIATOR_UPDATE_INTERVAL = 3
UPDATE_INTERVAL = 20
MASTER_UPDATE_INTERVAL = 20
SCHEDD_INTERVAL = 5
SCHEDD_MIN_INTERVAL = 1
MASTER_BACKOFF_CONSTANT = 1
MASTER_BACKOFF_CEILING = 3
DAGMAN_USER_LOG_SCAN_INTERVAL = 1
RUNBENCHMARKS = False
ENABLE_KERNEL_TUNING = False
BASE_CGROUP =
ENABLE_SSH_TO_JOB = False
STARTD_HISTORY =
START = True
SUSPEND = False
PREEMPT = False
KILL = False
# a starter whose shadow went during the removal of a job waits 40 minutes for it; the default is 10 minutes
MachineMaxVacateTime = 60
# each startd and starter starts each plugin: those of Box, Google Drive and OneDrive need 0.4 s of CPU each
FILETRANSFER_PLUGINS = $(LIBEXEC)/curl_plugin

{f"MACHINE_RESOURCE_INVENTORY_GPUs = {home}/etc/gpus" if any(site.gpus for site in pool.sites) else ""}
{"".join(_site_config(pool, site) for site in pool.sites)}
{"".join(f"include : {home}/etc/{kind}.conf{chr(10)}" for kind in KINDS)}"""


def _site_config(pool: Pool, site: SiteSpec) -> str:
    """Return the configuration of one startd that acts as the glideins of *site*."""
    settings = {
        "STARTD_NAME": site.name,
        "STARTD_LOG": f"$(LOG)/StartdLog.{site.name}",
        "STARTER_LOG": f"$(LOG)/StarterLog.{site.name}",
        "STARTD_ADDRESS_FILE": f"$(LOG)/.startd_address.{site.name}",
        "STARTD_CLAIM_ID_FILE": f"$(LOG)/.startd_claim_id.{site.name}",
        "EXECUTE": f"{pool.home}/execute/{site.name}",
        "NUM_CPUS": str(site.cpus),
        "MEMORY": str(site.memory or 1024 * site.cpus),
        "GLIDEIN_Site": f'"{site.name}"',
        **site.extra,
    }
    lines = [f"{site.name}.{name} = {value}" for name, value in settings.items()]
    args = f"-f -local-name {site.name}"
    return "\n".join([f"{site.daemon} = $(STARTD)", f"{site.daemon}_ARGS = {args}", *lines]) + "\n\n"


def _gpu_inventory(sites: Sequence[SiteSpec]) -> str:
    """Write a program in place of condor_gpu_discovery, for all startds: each reads who its parent is."""
    cases = []
    for site in sites:
        if site.gpus:
            names = [f"GPU-{site.name.lower()}{number:04}" for number in range(site.gpus)]
            lines = [f'DetectedGPUs="{", ".join(names)}"']
            lines += [
                f'{name.replace("-", "_")}=[ Id = "{name}"; Capability = {8.0 - number}; '
                f'DeviceName = "stand-in {number}"; GlobalMemoryMb = 16000; ]'
                for number, name in enumerate(names)
            ]
            cases.append(f"*' -local-name {site.name} '*) cat <<'END'\n" + "\n".join(lines) + "\nEND\n;;")
    cases.append("*) echo DetectedGPUs=0;;")
    body = "\n".join(cases)
    return f"#!/bin/sh\ncase $(tr '\\0' ' ' < /proc/$PPID/cmdline) in\n{body}\nesac\n"


def _evaluate(value: object) -> object:
    """Return a list or record in parentheses, which -json prints as an expression's text, as its value."""
    found = (
        re.fullmatch(r"/Expr\((\(\s*[\[{].*[\]}]\s*\))\)/", value, re.DOTALL)
        if isinstance(value, str)
        else None
    )
    if not found:
        return value
    evaluated = classad2.ExprTree(found[1]).eval()
    return dict(evaluated) if isinstance(evaluated, classad2.ClassAd) else evaluated


def _check_kinds(extra: Mapping[str, str]) -> dict[str, str]:
    if unknown := sorted(set(extra) - set(KINDS)):
        raise ValueError(
            f"extra configuration of unknown kind {', '.join(unknown)}: choose from {', '.join(KINDS)}"
        )
    return dict(extra)


def _cluster(submitted: subprocess.CompletedProcess[str]) -> int:
    """Read what condor_submit printed with -terse."""
    found = re.match(r"(\d+)\.", submitted.stdout.strip())
    if not found:
        raise ToolFailed(f"condor_submit printed no job id: {submitted.stdout!r}")
    return int(found[1])


def _write_extra(home: Path, extra: Mapping[str, str]) -> None:
    for kind in KINDS:
        (home / "etc" / f"{kind}.conf").write_text(extra.get(kind, "") + "\n", "utf-8")
