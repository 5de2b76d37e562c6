"""Redaction of catalogues' texts about private datasets. This module is pure: no socket, no clock.

The file names of a private dataset may have nothing in common with its DID, so no pattern matches them. If
a text is about one private dataset, users see only known sentences of the adapters. If an error may be
about several datasets, users see only words that cannot be names.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from hydrator.domain.model import Provenance

from .pseudonyms import HIDDEN_DID, is_masked, is_opaque

NOT_SHOWN: Final = "the catalogue's own words are not shown: the dataset is private"
_SAFE_SENTENCES: Final = (
    "a single file is complete where it is",
    "the server asked for a pause that is longer than this query may take",
    "the server asked for a pause",
    "its answer did not end in time",
    "its files are not counted (count_files)",
    "its rule is about to be taken up",
    "its rule is stuck",
    "its rule is suspended",
    "its rule waits for approval",
    "no complete answer within",
    "the daemon left it out of its answer",
    "there was no time left in this poll",
    "this name was not exchanged here: no key of this daemon makes it of a listed dataset",
    "a container cannot be counted",
    "an open dataset cannot be counted",
    "whole, but its last rule has ended",
    "the dataset of this name could not be looked up",
    "whole, but no rule holds it for long enough",
    "{storage} cannot be read (availability_read, or a downtime)",
    "{storage} cannot be written (availability_write), so nothing arrives",
    "whole, but {storage} is a cache (volatile) that may drop it at any time",
)
"""Sentences that the adapters write about one dataset; they contain no text of the catalogue.
tests/unit/privacy/test_withheld.py checks that the adapters still write them."""
_STATUS: Final = re.compile(r"\b(?:HTTP|status|Status|code) ([1-5][0-9]{2})\b")
_RULE: Final = re.compile(r"[0-9a-fA-F-]{1,40}\Z")
_CALL: Final = re.compile(r"(?:(?:list|get)_[a-z_]{1,40}(?:\([a-z_]{1,20}=\w{1,5}\))?|GET /data/locate)\Z")
_NUMBER: Final = re.compile(r"[0-9]+(?:[.:,/-][0-9]+){0,8}(?:s|ms|kB|MB|GB|%)?\Z")
_SAFE_WORDS: Final = frozenset(
    {"GET", "POST", "HTTP/1.1", "HTTP/2", "X509", "x509", "X.509", "OAuth2", "UTF-8", "-", "="}
)
_PUNCTUATION: Final = "()[]{}<>,;:.!?"


def redact_reason(reason: str, storage: str = "") -> str:
    """Return the part of *reason*, a catalogue's message about one private dataset, that may be shown.

    >>> redact_reason("its rule is stuck: no route to sb_17.ms")
    "its rule is stuck; the catalogue's own words are not shown: the dataset is private"
    """
    if not reason:
        return ""
    whole = {sentence.replace("{storage}", storage) for sentence in _SAFE_SENTENCES}
    if reason in whole:
        return reason
    begin = next((sentence for sentence in _SAFE_SENTENCES if reason.startswith(sentence)), "")
    status = _STATUS.search(reason[:2000])
    parts = [begin, f"HTTP {status[1]}" if status else "", NOT_SHOWN]
    return "; ".join(filter(None, parts))


def redact_provenance(provenance: Provenance) -> Provenance:
    """Return the part of a private dataset's provenance that may be shown."""
    return replace(
        provenance,
        call=provenance.call if _CALL.match(provenance.call) else redact_names(provenance.call),
        reason=redact_reason(provenance.reason, provenance.storage),
        rule=provenance.rule if _RULE.match(provenance.rule) else "",
        account=redact_names(provenance.account),
    )


def redact_names(text: str) -> str:
    """Replace every word of *text* that may be a name by HIDDEN_DID.

    Keep numbers, pseudonyms, words that consist of letters, and known words. Of a URL keep only the server.
    """
    return " ".join(_redact_words(text))


def _redact_words(text: str) -> Iterator[str]:
    previous = ""
    for word in text.split():
        bare = word.strip(_PUNCTUATION)
        if bare in _SAFE_WORDS or bare.isalpha() or not bare or _NUMBER.match(bare) or _is_safe_word(bare):
            visible = word
        elif bare.startswith(("https://", "http://")) and (server := _server(bare)):
            visible = f"{server}/{HIDDEN_DID}"
        else:
            visible = HIDDEN_DID
        if not (visible == previous == HIDDEN_DID):
            yield visible
        previous = visible


def _is_safe_word(word: str) -> bool:
    return is_opaque(word) or is_masked(word) or word == HIDDEN_DID.strip(_PUNCTUATION)


def _server(url: str) -> str:
    """Return the scheme, host and port of *url*; empty if *url* is not valid."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{port}" if re.fullmatch(r"[a-z0-9.-]+", host) else ""
