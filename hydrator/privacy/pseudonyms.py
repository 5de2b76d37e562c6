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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hydrator.domain.model import Did, Reading, Unseen
from hydrator.domain.text import shorten_list

from .globs import CharacterClass, Glob, GlobToken, compile_glob, matches_any, tokenize

SCOPE = "private"
MASK_SCOPE = "private-in-plain"
"""The scope of what stands for a private DID that a job names in plain: no catalogue is asked about it."""
HEX_DIGITS = 32
"""Of an opaque name: 128 bits of the HMAC, more than anybody can try."""
MIN_KEY_BYTES = 32
IN_PLAIN_REASON = (
    "is private and is never advertised under its own name:"
    " submit anew with `hydrator submit`, which exchanges it for an opaque name"
)

_PSEUDONYM = re.compile(rf"{SCOPE}:[0-9a-f]{{{HEX_DIGITS}}}\Z")
_OWN_NAME = re.compile(rf"{SCOPE}(?:-in-plain)?:[0-9a-f]{{{HEX_DIGITS}}}[.:]*\Z")
_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/@=+~%-"
_DID_CHARACTERS = re.compile(rf"[{_CHARACTERS}]+")
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_MAX_DECODINGS = 2
"""How often a text may have been percent-encoded: a URL inside another is so twice."""
_NOT_BEFORE_DID = "._@+~-"
"""A DID does not begin behind these: they belong to a longer scope."""
HIDDEN_DID = f"{SCOPE}:[hidden]"
"""What stands for a private DID in a text of somebody else, whichever it is."""


def is_opaque(did: str) -> bool:
    """Is this the opaque name of a private dataset, by its form?"""
    return _PSEUDONYM.match(did) is not None


def is_masked(did: str) -> bool:
    """Does this stand for a private DID that a job names in plain?"""
    return did.startswith(MASK_SCOPE + ":")


@dataclass(frozen=True, slots=True)
class Privacy:
    """Which datasets are private: DIDs that match one of *patterns* (``*``, ``?``, ``[…]``), in any case."""

    patterns: tuple[str, ...] = ()

    def is_private(self, did: str) -> bool:
        """Is *did* the plain DID of a private dataset?"""
        if not self.patterns or is_opaque(did) or is_masked(did):
            return False
        return matches_any(did.lower(), [pattern.lower() for pattern in self.patterns])

    def select_private(self, dids: Iterable[Did]) -> list[Did]:
        """Those of *dids* that are private, sorted."""
        return sorted({did for did in dids if self.is_private(did)})

    def search_patterns(self) -> Sequence[str]:
        """Patterns that, where case counts, match every private dataset (and others)."""
        return sorted({_case_insensitive_pattern(pattern) for pattern in self.patterns})

    def find_mentions(self, text: str) -> list[str]:
        """The private DIDs that *text* has in plain, each once."""
        found = [
            _trim_punctuation(run.decoded_text[start:end])
            for run in _stretches(text)
            for look in self._compile_globs()
            for start, end in _matches(look, run.decoded_text.lower(), _NOT_BEFORE_DID)
        ]
        return list(dict.fromkeys(word for word in found if self.is_private(word)))

    def has_private_did(self, text: str) -> bool:
        """Does *text* have a private DID in plain?"""
        return bool(self.find_mentions(text))

    def redact(self, text: str) -> str:
        """*text* with :data:`HIDDEN_DID` for every private DID, also of one written ``scope/…/name``.

        What follows a private DID without a space is hidden with it. The time this takes grows
        with the length of *text* and no faster, whatever it holds.
        """
        looks = self._compile_globs("/")
        if not looks:
            return text
        kept: list[str] = []
        done = 0
        for run in _stretches(text):
            folded = run.decoded_text.lower().replace(":", "/")
            starts = (
                start
                for look in looks
                for start in [_first_private_did(look, run, folded)]
                if start is not None
            )
            first = min(starts, default=None)
            if first is not None:
                kept += [text[done : run.position_in_text(first)], HIDDEN_DID]
                done = run.position_in_text(max(first, len(_trim_punctuation(run.decoded_text))))
        return "".join([*kept, text[done:]])

    def _compile_globs(self, colon: str = ":") -> list[Glob]:
        """Return what finds private DIDs in a text; patterns without two letters would find anything."""
        return [
            compile_glob(pattern.lower().replace(":", colon))
            for pattern in self.patterns
            if sum(letter.isascii() and letter.isalnum() for letter in pattern) > 1
        ]


@dataclass(frozen=True, slots=True)
class _TextStretch:
    """A stretch of a text in characters of DIDs: *plain* is what it says where it is percent-encoded.

    It begins at *begin* of the text; *places* has where in the stretch each character of *plain*
    begins, and its end; None where that is the same place.
    """

    offset: int
    decoded_text: str
    positions: Sequence[int] | None

    def position_in_text(self, index: int) -> int:
        """Return where in the text the character *at* of ``plain`` begins."""
        return self.offset + (index if self.positions is None else self.positions[index])


def _stretches(text: str) -> Iterator[_TextStretch]:
    """Every stretch of *text* that DIDs may be in."""
    for found in _DID_CHARACTERS.finditer(text):
        plain, places = found[0], None
        for _ in range(_MAX_DECODINGS):
            if "%" not in plain:
                break
            plain, places = _decode_percent(plain, places)
        yield _TextStretch(found.start(), plain, places)


