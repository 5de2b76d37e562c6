"""A PostgreSQL server of Debian's packages, for tests: loopback, a free port, removed at the end."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from .debs import program
from .files import write_secret
from .ports import free_port
from .processes import run_program
from .served import Served

_USER = "rucio"
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "jit=off", "autovacuum=off")


def initdb(copy: Path | None = None) -> tuple[Path, Mapping[str, str]]:
    """Return the program that makes a database, with the server beside it, and the environment of both.

    *copy* is as for :func:`testbed.debs.program`.

    Raises:
        Unavailable: the machine does not have it, and it cannot be downloaded.
    """
    return program("initdb", "postgresql", "usr/lib/postgresql/*/bin", copy)


@dataclass
class Postgres(Served):
    """A running server; all its files are in *folder*, which ``stop`` removes."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    password: str = field(repr=False)

    @property
    def url(self) -> str:
        """Return the address of its database, as SQLAlchemy has it, with the password."""
        return f"postgresql+psycopg://{_USER}:{self.password}@127.0.0.1:{self.port}/postgres"

    @classmethod
    def start(cls) -> Self:
        """Start an empty server.

        Raises:
            Unavailable: there is no PostgreSQL to start and none to download.
            RuntimeError: it did not answer within 60 s; the text has its log.
        """
        initdb()  # before there is anything to remove
        folder = Path(tempfile.mkdtemp(prefix="pg-"))
        who = _nobody(folder)
        maker, libraries = initdb(folder / "programs" if who else None)
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", **libraries}
        password, secret = secrets.token_hex(16), folder / "password"
        write_secret(secret, password)
        if who:
            shutil.chown(secret, **who)
        data = folder / "data"
        how = {"env": environment, "cwd": folder, **who}
        access = ("-A", "scram-sha-256", f"--pwfile={secret}", "-N", "-EUTF8")
        make = [str(maker), "-D", str(data), "-U", _USER, *access]
        done = run_program(make, stdin=subprocess.DEVNULL, **how)
        if done.returncode:
            shutil.rmtree(folder)
            raise RuntimeError(f"initdb failed: {done.stderr[-2000:]}")
        port = free_port()
        options = ("listen_addresses=127.0.0.1", "unix_socket_directories=", f"port={port}", *_FAST)
        log, command = folder / "log", [str(maker.with_name("postgres")), "-D", str(data)]
        process = cls._serve([*command, *(f"--{option}" for option in options)], log, **how)
        server = cls(folder, port, process, password)
        ready = b"ready to accept connections"
        server._wait(lambda: ready in log.read_bytes(), "PostgreSQL did not start", "log")
        return server


def _nobody(folder: Path) -> Mapping[str, Any]:
    """Return the user to run it: root may not, so *folder* becomes that of the user nobody."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid}
