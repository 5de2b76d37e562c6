"""Pseudonyms of private datasets, whose names must not be readable in the pool.

Everybody can read the ads of jobs and slots, and ClassAds have no keyed hash function. So the pool sees a
private dataset only as ``private:`` and an HMAC of its DID. This module is pure: callers pass keys and
patterns as values, and it reads and stores nothing.

Patterns ignore letter case, because ClassAds ignore letter case in names. Otherwise a public dataset could
be confused with a private dataset if their names differ in letter case only.
"""

import hmac
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hydrator.domain.model import Did, Reading, Unseen
from hydrator.domain.text import shorten_list

from .globs import CharacterClass, Glob, GlobToken, compile_glob, matches_any, tokenize

SCOPE = "private"
MASK_SCOPE = "private-in-plain"
"""The scope of a mask, the placeholder for a private DID that a job names by its real name.

The daemon does not query any catalogue for a mask.
"""
HEX_DIGITS = 32
"""Hexadecimal digits of a pseudonym: 128 bits of the HMAC, too many to guess."""
MIN_KEY_BYTES = 32
IN_PLAIN_REASON = (
    "is private and is never advertised under its own name:"
    " submit the job again with `hydrator submit`, which replaces the name by a pseudonym"
)

_PSEUDONYM = re.compile(rf"{SCOPE}:[0-9a-f]{{{HEX_DIGITS}}}\Z")
_OWN_NAME = re.compile(rf"{SCOPE}(?:-in-plain)?:[0-9a-f]{{{HEX_DIGITS}}}[.:]*\Z")
_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/@=+~%-"
_DID_CHARACTERS = re.compile(rf"[{_CHARACTERS}]+")
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_MAX_DECODINGS = 2
"""Decode percent-encoding this many times, because a URL inside a URL is encoded twice."""
_NOT_BEFORE_DID = "._@+~-"
"""Characters after which no DID begins, because the text before belongs to the scope of a longer DID."""
HIDDEN_DID = f"{SCOPE}:[hidden]"
"""The replacement of every private DID in an external text, such as an error of a catalogue."""


def is_opaque(did: str) -> bool:
    """Return True if *did* has the form of a pseudonym."""
    return _PSEUDONYM.match(did) is not None


def is_masked(did: str) -> bool:
    """Return True if *did* is a mask.

    If a job names a private dataset by its real name, the daemon uses a mask instead of this name.
    """
    return did.startswith(MASK_SCOPE + ":")


@dataclass(frozen=True, slots=True)
class Privacy:
    """The private datasets: DIDs that match one of *patterns* (``*``, ``?``, ``[…]``), in any letter case."""

    patterns: tuple[str, ...] = ()

    def is_private(self, did: str) -> bool:
        """Return True if *did* is the real DID of a private dataset."""
        if not self.patterns or is_opaque(did) or is_masked(did):
            return False
        return matches_any(did.lower(), [pattern.lower() for pattern in self.patterns])

    def select_private(self, dids: Iterable[Did]) -> list[Did]:
        """Return those of *dids* that are private, sorted."""
        return sorted({did for did in dids if self.is_private(did)})

    def search_patterns(self) -> Sequence[str]:
        """Return patterns that match every private dataset in a case-sensitive search.

        The patterns may match public datasets too.
        """
        return sorted({_case_insensitive_pattern(pattern) for pattern in self.patterns})

    def find_mentions(self, text: str) -> list[str]:
        """Return the real names of private DIDs that are in *text*, without duplicates."""
        mentions = [
            _trim_punctuation(stretch.decoded_text[start:end])
            for stretch in _stretches(text)
            for glob in self._compile_globs()
            for start, end in _matches(glob, stretch.decoded_text.lower(), _NOT_BEFORE_DID)
        ]
        return list(dict.fromkeys(word for word in mentions if self.is_private(word)))

    def has_private_did(self, text: str) -> bool:
        """Return True if *text* has the real name of a private DID."""
        return bool(self.find_mentions(text))

    def redact(self, text: str) -> str:
        """Replace every private DID in *text* by :data:`HIDDEN_DID`, even a DID written ``scope/…/name``.

        Characters that follow a private DID without a space are hidden too. The time is proportional to
        the length of *text*, for every text.
        """
        globs = self._compile_globs("/")
        if not globs:
            return text
        parts: list[str] = []
        end = 0
        for stretch in _stretches(text):
            lower_text = stretch.decoded_text.lower().replace(":", "/")
            starts = (
                start
                for glob in globs
                for start in [_first_private_did(glob, stretch, lower_text)]
                if start is not None
            )
            first = min(starts, default=None)
            if first is not None:
                parts += [text[end : stretch.position_in_text(first)], HIDDEN_DID]
                end = stretch.position_in_text(max(first, len(_trim_punctuation(stretch.decoded_text))))
        return "".join([*parts, text[end:]])

    def _compile_globs(self, colon: str = ":") -> list[Glob]:
        """Compile the patterns for a search in a text.

        Omit patterns with fewer than two letters or digits, which would match almost any text.
        """
        return [
            compile_glob(pattern.lower().replace(":", colon))
            for pattern in self.patterns
            if sum(letter.isascii() and letter.isalnum() for letter in pattern) > 1
        ]


