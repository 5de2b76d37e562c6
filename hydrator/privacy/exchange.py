"""Exchange of private datasets' names for pseudonyms at the daemon, before anything enters the pool."""

import ssl
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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


class RenamedCatalogue:
    """A catalogue that queries another one under other names; see :class:`hydrator.domain.ports.Catalogue`.

    Args:
        inner: answers under its own names.
        names: returns by asked name the name for *inner*; an error of it is one of this catalogue.
    """

    def __init__(self, inner: Catalogue, names: Callable[[AbstractSet[Did]], Mapping[Did, Did]]) -> None:
        self._inner = inner
        self._names = names

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Read as :meth:`hydrator.domain.ports.Catalogue.read`."""
        try:
            inner_names = self._names(dids)
        except HydratorError as error:
            raise CatalogueUnreachable(self.name, str(error)) from None
        survey = self._inner.read(frozenset(inner_names.values()))
        readings = {
            did: with_did(did, survey.readings[inner_name])
            for did, inner_name in inner_names.items()
            if inner_name in survey.readings
        }
        return replace(survey, readings=readings)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Find as :meth:`hydrator.domain.ports.Catalogue.find`, under the names of *inner*."""
        return self._inner.find(patterns)

    def close(self) -> None:
        self._inner.close()


def pool_named(inner: Catalogue, pseudonym_by_did: Mapping[Did, Did]) -> RenamedCatalogue:
    """Return *inner*, which expects DIDs, for callers with the pool's names; public DIDs are unchanged."""
    did_by_pseudonym = {name: did for did, name in pseudonym_by_did.items()}
    return RenamedCatalogue(inner, lambda names: {name: did_by_pseudonym.get(name, name) for name in names})


def daemon_named(inner: Catalogue, settings: Settings) -> RenamedCatalogue:
    """Return *inner*, which has the pool's names only, such as the daemon, for callers with DIDs."""
    return RenamedCatalogue(inner, lambda dids: fetch_pseudonyms(dids, settings))


def fetch_pseudonyms(
    dids: AbstractSet[Did], settings: Settings, transport: httpx.BaseTransport | None = None
) -> Mapping[Did, Did]:
    """Return by DID its name in the pool: the daemon's pseudonym for a private one, else the DID itself.

    Without private DIDs no request is sent.

    Args:
        dids: real names of datasets.
        settings: ``private.patterns``, and in ``submit`` the daemon's address and token.
        transport: for tests.

    Raises:
        ConfigError: the daemon's address is missing in the configuration, or would send names unencrypted.
        ExchangeFailed: the daemon could not be reached, or refused the exchange.
    """
    private = Privacy(tuple(settings.private.patterns)).select_private(dids)
    names = {did: did for did in dids}
    if not private:
        return names
    url, token = _daemon_url_and_token(settings, private)
    try:
        ca_cert = settings.submit.ca_cert
        with httpx.Client(
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=ca_cert) if ca_cert else True,
            timeout=_TIMEOUT_SECONDS,
            transport=transport,
            trust_env=not is_loopback(urlsplit(url).hostname or ""),
        ) as client:
            for batch in _batches(private):
                names |= _fetch_batch(client, url, batch)
    except (httpx.HTTPError, OSError) as error:
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
    batch: list[Did] = []
    size = 0
    for did in dids:
        length = len(quote(did, safe=":/")) + len("&did=")
        if batch and size + length > _MAX_QUERY_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(did)
        size += length
    yield batch


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
        pseudonyms = {parse_did(row["did"]): parse_did(row["name"]) for row in content["datasets"]}
    except (ValueError, LookupError, TypeError, BadDid):
        raise ExchangeFailed(
            f"{url} does not answer as a classad-hydrator daemon does (status {answer.status_code});"
            f" {NOTHING_SUBMITTED}"
        ) from None
    public_dids = [did for did in dids if not is_opaque(pseudonyms.get(did, did))]
    if public_dids:
        raise ExchangeFailed(
            f"{summarize_dids(public_dids)}: private here and not at the daemon {url}: give both the same"
            f" [private].patterns; {NOTHING_SUBMITTED}"
        )
    return {did: pseudonyms[did] for did in dids}
