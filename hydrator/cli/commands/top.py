"""``hydrator top``: show the daemon's HTTP data and refresh them; without a terminal, print the data once."""

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption
from hydrator.cli.output.stdio import unwrap_stream
from hydrator.domain.errors import ConfigError, HydratorError
from hydrator.domain.redaction import read_secret, sanitize
from hydrator.domain.text import format_count, format_duration, shorten_list

if TYPE_CHECKING:
    import httpx
    from rich.console import RenderableType

_COLUMNS = ("site", "read", "generation", "known", "available", "staging", "other")


class DaemonUnavailable(HydratorError):
    """Error: the daemon did not answer, or refused the query; the text is the reason."""


@dataclass(frozen=True, slots=True)
class DaemonEndpoint:
    """The daemon's URL, with a token and the CA certificate to trust."""

    url: str
    token: str | None = None
    ca_cert: Path | None = None


@dataclass(frozen=True, slots=True)
class ServedState:
    """The daemon's data at one moment: rows of /v1/sites and /v1/datasets, and the daemon's time."""

    now: int
    sites: Sequence[Mapping[str, Any]]
    datasets: Sequence[Mapping[str, Any]]
    estimates_none: str | None = None


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
    """Watch sites and datasets as the daemon serves them; Ctrl-C ends the display.

    The command uses only HTTP. So with --url it runs on any host, without the daemon's state or HTCondor.
    """
    from hydrator.cli.output import tables as show

    endpoint = _find_endpoint(url, token_file, config)
    if endpoint.token and not _is_secure_url(endpoint.url):
        raise ConfigError(
            [f"top: the token would be sent unencrypted to {endpoint.url}: give --url https://..."]
        )
    with _build_client(endpoint) as client:
        if once or not sys.stdout.isatty():
            show.print_renderable(render_frame(fetch_state(client, endpoint)))
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
    """Refresh until Ctrl-C; if the daemon does not answer, show the error above the last data."""
    from rich.console import Console, Group
    from rich.live import Live

    last: RenderableType = ""
    with Live(console=Console(file=unwrap_stream(sys.stdout)), screen=True, auto_refresh=False) as live:
        while True:
            try:
                last = render_frame(fetch_state(client, endpoint))
                live.update(last, refresh=True)
            except DaemonUnavailable as silent:
                live.update(Group(f"hydrator: {silent}", last), refresh=True)
            try:
                time.sleep(interval_seconds)
            except KeyboardInterrupt:
                return


def fetch_state(client: "httpx.Client", endpoint: DaemonEndpoint) -> ServedState:
    """Query the daemon once.

    Raises:
        DaemonUnavailable: the daemon did not answer, or its answer does not have the requested data.
    """
    sites = _get_page(client, endpoint, "sites", {})
    datasets: list[Mapping[str, Any]] = []
    page: dict[str, str] = {}
    while True:
        answer = _get_page(client, endpoint, "datasets", page)
        datasets += answer["datasets"]
        following = answer.get("next")
        if not isinstance(following, str) or following <= page.get("after", ""):
            return ServedState(sites["now"], sites["sites"], datasets, _fetch_none_reason(client, endpoint))
        page = {"after": following}


def _fetch_none_reason(client: "httpx.Client", endpoint: DaemonEndpoint) -> str | None:
    """Return why the daemon has no estimates; None if it has some, or if it is older than estimates are."""
    with suppress(DaemonUnavailable):
        return _text_or_none(_get_page(client, endpoint, "sets", {"key": "-"}).get("estimates_none"))
    return None


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _get_page(
    client: "httpx.Client", endpoint: DaemonEndpoint, resource: str, params: Mapping[str, str]
) -> Mapping[str, Any]:
    """Query one page of *resource*. Raises DaemonUnavailable."""
    import httpx

    try:
        answer = client.get(f"/v1/{resource}", params=params)
        body = answer.json()
    except httpx.HTTPError as error:
        raise DaemonUnavailable(
            f"the daemon at {endpoint.url} does not answer: {sanitize(str(error))}"
        ) from error
    except ValueError as error:
        raise DaemonUnavailable(f"the server at {endpoint.url} is not a hydrator daemon") from error
    if answer.status_code != 200 or not isinstance(body, dict) or resource not in body:
        why = body.get("detail", "") if isinstance(body, dict) else ""
        raise DaemonUnavailable(
            f"the daemon at {endpoint.url} refuses the query ({answer.status_code}): {sanitize(str(why))}"
        )
    return body