@dataclass(frozen=True, slots=True)
class _TextStretch:
    """A part of a text that has only characters that a DID may have.

    The part begins at *offset* of the text; *decoded_text* is the part without percent-encoding.
    *positions* has, for each character of *decoded_text* and for its end, the position in the encoded part.
    *positions* is None if the part has no percent-encoding.
    """

    offset: int
    decoded_text: str
    positions: Sequence[int] | None

    def position_in_text(self, index: int) -> int:
        """Return the position in the whole text of character *index* of ``decoded_text``."""
        return self.offset + (index if self.positions is None else self.positions[index])


def _stretches(text: str) -> Iterator[_TextStretch]:
    """Yield every part of *text* that may contain a DID."""
    for match in _DID_CHARACTERS.finditer(text):
        plain, positions = match[0], None
        for _ in range(_MAX_DECODINGS):
            if "%" not in plain:
                break
            plain, positions = _decode_percent(plain, positions)
        yield _TextStretch(match.start(), plain, positions)


def _decode_percent(text: str, positions: Sequence[int] | None) -> tuple[str, Sequence[int]]:
    """Decode each ``%XX`` in *text*; return the result and each character's position before the decoding."""
    letters: list[str] = []
    begins: list[int] = []
    at = 0
    while at < len(text):
        code = _PERCENT.match(text, at)
        letter = chr(int(code[0][1:], 16)) if code else text[at]
        letters.append(letter if letter.isascii() else "%")
        begins.append(at)
        at = code.end() if code else at + 1
    begins.append(len(text))
    return "".join(letters), begins if positions is None else [positions[begin] for begin in begins]


