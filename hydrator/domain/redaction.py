"""Texts of others made fit to be shown: without secrets, on one line, in characters that only show.

Whoever shows a secret to a server keeps it in :data:`SECRETS` first, and every
error of ours takes the secrets out of its reason when it is made: what a server
echoes is gone before anybody cuts it to a length, stores it or passes it on.
The log is looked through once more, also for the usual dress of secrets that
nobody keeps: a Bearer token, a JWT, ``password=``.
"""

import base64
import html
import json
import re
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote, quote_plus

SECRET_PLACEHOLDER = "[secret]"  # noqa: S105 - no secret
MIN_SECRET_CHARS = 4
"""Characters of the shortest secret that is looked for: shorter ones are parts of ordinary words."""
MAX_REASON_CHARS: Final = 2000
"""Characters of a reason: what is longer is cut."""
MAX_SCANNED_CHARS: Final = 100_000
"""Characters of a text of somebody else that are looked at."""
_LONG_FORM_CHARS = 12
"""A form of a secret this long is hidden wherever it stands; a shorter one where it stands alone."""
_MAX_SECRETS = 100
_PREFIX_CHARS = 16
"""So many first characters of a long form are looked for: servers cut what they echo."""
_GAP = re.compile(r"(?:\s|\\[nrt])+")
_LABELLED_SECRET = re.compile(
    r"(?i)\b((?:bearer|basic)\s+|(?:x-rucio-auth-token|x-rucio-password|authorization|password|passwd|pwd"
    r"|client_secret|access_token|refresh_token|token)[\"']?\s*[=:]\s*[\"']?(?:(?:bearer|basic)\s+)?)"
    r"([A-Za-z0-9._~+/=-]{6,})"
)
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){0,2}")


def escape_unprintable(text: str, keep: str = "") -> str:
    r"""*text* with ``\xNN`` and the like for every character that does not show, except those to *keep*.

    Control characters steer terminals, those for the direction of writing reorder what is read, and half
    of a surrogate pair can be written nowhere.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else _escape(letter) for letter in text)


def escape_unprintable_tree(value: Any, keep: str = "") -> Any:  # noqa: ANN401 - JSON
    """*value*, of JSON, with every text in it, keys too, made :func:`printable`."""
    if isinstance(value, str):
        return escape_unprintable(value, keep)
    if isinstance(value, list):
        return [escape_unprintable_tree(each, keep) for each in value]
    if isinstance(value, dict):
        return {
            escape_unprintable(key, keep): escape_unprintable_tree(each, keep) for key, each in value.items()
        }
    return value


def _escape(letter: str) -> str:
    number = ord(letter)
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )


class Secrets:
    """The secrets that this process shows to others, for whoever hides them; safe in several threads.

    The last ones that were kept are known: a token that was renewed long ago ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forms: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._long_forms: dict[str, list[str]] = {}
        self._short_forms: re.Pattern[str] | None = None

    def keep(self, *secrets: str | None) -> None:
        """Hide *secrets* from now on, in every form that a server may send them back in."""
        new = [secret.strip() for secret in secrets if secret]
        with self._lock:
            if all(secret in self._forms for secret in new):
                for secret in new:
                    self._forms.move_to_end(secret)
                return
            for secret in new:
                self._forms[secret] = _encoded_forms(secret)
                self._forms.move_to_end(secret)
            while len(self._forms) > _MAX_SECRETS:
                self._forms.popitem(last=False)
            every = {form for forms in self._forms.values() for form in forms}
            long: dict[str, list[str]] = {}
            for form in sorted(every):
                if len(form) >= _LONG_FORM_CHARS:
                    long.setdefault(form[:_PREFIX_CHARS], []).append(form)
            self._long_forms = long
            short = sorted((form for form in every if len(form) < _LONG_FORM_CHARS), key=len, reverse=True)
            either = "|".join(map(re.escape, short))
            self._short_forms = (
                re.compile(rf"(?<![A-Za-z0-9_])(?:{either})(?![A-Za-z0-9_])") if short else None
            )

    def forget(self) -> None:
        """Know no secrets any more."""
        with self._lock:
            self._forms.clear()
            self._long_forms, self._short_forms = {}, None

    def hide(self, text: str) -> str:
        """*text* without the secrets, also where white space or a line's end stands inside them."""
        if self._short_forms:
            text = self._short_forms.sub(SECRET_PLACEHOLDER, text)
        long = self._long_forms
        squeezed = _GAP.sub("", text) if long else ""
        forms = [form for begin, those in long.items() if begin in squeezed for form in those]
        return _remove_forms(text, squeezed, forms) if forms else text


SECRETS = Secrets()
"""Those of this process."""