def table_rows(state: ServedState) -> list[tuple[str, ...]]:
    """Return a row for every site, in the order of the columns."""
    states: dict[str, Counter[str]] = {}
    for dataset in state.datasets:
        for fact in dataset["sites"]:
            states.setdefault(fact["site"], Counter())[fact["state"]] += 1
    rows_by_site = {site["site"]: site for site in state.sites}
    return [
        _site_row(site, rows_by_site.get(site), states.get(site, Counter()))
        for site in sorted(rows_by_site.keys() | states.keys())
    ]


def _site_row(site: str, site_entry: Mapping[str, Any] | None, states: Mapping[str, int]) -> tuple[str, ...]:
    available, staging = states.get("AVAILABLE", 0), states.get("STAGING", 0)
    other = sum(states.values()) - available - staging
    if site_entry is None:
        return (site, "?", "not served", "?", str(available), str(staging), str(other))
    known = "?" if site_entry["known_datasets"] is None else str(site_entry["known_datasets"])
    age = f"{format_duration(site_entry['age_seconds'])} ago"
    return (site, age, str(site_entry["generation"]), known, str(available), str(staging), str(other))


def summary_line(state: ServedState) -> str:
    """Return one line: the time, and the number of wanted datasets that are available at a site."""
    available = sum(any(fact["state"] == "AVAILABLE" for fact in each["sites"]) for each in state.datasets)
    jobs = sum(each["jobs"] for each in state.datasets)
    unseen = sum(each["unseen"] is not None for each in state.datasets)
    when = f"{datetime.fromtimestamp(state.now, UTC):%Y-%m-%d %H:%M:%S} UTC"
    trouble = f"; no catalogue answered about {format_count(unseen, 'dataset')}" if unseen else ""
    counts = f"{available} of {format_count(len(state.datasets), 'wanted dataset')} available at a site"
    return f"{when}   {counts}, named {format_count(jobs, 'time')} by jobs{trouble}"


def estimates_line(state: ServedState) -> str:
    """Return one line: the number of sites with valid estimates; or that there are none, and why."""
    until = [site["estimates_until"] for site in state.sites if site.get("estimates_until")]
    if not until:
        return "no estimates of reads and queues" + (
            f": {state.estimates_none}" if state.estimates_none else ""
        )
    queues = [
        f"{site['site']} {format_duration(site['own_queue_seconds'])}"
        for site in state.sites
        if site.get("own_queue_seconds")
    ]
    line = f"estimates of reads and queues at {format_count(len(until), 'site')}"
    return line + (f"; queues of local jobs: {shorten_list(queues)}" if queues else "")


def render_frame(state: ServedState) -> "RenderableType":
    """Return the content of the screen for one state."""
    from rich.console import Group

    from hydrator.cli.output import tables as show

    return Group(
        summary_line(state), estimates_line(state), "", show.build_table(_COLUMNS, table_rows(state))
    )


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


def _build_client(endpoint: DaemonEndpoint) -> "httpx.Client":
    import ssl

    import httpx

    headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
    context = ssl.create_default_context(cafile=str(endpoint.ca_cert) if endpoint.ca_cert else None)
    try:
        return httpx.Client(
            base_url=endpoint.url, headers=headers, timeout=20, verify=context, trust_env=False
        )
    except httpx.InvalidURL as error:
        raise ConfigError([f"--url {endpoint.url}: {error}"]) from error
