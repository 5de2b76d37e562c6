"""A real Rucio server on SQLite, or on PostgreSQL, for tests and the demo; removed at the end.

    with RucioServer.start(folder) as rucio:
        rucio.seed(("add_rse", {"rse": "UK-DISK", "attributes": {"site": "UK"}}), …)

The server has a virtual environment of its own (``rucio`` and ``rucio-clients``
share a package name), built once into the cache folder from
``rucio-server.lock``.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from .cached import venv_python
from .processes import run_program
from .served import Served

VERSION = "41.5.1"
LOCK = Path(__file__).with_name("rucio-server.lock")
SEED = Path(__file__).with_name("rucio_seed.py")
_UPLOAD = """
import json, logging, sys
from rucio.client.uploadclient import UploadClient
UploadClient(logger=logging.getLogger()).upload(json.load(sys.stdin))
"""
_GUNICORN = """\
import os, shutil

worker_class = "gthread"
workers = threads = 1  # SQLite takes one writer
loglevel = "warning"
timeout = 300
keepalive = 60
graceful_timeout = 1

def on_exit(server):  # also when whoever started us was killed
    shutil.rmtree(os.environ["RUCIO_HOME"], ignore_errors=True)
"""


_ON_POSTGRESQL = LOCK.with_name("rucio-postgresql.lock")


def server_python(*, postgresql: bool = False) -> Path:
    """Return the Python of the server's virtual environment; build it first if missing or of another lock.

    Raises:
        Unavailable: pip could not install it; the text ends with pip's error.
    """
    if postgresql:
        return venv_python(f"rucio-{VERSION}-postgresql", LOCK, "-r", str(_ON_POSTGRESQL))
    return venv_python(f"rucio-{VERSION}", LOCK)


def _config(folder: Path, site_packages: Path, database: str, username: str, password: str) -> None:
    """Write the server's two configuration files (what each line is for: facts of the Rucio test server)."""
    etc = folder / "etc"
    etc.mkdir(parents=True)
    (folder / "log").mkdir()
    (folder / "app").mkdir()
    (folder / "app" / "gunicorn.conf.py").write_text(_GUNICORN)
    shutil.copy(SEED, folder / "app")  # away from this file, whose name is that of Rucio's package
    (etc / "alembic.ini").write_text(
        f"[alembic]\nsqlalchemy.url = {database}\n"
        f"script_location = {site_packages}/rucio/db/sqla/migrate_repo/\n"
        "[loggers]\nkeys = root\n[handlers]\nkeys =\n[formatters]\nkeys =\n"
        "[logger_root]\nlevel = WARN\nhandlers =\n"
    )
    (etc / "rucio.cfg").write_text(
        f"[common]\nlogdir = {folder}/log\nloglevel = WARNING\n"
        f"mailtemplatedir = {site_packages.parents[2]}/rucio/etc/mail_templates\n"
        f"[database]\ndefault = {database}\npool_reset_on_return = rollback\necho = 0\n"
        f"[bootstrap]\nuserpass_identity = {username}\nuserpass_pwd = {password}\n"
        f"userpass_email = {username}@localhost\n"
        "[monitor]\nenable_metrics = False\n"
        "[policy]\npermission = generic\nschema = generic\nlfn2pfn_algorithm_default = hash\n"
        "support = testbed\nsupport_rucio = testbed\n"
        "[cache]\nurl = 127.0.0.1:1\n"
        f"[alembic]\ncfg = {etc}/alembic.ini\n"
        "[conveyor]\nscheme = mock,https,davs,root\ntransfertool = mock\n"
    )