def _matches(pattern: Glob, text: str, not_before: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each match of *pattern* in *text*; a match begins where a name may begin.

    For each match, try only the first position where the pattern's first segment matches. If the other
    segments match after a later position, they also match after this one. So no segment is searched twice.
    """
    start = 0
    while start <= len(text):
        first = _next_begin(pattern, text, start, not_before)
        end = pattern.find_end(text, first) if first >= 0 else -1
        if end < 0:
            return
        end = end if len(pattern.segments[-1]) else len(text)
        yield first, end
        start = max(end, first + 1)


def _next_begin(pattern: Glob, text: str, start: int, not_before: str) -> int:
    """Return the first position from *start* where a name may begin and the first segment matches, or -1."""
    first = pattern.segments[0]
    while True:
        start = first.find(text, start, len(text))
        if start <= 0 or not (text[start - 1].isalnum() or text[start - 1] in not_before):
            return start
        start += 1


def _first_private_did(pattern: Glob, stretch: _TextStretch, lower_text: str) -> int | None:
    """Return the begin of the first private DID in *stretch* that *pattern* matches; None without a match."""
    for start, _ in _matches(pattern, lower_text, ""):
        if not _OWN_NAME.match(stretch.decoded_text, start):
            return start
    return None


@dataclass(frozen=True, slots=True)
class Pseudonymizer:
    """The private datasets and the keys of their pseudonyms.

    Each of ``keys`` has at least 32 bytes. The first key makes new pseudonyms. The other keys are older:
    queued jobs may still have pseudonyms that were made with them.
    """

    privacy: Privacy
    keys: tuple[bytes, ...]

    def pseudonym(self, did: Did) -> Did:
        """Return the pseudonym of *did* if it is private; return a public *did* unchanged."""
        return _pseudonym(self.keys[0], did) if self.privacy.is_private(did) else did

    def pseudonyms(self, did: Did) -> tuple[Did, ...]:
        """Return all pseudonyms that queued jobs may have for a private *did*: one for each key."""
        return tuple(_pseudonym(key, did) for key in self.keys)

    def mask(self, did: Did) -> Did:
        """Return the placeholder for a private *did* that a job names by its real name.

        The placeholder does not reveal the pseudonym of *did*.
        """
        digest = hmac.digest(self.keys[0], b"in plain\0" + did.encode(), "sha256").hex()
        return Did(f"{MASK_SCOPE}:{digest[:HEX_DIGITS]}")

    def redact(self, text: str, pseudonym_by_did: Mapping[Did, Did] | None = None) -> str:
        """Return *text* without the names of private datasets.

        *pseudonym_by_did* has the pseudonyms of the queried datasets. These pseudonyms replace the DIDs in
        the text, even a DID without its scope. Any other private DID becomes :data:`HIDDEN_DID`,
        because a user who guesses a DID must not get its pseudonym.
        """
        return self.privacy.redact(_replace_names(text, pseudonym_by_did) if pseudonym_by_did else text)


def _replace_names(text: str, pseudonym_by_did: Mapping[Did, Did]) -> str:
    """Replace each DID of *pseudonym_by_did*, with or without its scope, by its pseudonym."""
    names: dict[str, Did] = {}
    for plain, opaque in pseudonym_by_did.items():
        bare = plain.partition(":")[2].lower()
        names |= {word: opaque for word in (plain.lower(), bare) if len(word) > 2}
    by_begin: dict[str, set[int]] = {}
    for word in names:
        by_begin.setdefault(word[0], set()).add(len(word))
    lower = text.lower() if text.isascii() else "".join(map(_lower_ascii, text))
    parts: list[str] = []
    end = at = 0
    while at < len(text):
        size = _longest_name_length(lower, at, by_begin.get(lower[at], ()), names)
        if size:
            parts += [text[end:at], names[lower[at : at + size]]]
            end = at + size
        at += size or 1
    return "".join([*parts, text[end:]])


def _lower_ascii(letter: str) -> str:
    return letter.lower() if letter.isascii() else letter


def _longest_name_length(
    lower_text: str, position: int, sizes: Collection[int], names: Mapping[str, Did]
) -> int:
    """Return the length of the longest of *names* that is a whole word at *position*; 0 for none."""
    if position and _is_letter(lower_text[position - 1]):
        return 0
    fitting = (
        size
        for size in sizes
        if lower_text[position : position + size] in names
        and not (position + size < len(lower_text) and _is_letter(lower_text[position + size]))
    )
    return max(fitting, default=0)


def _is_letter(letter: str) -> bool:
    return letter.isascii() and letter.isalnum()


def _pseudonym(key: bytes, did: Did) -> Did:
    return Did(f"{SCOPE}:{hmac.digest(key, did.encode(), 'sha256').hex()[:HEX_DIGITS]}")


def truncate_at_name(text: str, max_chars: int) -> str:
    """Return the first *max_chars* characters of *text*, without a name that would be cut in two.

    Patterns match only whole names, so :meth:`Privacy.redact` would not hide half a private name.
    """
    if len(text) <= max_chars:
        return text
    return text[:max_chars].rstrip(_CHARACTERS) + "…"


def _trim_punctuation(word: str) -> str:
    """Return *word*, a DID found in a text, without the punctuation of the sentence at its end."""
    return word.rstrip(".:")


def _case_insensitive_pattern(pattern: str) -> str:
    """Return *pattern* with ``[aA]`` for every letter a, and ``?`` for every ``[…]``."""
    return "".join(map(_case_insensitive_token, tokenize(pattern)))


def _case_insensitive_token(glob_token: GlobToken | None) -> str:
    if glob_token is None:
        return "*"
    if isinstance(glob_token, CharacterClass):
        return "?"
    if glob_token == "[":  # noqa: S105 - not a password
        return "[[]"
    return f"[{glob_token.lower()}{glob_token.upper()}]" if glob_token.isalpha() else glob_token


def with_did(name: Did, reading: Reading) -> Reading:
    """Return *reading* with *name* as the DID of its replicas."""
    if isinstance(reading, Unseen):
        return reading
    return replace(reading, replicas=tuple(replace(replica, did=name) for replica in reading.replicas))


def find_leaks(text: str, dids: Iterable[Did]) -> list[tuple[Did, str]]:
    """Return each of *dids* that is in *text*, with or without its scope, and the first line with this DID.

    Ignore comment lines, which begin with ``#``.
    """
    leaks = []
    for did in sorted(set(dids)):
        name = did.partition(":")[2].rstrip("/")
        words = [word for word in (did, name, name.rpartition("/")[2]) if len(word) > 2]
        pattern = re.compile(
            rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, words))})(?![A-Za-z0-9])", re.IGNORECASE
        )
        lines = (line.strip() for line in text.splitlines())
        leaks += [(did, line) for line in lines if not line.startswith("#") and pattern.search(line)][:1]
    return leaks


def summarize_dids(dids: Collection[Did]) -> str:
    """Return a text with the first few of *dids* and the number of the others."""
    return shorten_list(sorted(dids))
