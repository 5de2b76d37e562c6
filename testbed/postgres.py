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

from ._death import dies_with_parent
from .debs import program
from .ports import free_port
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
        secret.touch(mode=0o600)
        secret.write_text(password)
        if who:
            shutil.chown(secret, **who)
        data = folder / "data"
        how = {"env": environment, "cwd": folder, "stdin": subprocess.DEVNULL, **who}
        make = [
            str(maker),
            "-D",
            str(data),
            "-U",
            _USER,
            "-A",
            "scram-sha-256",
            f"--pwfile={secret}",
            "-N",
            "-EUTF8",
        ]
        done = subprocess.run(make, capture_output=True, text=True, check=False, **how)
        if done.returncode:
            shutil.rmtree(folder)
            raise RuntimeError(f"initdb failed: {done.stderr[-2000:]}")
        port = free_port()
        options = ("listen_addresses=127.0.0.1", "unix_socket_directories=", f"port={port}", *_FAST)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(maker.with_name("postgres")), "-D", str(data), *(f"--{option}" for option in options)],
                stdout=log, stderr=log,
                preexec_fn=dies_with_parent(),  # noqa: PLW1509 (one thread here; nothing else asks the kernel)
                **how,
            )  # fmt: skip
        server = cls(folder, port, process, password)
        server._wait_until_it_listens()
        return server

    def _wait_until_it_listens(self) -> None:
        log = self.folder / "log"
        self._wait(
            lambda: b"ready to accept connections" in log.read_bytes(), "PostgreSQL did not start", "log"
        )


def _nobody(folder: Path) -> Mapping[str, Any]:
    """Return the user to run it: root may not, so *folder* becomes that of the user nobody."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid}
