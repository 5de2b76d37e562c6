"""RabbitMQ of Debian's packages with its STOMP plugin, for tests: loopback, free ports, removed at the end.

It has an Erlang name server (epmd) of its own, so that it is apart from other nodes on the machine.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ._death import dies_with_parent
from .debs import program
from .ports import free_ports
from .served import Served

USER = "rucio"
_ERL = """\
#!/bin/sh
ROOTDIR={root} BINDIR={binaries} EMU=beam PROGNAME=erl
export ROOTDIR BINDIR EMU PROGNAME
exec "$BINDIR/erlexec" "$@"
"""
_CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{amqp}
stomp.listeners.tcp.1 = 127.0.0.1:{stomp}
default_user = {user}
default_pass = {password}
loopback_users = none
log.console = false
log.file.level = info
"""


def server() -> tuple[Path, Mapping[str, str]]:
    """Return the script that starts it, and the environment it needs.

    Raises:
        DebUnavailable: the machine does not have it, and it cannot be downloaded.
    """
    return program("rabbitmq-server", "rabbitmq-server", "usr/lib/rabbitmq/lib/*/sbin")


@dataclass
class RabbitMq(Served):
    """A running broker; all its files are in *folder*, which ``stop`` removes."""

    folder: Path
    port: int
    password: str = field(repr=False)
    _environment: Mapping[str, str] = field(repr=False)
    _script: Path
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def start(cls) -> Self:
        """Start one with one user, who logs in with ``password``, and wait until STOMP answers at ``port``.

        Raises:
            DebUnavailable: there is no RabbitMQ to start and none to download.
            RuntimeError: it did not listen within 120 s; the text has its log.
        """
        script, libraries = server()
        erlang = script.parents[4] / "erlang"
        folder = Path(tempfile.mkdtemp(prefix="rabbitmq-"))
        amqp, stomp, distribution, epmd = free_ports(4)
        password = secrets.token_hex(16)
        (binaries,) = erlang.glob("erts-*/bin")
        (folder / "bin").mkdir()
        wrapper = folder / "bin" / "erl"
        wrapper.write_text(_ERL.format(root=erlang, binaries=binaries))
        wrapper.chmod(0o755)
        config = folder / "rabbitmq.conf"
        config.touch(mode=0o600)
        config.write_text(_CONFIG.format(amqp=amqp, stomp=stomp, user=USER, password=password))
        (folder / "plugins").write_text("[rabbitmq_stomp].\n")
        environment = {
            **libraries,
            "PATH": f"{folder / 'bin'}:{binaries}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "testbed@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "config"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none",
            "RABBITMQ_ALLOW_INPUT": "1",  # the script becomes the broker, which so ends with us
            "RABBITMQ_SERVER_START_ARGS": "-noinput",
        }
        broker = cls(folder, stomp, password, environment, script)
        broker._run([str(binaries / "epmd")])
        broker.resume()
        return broker

    def pause(self) -> None:
        """End the broker as a crash would; ``resume`` starts it again on the same port."""
        broker = self._processes.pop()
        broker.kill()
        broker.wait()

    def resume(self) -> None:
        """Start it again after ``pause``."""
        self._run([str(self._script)])
        self._wait_until_it_listens()

    def _run(self, command: list[str]) -> None:
        with (self.folder / "output").open("ab") as log:
            process = subprocess.Popen(
                command, env=dict(self._environment), cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=dies_with_parent(),  # noqa: PLW1509 (one thread here; nothing else asks the kernel)
            )  # fmt: skip
        self._processes.append(process)

    def _wait_until_it_listens(self) -> None:
        def there() -> bool:
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
            except OSError:
                return False
            return True

        self.process = self._processes[-1]
        self._wait(there, "RabbitMQ did not start", "output", "log/*", seconds=120)

    def stop(self) -> None:
        """End it and its name server, and remove its folder."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
