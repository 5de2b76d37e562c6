"""Debian's Apache with mod_ssl before a Rucio server, as sites run it: a certificate is a login.

    with Apache.start(folder, rucio, ca, certificate, key) as apache:
        apache.url

It sends the client's name to Rucio in a header, with the test server's key, so that no other client can.
The server puts the name where mod_wsgi would (``SSL_CLIENT_S_DN``).
"""

import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .debs import program
from .files import write_secret
from .ports import free_port
from .rucio import RucioServer
from .served import Served

_MODULES = ("mpm_event", "authn_core", "authz_core", "ssl", "headers", "proxy", "proxy_http")
_CONFIG = """\
ServerRoot {folder}
ServerName 127.0.0.1
PidFile {folder}/apache.pid
DefaultRuntimeDir {folder}
Mutex file:{folder}
Listen 127.0.0.1:{port}
ErrorLog {folder}/error.log
LogLevel warn
User nobody
Group nogroup
StartServers 1
ThreadsPerChild 25
<VirtualHost *:{port}>
  SSLEngine on
  SSLCertificateFile {certificate}
  SSLCertificateKeyFile {key}
  SSLCACertificateFile {ca}
  SSLVerifyClient optional
  SSLOptions +LegacyDNStringFormat
  RequestHeader set X-Testbed-Key {secret}
  RequestHeader set X-Testbed-Client "expr=%{{SSL_CLIENT_S_DN}}"
  ProxyPass / {rucio}/
</VirtualHost>
"""


def apache2() -> tuple[Path, Mapping[str, str]]:
    """Return the server's program, and the environment it needs.

    Raises:
        Unavailable: the machine does not have it, and it cannot be downloaded.
    """
    return program("apache2", "apache2-bin", "usr/sbin")


@dataclass
class Apache(Served):
    """A running server; all its files are in *folder*, which ``stop`` removes."""

    folder: Path
    url: str
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, folder: Path, rucio: RucioServer, ca: Path, certificate: Path, key: Path) -> Self:
        """Start a server before *rucio* with *certificate*; it accepts clients whose certificate *ca* signed.

        Raises:
            Unavailable: there is no Apache to start and none to download.
            RuntimeError: it did not answer within 60 s; the text has its log.
        """
        apache, environment = apache2()
        modules = apache.parents[2] / "usr/lib/apache2/modules"
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        port = free_port()
        loaded = "".join(f"LoadModule {name}_module {modules}/mod_{name}.so\n" for name in _MODULES)
        config = folder / "apache.conf"
        write_secret(
            config,
            loaded
            + _CONFIG.format(
                folder=folder,
                port=port,
                certificate=certificate,
                key=key,
                ca=ca,
                rucio=rucio.url,
                secret=rucio.key,
            ),
        )
        command = [str(apache), "-D", "FOREGROUND", "-f", str(config)]
        process = cls._serve(command, folder / "output.log", env=environment)
        server = cls(folder, f"https://127.0.0.1:{port}", process)
        trust = ssl.create_default_context(cafile=str(ca))
        server._wait_for_ping(server.url, "Apache did not answer", "output.log", "error.log", verify=trust)
        return server
