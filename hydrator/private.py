"""Datasets whose names must not be read in the pool: which they are, and the opaque names they go by.

Ads of jobs and slots are readable by everybody, and ClassAds cannot hash with
a key. So a private dataset enters the pool as ``private:`` and an HMAC of its
DID only. Pure: keys and patterns are values, nothing is read or kept here.

Which DIDs are private is decided without regard to letter case: ClassAds
compare names so, and a public dataset whose name differs from that of a
private one in letter case only would be taken for it.
"""

import hmac
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from .model import Did, Reading, Unseen

SCOPE = "private"
PLAIN_SCOPE = "private-in-plain"
"""The scope of what stands for a private DID that a job names in plain: no catalogue is asked about it."""
HEX_DIGITS = 32
"""Of an opaque name: 128 bits of the HMAC, more than anybody can try."""
LEAST_KEY_BYTES = 32
IN_PLAIN = (
    "is private and is never advertised under its own name:"
    " submit anew with `hydrator submit`, which exchanges it for an opaque name"
)

_OPAQUE = re.compile(rf"{SCOPE}:[0-9a-f]{{{HEX_DIGITS}}}\Z")
_CHARACTER = "[A-Za-z0-9._:/@=+~%-]"
_PIECE = re.compile(r"\[[!\]]?[^\]]*\]|.", re.DOTALL)


def is_opaque(did: str) -> bool:
    """Is this the opaque name of a private dataset, by its form?"""
    return _OPAQUE.match(did) is not None


def is_masked(did: str) -> bool:
    """Does this stand for a private DID that a job names in plain?"""
    return did.startswith(PLAIN_SCOPE + ":")


@dataclass(frozen=True, slots=True)
class Privacy:
    """Which datasets are private: DIDs that match one of *patterns* (``*``, ``?``, ``[…]``), in any case."""

    patterns: tuple[str, ...] = ()

    def hides(self, did: str) -> bool:
        """Is *did* the plain DID of a private dataset?"""
        if not self.patterns or is_opaque(did) or is_masked(did):
            return False
        lower = did.lower()
        return any(fnmatchcase(lower, pattern.lower()) for pattern in self.patterns)

    def hidden(self, dids: Iterable[Did]) -> list[Did]:
        """Those of *dids* that are private, sorted."""
        return sorted({did for did in dids if self.hides(did)})

    def searches(self) -> Sequence[str]:
        """Patterns that, where case counts, match every private dataset (and others)."""
        return sorted({_in_any_case(pattern) for pattern in self.patterns})

    def mentioned(self, text: str) -> list[str]:
        """The private DIDs that *text* has in plain, each once."""
        found = (
            _trimmed(match[0])[0] for look in self._looks(":", "._@+~-") for match in look.finditer(text)
        )
        return list(dict.fromkeys(word for word in found if self.hides(word)))

    def names_private(self, text: str) -> bool:
        """Does *text* have a private DID in plain?"""
        return bool(self.mentioned(text))

    def scrubbed(self, text: str, name: Callable[[Did], str] = lambda _: f"{SCOPE}:[hidden]") -> str:
        """*text* with *name* of every private DID instead of it, also of one written ``scope/…/name``."""

        def one(match: re.Match[str]) -> str:
            word, ending = _trimmed(match[0])
            return match[0] if is_opaque(word) or is_masked(word) else name(Did(word)) + ending

        for look in self._looks("[:/]", ""):
            text = look.sub(one, text)
        return text

    def _looks(self, colon: str, scope: str) -> list[re.Pattern[str]]:
        """What finds private DIDs in a text; patterns without two letters would find anything.

        One that follows a letter, a digit or a character of *scope* is the end of another name.
        """
        return [
            re.compile(rf"(?<![A-Za-z0-9{scope}]){_as_regex(pattern, colon)}", re.IGNORECASE)
            for pattern in self.patterns
            if len(re.findall(r"[A-Za-z0-9]", pattern)) > 1
        ]


