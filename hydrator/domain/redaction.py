"""Redaction: make external texts safe to show: no secrets, one line, printable characters only.

Code that sends a secret to a server first adds the secret to :data:`SECRETS`. Every error of this project
removes these secrets from its reason in its constructor. So a secret that a server echoes is removed
before the text is cut, stored or shown. The log removes secrets once more. It also removes texts that
look like secrets: a Bearer token, a JWT, ``password=``.
"""

import base64
import json
import re
import threading
from collections import OrderedDict
from typing import Any, Final
from urllib.parse import quote, quote_plus

SECRET_PLACEHOLDER = "[secret]"  # noqa: S105 - no secret
MIN_SECRET_CHARS = 4
"""Minimum characters of a secret to hide. A shorter secret may be part of an ordinary word."""
MAX_REASON_CHARS: Final = 2000
"""Maximum characters of a reason; the rest is cut."""
MAX_SCANNED_CHARS: Final = 100_000
"""Maximum characters of an external text that :func:`sanitize` searches for secrets."""
_LONG_FORM_CHARS = 12
"""Minimum characters of a form (a secret as written or encoded) that is hidden also inside a word.

A shorter form is hidden only if it is a separate word.
"""
_PART = re.compile(r"[A-Za-z0-9+/=_~-]{16,}")
"""A word that is hidden if it has a part of a secret: servers shorten tokens in their messages."""
_WORD_ENDS = re.compile(r"(?:^|(?<=[+/=_~-]))(?=(.{16}))|(?=(.{16})(?:[+/=_~-]|$))")
"""The 16 characters after each beginning, and before each end, of what a word may have joined: tail=…."""
_MAX_SECRETS = 100
_LABELLED_SECRET = re.compile(
    r"(?i)(?<![\w./+@:-])/[\w./+@-]{1,400}: |"  # a file is no label: /etc/token: Permission denied
    r"\b((?:bearer|basic)\s+|(?:x-rucio-auth-token|x-rucio-password|authorization|password|passwd|pwd"
    r"|client_secret|access_token|refresh_token|token)[\"']?\s*[=:]\s*[\"']?(?:(?:bearer|basic)\s+)?)"
    r"([A-Za-z0-9._~+/=-]{6,})"
)
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){0,2}")


def escape_unprintable(text: str, keep: str = "") -> str:
    r"""Return *text* with an escape such as ``\x1b`` for every unprintable character that is not in *keep*.

    Control characters change a terminal. Unicode's direction characters reorder a text. Half a surrogate
    pair cannot be encoded.
    """
    if text.isprintable():
        return text
    letters = {letter for letter in set(text) if not letter.isprintable() and letter not in keep}
    return text.translate({ord(letter): letter.encode("unicode_escape").decode() for letter in letters})


