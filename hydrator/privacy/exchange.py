"""Exchange of private datasets' names for pseudonyms at the daemon, before anything enters the pool."""

import ssl
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from urllib.parse import quote, urlsplit

import httpx

from hydrator.config import Settings
from hydrator.domain.errors import BadDid, CatalogueUnreachable, ConfigError, HydratorError
from hydrator.domain.model import Did, Survey, parse_did
from hydrator.domain.ports import Catalogue
from hydrator.domain.redaction import read_secret, sanitize
from hydrator.domain.text import reason_of
from hydrator.domain.untrusted import is_loopback

from .pseudonyms import Privacy, is_opaque, summarize_dids, with_did

NOTHING_SUBMITTED = "nothing was submitted"
_MAX_QUERY_BYTES = 6000
_TIMEOUT_SECONDS = 30


class ExchangeFailed(HydratorError):
    """The daemon could not be reached, or refuses to exchange the names."""


class PoolNamedCatalogue:
    """A catalogue that is asked by the pool's names; see :class:`hydrator.domain.ports.Catalogue`.

    Args:
        inner: answers by DID.
        pseudonym_by_did: the names in the pool; DIDs without one are used as they are.
    """

    def __init__(self, inner: Catalogue, pseudonym_by_did: Mapping[Did, Did]) -> None:
        self._inner = inner
        self._did_by_pseudonym = {name: did for did, name in pseudonym_by_did.items()}

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Read as :meth:`hydrator.domain.ports.Catalogue.read`."""
        plain = {name: self._did_by_pseudonym.get(name, name) for name in dids}
        survey = self._inner.read(frozenset(plain.values()))
        readings = {
            name: with_did(name, survey.readings[did])
            for name, did in plain.items()
            if did in survey.readings
        }
        return replace(survey, readings=readings)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Find as :meth:`hydrator.domain.ports.Catalogue.find`, by DIDs."""
        return self._inner.find(patterns)

    def close(self) -> None:
        self._inner.close()


class DaemonNamedCatalogue:
    """A catalogue that has private datasets by the pool's names only, such as the daemon, asked by DID.

    Args:
        inner: answers in the pool's names.
        settings: the daemon that exchanges the names.
    """

    def __init__(self, inner: Catalogue, settings: Settings) -> None:
        self._inner = inner
        self._settings = settings

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Read as :meth:`hydrator.domain.ports.Catalogue.read`."""
        try:
            names = fetch_pseudonyms(dids, self._settings)
        except HydratorError as error:
            raise CatalogueUnreachable(self.name, str(error)) from None
        survey = self._inner.read(frozenset(names.values()))
        readings = {
            did: with_did(did, survey.readings[name])
            for did, name in names.items()
            if name in survey.readings
        }
        return replace(survey, readings=readings)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Find as :meth:`hydrator.domain.ports.Catalogue.find`."""
        return self._inner.find(patterns)

    def close(self) -> None:
        self._inner.close()


def fetch_pseudonyms(
    dids: AbstractSet[Did], settings: Settings, transport: httpx.BaseTransport | None = None
) -> Mapping[Did, Did]:
    """Return by DID its name in the pool: the daemon's pseudonym for a private one, else the DID itself.

    Without private DIDs no request is sent.

    Args:
        dids: plain ones.
        settings: ``private.patterns``, and in ``submit`` the daemon's address and token.
        transport: for tests.

    Raises:
        ConfigError: the configuration does not name the daemon, or not safely.
        ExchangeFailed: the daemon could not be reached, or refuses.
    """
    private = Privacy(tuple(settings.private.patterns)).select_private(dids)
    names = {did: did for did in dids}
    if not private:
        return names
    url, token = _daemon_url_and_token(settings, private)
    try:
        verify: ssl.SSLContext | bool = True
        if settings.submit.ca_cert:
            verify = ssl.create_default_context(cafile=settings.submit.ca_cert)
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(
            headers=headers,
            verify=verify,
            timeout=_TIMEOUT_SECONDS,
            transport=transport,
            trust_env=not is_loopback(urlsplit(url).hostname or ""),
        ) as client:
            for some in _batches(private):
                names |= _fetch_batch(client, url, some)
    except (httpx.HTTPError, ssl.SSLError, OSError) as error:
        why = sanitize(reason_of(error))
        raise ExchangeFailed(
            f"{summarize_dids(private)}: private, and the daemon at {url}, which exchanges it,"
            f" cannot be asked ({why}): {NOTHING_SUBMITTED}; try again later"
        ) from None
    return names


def _daemon_url_and_token(settings: Settings, private: Sequence[Did]) -> tuple[str, str]:
    """Return the daemon's URL, and this user's token."""
    begin = f"{summarize_dids(private)}: private, to be exchanged at the daemon:"
    url, file = settings.submit.daemon_url, settings.submit.token_file
    if not url or not file:
        missing = " and ".join(k for k, v in (("daemon_url", url), ("token_file", file)) if not v)
        raise ConfigError([f"{begin} [submit] lacks {missing}; {NOTHING_SUBMITTED}"])
    if urlsplit(url).scheme != "https" and not is_loopback(urlsplit(url).hostname or ""):
        raise ConfigError([f"{begin} {url} would show its name on the way; use https; {NOTHING_SUBMITTED}"])
    try:
        token = read_secret(file.read_text("ascii"))
    except UnicodeDecodeError as error:
        raise ConfigError([f"{begin} submit.token_file {file}: not a token; {NOTHING_SUBMITTED}"]) from error
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        raise ConfigError([f"{begin} submit.token_file {file}: {why}; {NOTHING_SUBMITTED}"]) from error
    return url.rstrip("/"), token


def _batches(dids: Sequence[Did]) -> Iterator[list[Did]]:
    some: list[Did] = []
    size = 0
    for did in dids:
        length = len(quote(did, safe=":/")) + len("&did=")
        if some and size + length > _MAX_QUERY_BYTES:
            yield some
            some, size = [], 0
        some.append(did)
        size += length
    yield some


def _fetch_batch(client: httpx.Client, url: str, dids: Sequence[Did]) -> dict[Did, Did]:
    """Return the daemon's pseudonyms of *dids*."""
    query = "&".join(f"did={quote(did, safe=':/')}" for did in dids)
    answer = client.get(f"{url}/v1/private?{query}")
    try:
        content = answer.json()
        if answer.status_code != 200:
            raise ExchangeFailed(
                f"the daemon at {url}: {sanitize(str(content['detail']))}; {NOTHING_SUBMITTED}"
            )
        given = {parse_did(row["did"]): parse_did(row["name"]) for row in content["datasets"]}
    except (ValueError, LookupError, TypeError, BadDid):
        raise ExchangeFailed(
            f"{url} does not answer as a classad-hydrator daemon does (status {answer.status_code});"
            f" {NOTHING_SUBMITTED}"
        ) from None
    open_ones = [did for did in dids if not is_opaque(given.get(did, did))]
    if open_ones:
        raise ExchangeFailed(
            f"{summarize_dids(open_ones)}: private here and not at the daemon {url}: give both the same"
            f" [private].patterns; {NOTHING_SUBMITTED}"
        )
    return {did: given[did] for did in dids}