@dataclass(frozen=True, slots=True)
class Veil:
    """The keys too: what private datasets are called in the pool.

    ``keys`` are 32 bytes at least each, the present one first: it names what
    is exchanged now; jobs that are queued may still have names by the others.
    """

    privacy: Privacy
    keys: tuple[bytes, ...]

    def opaque(self, did: Did) -> Did:
        """What a private *did* is exchanged for; a public one stays as it is."""
        return _name(self.keys[0], did) if self.privacy.hides(did) else did

    def names(self, did: Did) -> tuple[Did, ...]:
        """What a private *did* may be called by jobs that are queued: a name for each key."""
        return tuple(_name(key, did) for key in self.keys)

    def masked(self, did: Did) -> Did:
        """What stands for a private *did* that a job names in plain; it tells nobody its opaque name."""
        digest = hmac.digest(self.keys[0], b"in plain\0" + did.encode(), "sha256").hex()
        return Did(f"{PLAIN_SCOPE}:{digest[:HEX_DIGITS]}")

    def scrubbed(self, text: str, asked: Mapping[Did, Did] | None = None) -> str:
        """*text*, of somebody else, with opaque names of private datasets instead of their DIDs.

        *asked* has, by plain DID, the opaque names of datasets that the text
        may be about: of those the name without its scope is hidden too.
        """
        for plain, opaque in sorted((asked or {}).items(), key=lambda item: -len(item[0])):
            name = plain.partition(":")[2]
            for word in (plain, name) if len(name) > 2 else (plain,):
                text = re.sub(
                    rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", opaque, text, flags=re.IGNORECASE
                )
        return self.privacy.scrubbed(text, lambda did: _name(self.keys[0], did))


def _name(key: bytes, did: Did) -> Did:
    return Did(f"{SCOPE}:{hmac.digest(key, did.encode(), 'sha256').hex()[:HEX_DIGITS]}")


def _trimmed(word: str) -> tuple[str, str]:
    """A DID found in a text, and what ends the sentence behind it."""
    bare = word.rstrip(".:")
    return re.sub("%3A", ":", bare, flags=re.IGNORECASE), word[len(bare) :]


def _as_regex(pattern: str, colon: str) -> str:
    """The *pattern* as a regular expression on the characters of DIDs; *colon* stands for its colon."""
    special = {"*": f"{_CHARACTER}*", "?": _CHARACTER, ":": f"(?:{colon}|%3A)"}
    return "".join(
        special.get(piece) or (_CHARACTER if len(piece) > 1 else re.escape(piece))
        for piece in _PIECE.findall(pattern)
    )


def _in_any_case(pattern: str) -> str:
    """The *pattern* with every letter in both cases, and any character for what stands in brackets."""
    return "".join(
        "?" if len(piece) > 1 else f"[{piece.lower()}{piece.upper()}]" if piece.isalpha() else piece
        for piece in _PIECE.findall(pattern)
    )


def under(name: Did, reading: Reading) -> Reading:
    """The *reading* of a dataset, under another *name*."""
    if isinstance(reading, Unseen):
        return reading
    return replace(reading, replicas=tuple(replace(replica, did=name) for replica in reading.replicas))


def leaks(text: str, dids: Iterable[Did]) -> list[tuple[Did, str]]:
    """Each of *dids* that *text* shows, also by its name alone, with the line; comments do not count."""
    found = []
    for did in sorted(set(dids)):
        name = did.partition(":")[2].rstrip("/")
        words = [word for word in (did, name, name.rpartition("/")[2]) if len(word) > 2]
        look = re.compile(
            rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, words))})(?![A-Za-z0-9])", re.IGNORECASE
        )
        lines = (line.strip() for line in text.splitlines())
        found += [(did, line) for line in lines if not line.startswith("#") and look.search(line)][:1]
    return found


def named(dids: Collection[Did]) -> str:
    """A few of *dids* for the eyes of their owner."""
    some = ", ".join(sorted(dids)[:3])
    return some + (f" and {len(dids) - 3} more" if len(dids) > 3 else "")
