"""The second line of defence against secrets in logs: what is about to be written is looked through.

The first line is that nobody hands a secret to a log. This one knows the
secrets of the configuration by their text, and the usual dress of others: a
Bearer token, a JWT, ``password=``.
"""

import json
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote

SHOWN = "[secret]"
SHORTEST = 6
"""Characters of the shortest secret that is looked for: shorter ones are parts of ordinary words."""
_DRESSED = re.compile(
    r"(?i)\b((?:bearer|basic)\s+|(?:x-rucio-auth-token|x-rucio-password|authorization|password|passwd|pwd"
    r"|client_secret|access_token|refresh_token|token)[\"']?\s*[=:]\s*[\"']?(?:(?:bearer|basic)\s+)?)"
    r"([A-Za-z0-9._~+/=-]{6,})"
)
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*")


class Redactor:
    """Takes secrets out of texts.

    Args:
        secrets: their texts; each is looked for as it is, in JSON, in Python and in a URL.
        more: what else is done to a text, such as hiding private datasets.
    """

    def __init__(self, secrets: Iterable[str] = (), more: Callable[[str], str] | None = None) -> None:
        forms = {
            form
            for secret in secrets
            if len(secret) >= SHORTEST
            for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe=""))
        }
        longest_first = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        self._more = more

    def __call__(self, text: str) -> str:
        if self._known:
            text = self._known.sub(SHOWN, text)
        text = _JWT.sub(SHOWN, text)
        text = _DRESSED.sub(rf"\g<1>{SHOWN}", text)
        return self._more(text) if self._more else text
