"""``hydrator top``: watch the daemon over HTTP: health, locality, staging, sites; or print them once."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption
from hydrator.cli.output.stdio import unwrap_stream
from hydrator.domain.errors import ConfigError
from hydrator.domain.redaction import read_secret

from .client import DaemonEndpoint, DaemonUnavailable, ServedState, build_client, fetch_state

if TYPE_CHECKING:
    import httpx
    from rich.console import RenderableType


def top(
    url: Annotated[
        str | None, typer.Option(help="URL of the daemon; default: from the configuration.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with a token of role read; default: submit.token_file.")
    ] = None,
    every: Annotated[float, typer.Option(min=1, max=3600, help="Seconds between two updates.")] = 5,
    once: Annotated[
        bool, typer.Option("--once", help="Print once and exit; the default without a terminal.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
) -> None:
    """Watch the daemon: what needs you, where jobs find their data, staging and sites; q or Ctrl-C quits.

    Key r asks the daemon at once. The command uses only HTTP. So with --url it runs on any host, without
    the daemon's state or HTCondor.
    """
    from .screen import print_once

    endpoint = _find_endpoint(url, token_file, config)
    if endpoint.token and not _is_secure_url(endpoint.url):
        raise ConfigError(
            [f"top: the token would be sent unencrypted to {endpoint.url}: give --url https://..."]
        )
    with build_client(endpoint) as client:
        if once or not sys.stdout.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
            print_once(fetch_state(client, endpoint))
            return
        _watch(client, endpoint, every)


def _is_secure_url(url: str) -> bool:
    """Return whether a token sent to *url* is encrypted, or stays on this host.

    Letter case in the scheme does not matter: HTTPS:// is https://."""
    from hydrator.domain.untrusted import is_loopback

    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError([f"top: --url {url} is not a URL: {error}"]) from error
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def _watch(client: "httpx.Client", endpoint: DaemonEndpoint, interval_seconds: float) -> None:
    """Refresh until q or Ctrl-C; if the daemon does not answer, show the error above the last data."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from .keyboard import Keyboard
    from .screen import render_frame

    console = Console(file=unwrap_stream(sys.stdout), markup=False, highlight=False)
    state: ServedState | None = None
    problem = ""

    def render() -> "RenderableType":
        width, height = console.size
        frame = render_frame(state, width, height, encoding=console.encoding) if state else ""
        return Group(Text(f"hydrator: {problem}", "bold red"), frame) if problem else frame

    with Keyboard(sys.stdin) as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
        is_over = False
        while not is_over:
            try:
                state, problem = fetch_state(client, endpoint), ""
            except DaemonUnavailable as silent:
                problem = str(silent)
            is_over = keyboard.wait(interval_seconds, lambda: live.update(render(), refresh=True))


def _find_endpoint(url: str | None, token_file: Path | None, config: Path) -> DaemonEndpoint:
    """Return the daemon's endpoint from the options, else from the configuration."""
    from hydrator.config import load

    if url is not None:
        return DaemonEndpoint(url.rstrip("/"), _read_token(token_file))
    settings = load(config)
    http, submit = settings.publish.http, settings.submit
    token = _read_token(token_file or submit.token_file)
    if submit.daemon_url:
        return DaemonEndpoint(submit.daemon_url.rstrip("/"), token, submit.ca_cert)
    if not http.enabled or http.socket or http.tls_certificate or not http.port:
        raise ConfigError(["top: the configuration has no address of the daemon: give --url"])
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(http.host, http.host)  # noqa: S104 - read
    return DaemonEndpoint(
        f"http://[{host}]:{http.port}" if ":" in host else f"http://{host}:{http.port}", token
    )


def _read_token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return read_secret(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError([f"--token-file {file}: {error}"]) from error