def _decode_percent(text: str, positions: Sequence[int] | None) -> tuple[str, Sequence[int]]:
    """*text* with the characters that its ``%XX`` stand for, and where each was before."""
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
    """Return where *look* matches in *text*: from a begin of a name, as far as the name may go.

    The first place where the pattern's first part stands will do: what follows a later one also
    follows this. So each part is looked for once, and nothing is tried twice.
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
    """The first place of *text* from *start* where a name may begin that *look* matches; -1 for none."""
    first = pattern.segments[0]
    while True:
        start = first.find(text, start, len(text))
        if start <= 0 or not (text[start - 1].isalnum() or text[start - 1] in not_before):
            return start
        start += 1


def _first_private_did(pattern: Glob, stretch: _TextStretch, lower_text: str) -> int | None:
    """Return where in *run* the private DID begins that *look* finds first."""
    for start, _ in _matches(pattern, lower_text, ""):
        if not _OWN_NAME.match(stretch.decoded_text, start):
            return start
    return None


@dataclass(frozen=True, slots=True)
class Pseudonymizer:
    """The keys too: what private datasets are called in the pool.

    ``keys`` are 32 bytes at least each, the present one first: it names what
    is exchanged now; jobs that are queued may still have names by the others.
    """

    privacy: Privacy
    keys: tuple[bytes, ...]

    def pseudonym(self, did: Did) -> Did:
        """What a private *did* is exchanged for; a public one stays as it is."""
        return _pseudonym(self.keys[0], did) if self.privacy.is_private(did) else did

    def pseudonyms(self, did: Did) -> tuple[Did, ...]:
        """What a private *did* may be called by jobs that are queued: a name for each key."""
        return tuple(_pseudonym(key, did) for key in self.keys)

    def mask(self, did: Did) -> Did:
        """What stands for a private *did* that a job names in plain; it tells nobody its opaque name."""
        digest = hmac.digest(self.keys[0], b"in plain\0" + did.encode(), "sha256").hex()
        return Did(f"{MASK_SCOPE}:{digest[:HEX_DIGITS]}")

    def redact(self, text: str, pseudonym_by_did: Mapping[Did, Did] | None = None) -> str:
        """*text*, of somebody else, without the names of private datasets.

        *asked* has, by plain DID, the opaque names of the datasets that were asked about: their DIDs,
        and their names without a scope, become these. Any other private DID becomes :data:`HIDDEN_DID`:
        who can put a guess into a text must not get the opaque name of it.
        """
        return self.privacy.redact(_replace_names(text, pseudonym_by_did) if pseudonym_by_did else text)


def _replace_names(text: str, pseudonym_by_did: Mapping[Did, Did]) -> str:
    """*text* with the names that *asked* has for the DIDs and bare names in it."""
    names: dict[str, Did] = {}
    for plain, opaque in pseudonym_by_did.items():
        bare = plain.partition(":")[2].lower()
        names |= {word: opaque for word in (plain.lower(), bare) if len(word) > 2}
    by_begin: dict[str, set[int]] = {}
    for word in names:
        by_begin.setdefault(word[0], set()).add(len(word))
    lower = text.lower() if text.isascii() else "".join(map(_lower_ascii, text))
    kept: list[str] = []
    done = at = 0
    while at < len(text):
        size = _longest_name_length(lower, at, by_begin.get(lower[at], ()), names)
        if size:
            kept += [text[done:at], names[lower[at : at + size]]]
            done = at + size
        at += size or 1
    return "".join([*kept, text[done:]])


def _lower_ascii(letter: str) -> str:
    return letter.lower() if letter.isascii() else letter


def _longest_name_length(
    lower_text: str, position: int, sizes: Collection[int], names: Mapping[str, Did]
) -> int:
    """Return how long the longest of *names* is that stands alone in *lower* at this place; 0 for none."""
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
    """The begin of *text*, at most *most* characters: a name that would be cut is left out as a whole.

    Half a name is none that a pattern finds.
    """
    if len(text) <= max_chars:
        return text
    return text[:max_chars].rstrip(_CHARACTERS) + "…"


def _trim_punctuation(word: str) -> str:
    """A DID found in a text, without what ends the sentence behind it."""
    return word.rstrip(".:")


def _case_insensitive_pattern(pattern: str) -> str:
    """The *pattern* with every letter in both cases, and any character for what stands in brackets."""
    return "".join(map(_case_insensitive_token, tokenize(pattern)))


def _case_insensitive_token(token: GlobToken | None) -> str:
    if token is None:
        return "*"
    if isinstance(token, CharacterClass):
        return "?"
    if token == "[":
        return "[[]"
    return f"[{token.lower()}{token.upper()}]" if token.isalpha() else token


def with_did(name: Did, reading: Reading) -> Reading:
    """The *reading* of a dataset, under another *name*."""
    if isinstance(reading, Unseen):
        return reading
    return replace(reading, replicas=tuple(replace(replica, did=name) for replica in reading.replicas))


def find_leaks(text: str, dids: Iterable[Did]) -> list[tuple[Did, str]]:
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


def summarize_dids(dids: Collection[Did]) -> str:
    """A few of *dids* for the eyes of their owner."""
    return shorten_list(sorted(dids))