def read_secret(text: str) -> str:
    """The one secret in the *text* of a file, which is kept from now on; empty where there is none.

    Raises:
        ValueError: it has several lines, or characters that no secret has.
    """
    secret = text.strip()
    SECRETS.keep(secret, *secret.splitlines())
    if not secret.isprintable():
        raise ValueError("it holds more than one line: write one secret into it, on one line")
    return secret


def _encoded_forms(secret: str) -> frozenset[str]:
    """The texts that *secret* may come back as, without white space."""
    if len(secret) < MIN_SECRET_CHARS:
        return frozenset()
    plain = {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
    }
    plain |= {form.replace("/", "\\/") for form in plain}
    plain |= {
        html.escape(secret),
        html.escape(secret, quote=False),
        html.escape(secret).replace("&#x27;", "&#39;"),
    }
    urls = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    urls |= {re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), form) for form in urls}
    octets = secret.encode("utf-8", "surrogateescape")
    coded = {
        form
        for form in _base64_forms(octets) | {octets.hex(), octets.hex().upper()}
        if len(form) >= _LONG_FORM_CHARS
    }
    squeezed = (_GAP.sub("", form) for form in plain | urls | coded)
    return frozenset(form for form in squeezed if len(form) >= MIN_SECRET_CHARS)


def _base64_forms(octets: bytes) -> set[str]:
    """Encode *octets* in base64 as they look at each of the three places in a group of bytes."""
    found = set()
    for before in range(3):
        coded = base64.b64encode(bytes(before) + octets).decode()
        whole = coded[(before * 8 + 5) // 6 : (before + len(octets)) * 8 // 6]
        found |= {whole, whole.replace("+", "-").replace("/", "_")}
    return found


def _remove_forms(text: str, squeezed: str, forms: Iterable[str]) -> str:
    """*text* without what of *forms* begins in it; *squeezed* is the text without white space."""
    at, begins, places = 0, [0], [0]
    for gap in _GAP.finditer(text):
        at += gap.start() - places[-1]
        begins.append(at)
        places.append(gap.end())
    hidden: list[tuple[int, int]] = []
    for form in forms:
        start = squeezed.find(form[:_PREFIX_CHARS])
        while start >= 0:
            end = start + _common_length(squeezed, start, form)
            hidden.append(
                (_original_position(start, begins, places), _original_position(end - 1, begins, places) + 1)
            )
            start = squeezed.find(form[:_PREFIX_CHARS], end)
    kept: list[str] = []
    done = 0
    for start, end in sorted(hidden):
        if start >= done:
            kept += [text[done:start], SECRET_PLACEHOLDER]
        done = max(done, end)
    return "".join([*kept, text[done:]])


def _common_length(text: str, start: int, form: str) -> int:
    """Return how many characters of *form* stand in *text* from *start* on."""
    low, high = min(_PREFIX_CHARS, len(form)), len(form)
    while low < high:
        half = (low + high + 1) // 2
        low, high = (half, high) if text.startswith(form[:half], start) else (low, half - 1)
    return low


def _original_position(squeezed_position: int, begins: list[int], positions: list[int]) -> int:
    stretch = bisect_right(begins, squeezed_position) - 1
    return positions[stretch] + squeezed_position - begins[stretch]


def sanitize(text: str, max_chars: int = MAX_REASON_CHARS) -> str:
    """*text* of somebody else as one line of at most *most* characters that may be shown to anybody.

    Secrets are taken out before it is cut: of one cut in two nobody would know the rest.
    """
    hidden = _JWT.sub(SECRET_PLACEHOLDER, SECRETS.hide(text[:MAX_SCANNED_CHARS]))
    if len(text) > MAX_SCANNED_CHARS:  # what was cut off there may have been the rest of a secret
        hidden = hidden[: MAX_SCANNED_CHARS // 2]
    line = hidden if hidden.isprintable() else " ".join(hidden.split())
    return escape_unprintable(line[:max_chars])


class Redactor:
    """Takes secrets out of finished lines.

    Args:
        secrets: their texts, besides those in :data:`SECRETS`.
        more: what else is done to a text, such as hiding private datasets.
    """

    def __init__(
        self, secrets: Iterable[str] = (), redact_further: Callable[[str], str] | None = None
    ) -> None:
        self._own_secrets = Secrets()
        self._own_secrets.keep(*secrets)
        self._redact_further = redact_further

    def __call__(self, text: str) -> str:
        text = self._own_secrets.hide(SECRETS.hide(text))
        text = _JWT.sub(SECRET_PLACEHOLDER, text)
        text = _LABELLED_SECRET.sub(rf"\g<1>{SECRET_PLACEHOLDER}", text)
        return self._redact_further(text) if self._redact_further else text
