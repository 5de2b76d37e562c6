"""Client of the daemon's HTTP interface: fetch the data that ``hydrator top`` shows."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydrator.domain.errors import ConfigError, HydratorError
from hydrator.domain.redaction import sanitize

if TYPE_CHECKING:
    import httpx


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
    """The daemon's data at one moment: rows of /v1/sites and /v1/datasets, and the daemon's time.

    ``health`` is the answer of /v1/health; None from a daemon of an earlier version, which has no such route.
    """

    now: int
    sites: Sequence[Mapping[str, Any]]
    datasets: Sequence[Mapping[str, Any]]
    estimates_none: str | None = None
    health: Mapping[str, Any] | None = None


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
            none_reason = _fetch_none_reason(client, endpoint)
            health = _fetch_health(client, endpoint)
            return ServedState(sites["now"], sites["sites"], datasets, none_reason, health)
        page = {"after": following}


def _fetch_none_reason(client: "httpx.Client", endpoint: DaemonEndpoint) -> str | None:
    """Return why the daemon has no estimates; None if it has some, or if it is older than estimates are."""
    with suppress(DaemonUnavailable):
        return _text_or_none(_get_page(client, endpoint, "sets", {"key": "-"}).get("estimates_none"))
    return None


def _fetch_health(client: "httpx.Client", endpoint: DaemonEndpoint) -> Mapping[str, Any] | None:
    """Return the daemon's overall health; None if the daemon is older than this route."""
    with suppress(DaemonUnavailable):
        return _get_page(client, endpoint, "health", {}, required_key="needs")
    return None


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _get_page(
    client: "httpx.Client",
    endpoint: DaemonEndpoint,
    resource: str,
    params: Mapping[str, str],
    required_key: str | None = None,
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
    if answer.status_code != 200 or not isinstance(body, dict) or (required_key or resource) not in body:
        why = body.get("detail", "") if isinstance(body, dict) else ""
        raise DaemonUnavailable(
            f"the daemon at {endpoint.url} refuses the query ({answer.status_code}): {sanitize(str(why))}"
        )
    return body


def build_client(endpoint: DaemonEndpoint) -> "httpx.Client":
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