@dataclass
class RucioServer(Served):
    """A running server. All its files are in *folder*, which ``stop`` removes.

    Start it in a thread that lives as long as it: the server ends with that thread.
    """

    folder: Path
    url: str
    process: subprocess.Popen[bytes]
    account: str = "root"
    username: str = "testbed"
    password: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    @classmethod
    def start(cls, folder: Path, database: str | None = None) -> Self:
        """Start a server with an empty catalogue in *folder*, which must not exist yet or be empty.

        Args:
            folder: for all that it writes.
            database: the address of an empty PostgreSQL; by default SQLite in *folder*.

        Raises:
            Unavailable: there is no server to start and none can be installed.
            RuntimeError: it did not answer within 60 s; the text has the end of its log.
        """
        python = server_python(postgresql=database is not None)
        folder = folder.resolve()
        password, key = secrets.token_hex(8), secrets.token_hex(16)
        site_packages = next((python.parents[1] / "lib").glob("python3*/site-packages"))
        _config(folder, site_packages, database or f"sqlite:///{folder}/rucio.db", cls.username, password)
        environment = _environment(folder, key)
        bootstrap = [str(python), str(folder / "app" / SEED.name), "bootstrap"]
        subprocess.run(bootstrap, check=True, env=environment, cwd=folder)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            # on a socket that listens already, so that no other process can take the port
            bind = [f"fd://{listener.fileno()}", "rucio_seed:application"]
            options = ["--config", "gunicorn.conf.py", "--control-socket", str(folder / "ctl"), "--bind"]
            process = cls._serve(
                [str(python), "-m", "gunicorn", *options, *bind], folder / "server.log",
                cwd=folder / "app", env=environment, pass_fds=[listener.fileno()],
            )  # fmt: skip
        server = cls(folder, url, process, password=password, key=key)
        server._wait_for_ping(url, "the Rucio server did not answer", "server.log")
        return server

    def seed(self, *commands: tuple[str, Mapping[str, Any]]) -> list[Any]:
        """Run *commands* of ``rucio_seed.py`` inside the server, one transaction each.

        Raises:
            RuntimeError: one failed; those before it are committed.
        """
        headers = {"X-Testbed-Key": self.key}
        sent = httpx.post(
            f"{self.url}/testbed/seed", json=commands, headers=headers, timeout=1200, trust_env=False
        ).raise_for_status()
        answer: dict[str, Any] = sent.json()
        if "error" in answer:
            raise RuntimeError(f"seeding Rucio failed:\n{answer['error']}")
        return list(answer["ok"])

    def do(self, command: str, **arguments: Any) -> Any:  # noqa: ANN401 (whatever the command answers)
        """Run one command, then recount (abacus), as a real server would within seconds."""
        return self.seed((command, arguments), ("abacus", {}))[0]

    def client_environment(self) -> dict[str, str]:
        """Return the environment in which Rucio's own client talks to this server as its administrator."""
        home = Path(tempfile.mkdtemp(prefix="client-", dir=self.folder))
        client = {
            "rucio_host": self.url, "auth_host": self.url, "auth_type": "userpass", "account": self.account,
            "username": self.username, "password": self.password,
        }  # fmt: skip
        lines = ["[client]", *(f"{name} = {value}" for name, value in client.items())]
        (home / "rucio.cfg").write_text("\n".join(lines))
        return _environment(home, "") | {"RUCIO_CONFIG": str(home / "rucio.cfg")}

    def upload(self, *items: Mapping[str, Any]) -> None:
        """Upload files with Rucio's own client, each of *items* as it takes them.

        Raises:
            RuntimeError: Rucio did not upload all; the text has the end of its output.
        """
        environment = self.client_environment()
        home = Path(environment["RUCIO_HOME"])
        command = [sys.executable, "-W", "ignore", "-c", _UPLOAD]
        done = run_program(command, input=json.dumps(items), env=environment, cwd=home)
        if done.returncode:
            raise RuntimeError(f"Rucio's upload failed:\n{done.stderr[-2000:]}")


def _environment(folder: Path, key: str) -> dict[str, str]:
    """Return this process's environment without the variables that point Rucio or Python elsewhere."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("RUCIO_", "PYTHON", "VIRTUAL_ENV"))
    }
    quiet = {"PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1"}
    return {
        **environment,
        **quiet,
        "RUCIO_HOME": str(folder),
        "TESTBED_RUCIO_KEY": key,
        **dict.fromkeys(("HOME", "TMPDIR"), str(folder)),
    }
