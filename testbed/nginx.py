"""Debian's nginx with the shipped configuration, in front of a daemon's HTTP server.

    with Nginx.start(folder, "127.0.0.1:8471", certificate, key) as nginx:
        nginx.url

Only an operator's own values are changed, and for tests the time for which ads are cached.
"""

import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .debs import program
from .ports import free_port
from .served import Served

SHIPPED = Path(__file__).parents[1] / "deploy" / "nginx" / "classad-hydrator.conf"
_AROUND = """\
user root root;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
daemon off;
worker_processes 1;
worker_rlimit_nofile 65536;
events {{ worker_connections 16384; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/classad-hydrator.conf;
}}
"""


def nginx_program() -> tuple[Path, Mapping[str, str]]:
    """Return the server's program, and the environment it needs.

    Raises:
        Unavailable: the machine does not have it, and it cannot be downloaded.
    """
    return program("nginx", "nginx", "usr/sbin")


@dataclass
class Nginx(Served):
    """A running server; all its files are in *folder*, which ``stop`` removes."""

    folder: Path
    url: str
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, folder: Path, upstream: str, certificate: Path, key: Path) -> Self:
        """Start a server before *upstream*, ``host:port``; it caches ads for a second.

        Raises:
            Unavailable: there is no nginx to start and none to download.
            RuntimeError: it did not listen within 60 s; the text has its log.
        """
        nginx, environment = nginx_program()
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        port = free_port()
        yours = {
            "proxy_cache_path /run/nginx-classad-hydrator ": f"proxy_cache_path {folder}/cache ",
            "server 127.0.0.1:8471;": f"server {upstream};",
            "proxy_cache_valid 200 5s;": "proxy_cache_valid 200 1s;",
            "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
            "/etc/nginx/classad-hydrator.pem": str(certificate),
            "/etc/nginx/classad-hydrator.key": str(key),
        }
        text = SHIPPED.read_text("utf-8")
        for shipped, here in yours.items():
            if text.count(shipped) != 1:
                raise RuntimeError(f"{SHIPPED.name} has no single {shipped!r}")
            text = text.replace(shipped, here)
        (folder / SHIPPED.name).write_text(text, "utf-8")
        config = folder / "nginx.conf"
        config.write_text(_AROUND.format(folder=folder), "utf-8")
        command = [str(nginx), "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(config)]
        process = cls._serve(command, folder / "output.log", env=environment)
        server = cls(folder, f"https://127.0.0.1:{port}", process)
        server._wait_until_it_listens(port)
        return server

    def _wait_until_it_listens(self, port: int) -> None:
        def there() -> bool:
            with socket.socket() as asking:
                return asking.connect_ex(("127.0.0.1", port)) == 0

        self._wait(there, "nginx did not listen", "output.log", "error.log")
