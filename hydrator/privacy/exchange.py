"""Replace the names of private datasets by the daemon's pseudonyms, before a job enters the pool."""

import ssl
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from hydrator.config import Settings
from hydrator.domain.errors import BadDid, CatalogueUnreachable, ConfigError, HydratorError
from hydrator.domain.model import Did, Survey, parse_did
from hydrator.domain.ports import Catalogue
from hydrator.domain.redaction import read_secret, sanitize
from hydrator.domain.text import reason_of
from hydrator.domain.untrusted import is_loopback

from .pseudonyms import Privacy, is_opaque, summarize_dids, with_did

if TYPE_CHECKING:
    import httpx

NOTHING_SUBMITTED = "nothing was submitted"
_MAX_QUERY_BYTES = 6000
_TIMEOUT_SECONDS = 30


class ExchangeFailed(HydratorError):
    """The daemon could not be reached, or refuses to return pseudonyms."""


class RenamedCatalogue:
    """A catalogue that translates the dataset names of its callers into the names of the catalogue *inner*.

    See :class:`hydrator.domain.ports.Catalogue` for the methods.

    Args:
        inner: the catalogue that answers, under its own names.
        names: a function that returns, for each name of the caller, the name in *inner*. If it raises
            an error, the catalogue counts as unreachable.
    """

    def __init__(self, inner: Catalogue, names: Callable[[AbstractSet[Did]], Mapping[Did, Did]]) -> None:
        self._inner = inner
        self._names = names

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :meth:`hydrator.domain.ports.Catalogue.read`."""
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
        """See :meth:`hydrator.domain.ports.Catalogue.find`; the DIDs are the names of *inner*."""
        return self._inner.find(patterns)

    def close(self) -> None:
        self._inner.close()


def pool_named(inner: Catalogue, pseudonym_by_did: Mapping[Did, Did]) -> RenamedCatalogue:
    """Return a catalogue that takes pseudonyms and queries *inner* by DIDs; public DIDs are unchanged."""
    did_by_pseudonym = {name: did for did, name in pseudonym_by_did.items()}
    return RenamedCatalogue(inner, lambda names: {name: did_by_pseudonym.get(name, name) for name in names})


def daemon_named(inner: Catalogue, settings: Settings) -> RenamedCatalogue:
    """Return a catalogue that takes DIDs and queries *inner*, such as the daemon, by pseudonyms."""
    return RenamedCatalogue(inner, lambda dids: fetch_pseudonyms(dids, settings))


def fetch_pseudonyms(
    dids: AbstractSet[Did], settings: Settings, transport: "httpx.BaseTransport | None" = None
) -> Mapping[Did, Did]:
    """Return, for each DID, its name in the pool: a pseudonym if the DID is private, else the DID itself.

    Query the daemon for the pseudonyms. If no DID is private, send no request.

    Args:
        dids: real names of datasets.
        settings: ``private.patterns``, and in ``submit`` the daemon's address and token.
        transport: a replacement for the network, for tests.

    Raises:
        ConfigError: the configuration lacks the daemon's address, or names would be sent unencrypted.
        ExchangeFailed: the daemon could not be reached, or refuses to return pseudonyms.
    """
    private = Privacy(tuple(settings.private.patterns)).select_private(dids)
    names = {did: did for did in dids}
    if not private:
        return names
    import httpx

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
            f"{summarize_dids(private)}: private, so the job needs a pseudonym from the daemon at {url},"
            f" but the daemon cannot be reached ({why}): {NOTHING_SUBMITTED}; try again later"
        ) from None
    return names


def _daemon_url_and_token(settings: Settings, private: Sequence[Did]) -> tuple[str, str]:
    """Return the daemon's URL and this user's token, both from ``[submit]``."""
    begin = f"{summarize_dids(private)}: private, so the job needs a pseudonym from the daemon:"
    url, file = settings.submit.daemon_url, settings.submit.token_file
    if not url or not file:
        missing = " and ".join(k for k, v in (("daemon_url", url), ("token_file", file)) if not v)
        raise ConfigError([f"{begin} set {missing} in [submit]; {NOTHING_SUBMITTED}"])
    if urlsplit(url).scheme != "https" and not is_loopback(urlsplit(url).hostname or ""):
        raise ConfigError(
            [f"{begin} submit.daemon_url {url} sends the name unencrypted; use https; {NOTHING_SUBMITTED}"]
        )
    try:
        token = read_secret(file.read_text("ascii"))
    except UnicodeDecodeError as error:
        raise ConfigError(
            [f"{begin} submit.token_file {file} has no valid token; {NOTHING_SUBMITTED}"]
        ) from error
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


def _fetch_batch(client: "httpx.Client", url: str, dids: Sequence[Did]) -> dict[Did, Did]:
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
            f"the server at {url} is not a classad-hydrator daemon (HTTP status {answer.status_code});"
            f" check submit.daemon_url;"
            f" {NOTHING_SUBMITTED}"
        ) from None
    public_dids = [did for did in dids if not is_opaque(pseudonyms.get(did, did))]
    if public_dids:
        raise ExchangeFailed(
            f"{summarize_dids(public_dids)}: private in this configuration but not in the configuration"
            f" of the daemon at {url}: set the same private.patterns in both; {NOTHING_SUBMITTED}"
        )
    return {did: pseudonyms[did] for did in dids}