def escape_unprintable_tree(value: Any, keep: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return *value*, a JSON value, with every text and key changed by :func:`escape_unprintable`."""
    if isinstance(value, str):
        return escape_unprintable(value, keep)
    if isinstance(value, list):
        return [escape_unprintable_tree(each, keep) for each in value]
    if isinstance(value, dict):
        return {
            escape_unprintable(key, keep): escape_unprintable_tree(each, keep) for key, each in value.items()
        }
    return value


class Secrets:
    """The secrets that this process sends to servers, and a method to hide them in texts; thread-safe.

    The object keeps only the last 100 secrets: a token that was renewed long ago is no longer valid.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forms: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._long_forms: tuple[str, ...] = ()
        self._short_forms: re.Pattern[str] | None = None
        self._parts: frozenset[str] = frozenset()

    def keep(self, *secrets: str | None) -> None:
        """Hide *secrets* from now on: plain, and encoded for a URL, in JSON and in base64."""
        new = [secret.strip() for secret in secrets if secret]
        with self._lock:
            is_known = all(secret in self._forms for secret in new)
            for secret in new:
                self._forms[secret] = self._forms.get(secret) or _encoded_forms(secret)
                self._forms.move_to_end(secret)
            if is_known:
                return
            while len(self._forms) > _MAX_SECRETS:
                self._forms.popitem(last=False)
            every = sorted({form for forms in self._forms.values() for form in forms}, key=len, reverse=True)
            self._long_forms = tuple(form for form in every if len(form) >= _LONG_FORM_CHARS)
            self._parts = frozenset(one[at : at + 16] for one in self._forms for at in range(len(one) - 15))
            either = "|".join(re.escape(form) for form in every if len(form) < _LONG_FORM_CHARS)
            self._short_forms = (
                re.compile(rf"(?<![A-Za-z0-9_])(?:{either})(?![A-Za-z0-9_])") if either else None
            )

    def forget(self) -> None:
        """Remove all secrets."""
        with self._lock:
            self._forms.clear()
            self._long_forms, self._short_forms, self._parts = (), None, frozenset()

    def hide(self, text: str) -> str:
        """Return *text* without the secrets, and without parts of them of 16 characters or more."""
        for form in self._long_forms:  # one pass of str.replace for each form: a long text costs little
            text = text.replace(form, SECRET_PLACEHOLDER)
        if self._parts:
            text = _PART.sub(lambda word: SECRET_PLACEHOLDER if self._has_part(word[0]) else word[0], text)
        return self._short_forms.sub(SECRET_PLACEHOLDER, text) if self._short_forms else text

    def _has_part(self, word: str) -> bool:
        return any((after or before) in self._parts for after, before in _WORD_ENDS.findall(word))


SECRETS = Secrets()
"""The secrets of this process."""


def read_secret(text: str) -> str:
    """Return the secret in *text*, the content of a file, and add the secret to :data:`SECRETS`.

    Return an empty text if the file has no secret.

    Raises:
        ValueError: *text* has several lines or unprintable characters.
    """
    secret = text.strip()
    SECRETS.keep(secret, *secret.splitlines())
    if not secret.isprintable():
        raise ValueError("the file has more than one line: write one secret into it, on one line")
    return secret


def _encoded_forms(secret: str) -> frozenset[str]:
    """Return the forms in which a server may return *secret*: plain, or encoded for JSON, a URL or base64."""
    if len(secret) < MIN_SECRET_CHARS:
        return frozenset()
    plain = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    plain.add(repr(secret)[1:-1])  # our own log on a terminal
    plain |= {form.replace("/", "\\/") for form in plain}
    urls = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    urls |= {re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), form) for form in urls}
    coded = _base64_forms(secret.encode("utf-8", "surrogateescape"))
    return frozenset(plain | urls | {form for form in coded if len(form) >= _LONG_FORM_CHARS})


def _base64_forms(octets: bytes) -> set[str]:
    """Return the base64 forms of *octets* for each of the three places where a group of 3 bytes may begin."""
    spellings = set()
    for before in range(3):
        coded = base64.b64encode(bytes(before) + octets).decode()
        whole = coded[(before * 8 + 5) // 6 : (before + len(octets)) * 8 // 6]
        spellings |= {whole, whole.replace("+", "-").replace("/", "_")}
    return spellings


def sanitize(text: str, max_chars: int = MAX_REASON_CHARS) -> str:
    """Return the external *text* as one line of at most *max_chars* characters that is safe to show.

    Remove the secrets first and cut the text then, because half a secret could not be recognized.
    """
    hidden = _JWT.sub(SECRET_PLACEHOLDER, SECRETS.hide(text[:MAX_SCANNED_CHARS]))
    if len(text) > MAX_SCANNED_CHARS:  # the cut may have split a secret: drop the end
        hidden = hidden[: MAX_SCANNED_CHARS // 2]
    line = hidden if hidden.isprintable() else " ".join(hidden.split())
    return escape_unprintable(line[:max_chars])


def redact(text: str) -> str:
    """Return *text*, complete lines of output, without the secrets in :data:`SECRETS` or labelled ones."""
    text = _JWT.sub(SECRET_PLACEHOLDER, SECRETS.hide(text))
    return _LABELLED_SECRET.sub(lambda found: found[1] + SECRET_PLACEHOLDER if found[1] else found[0], text)
