"""Glob patterns that no text can make slow: ``*``, ``?`` and ``[…]``, with the meaning of :mod:`fnmatch`.

The code splits a pattern at its stars, and searches each segment after the end of the previous segment. It
never backtracks. So the time is at most proportional to the length of the text times the length of the
pattern.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class CharacterClass:
    """A set of characters: all in *ranges*, or with *is_negated* all that are not in *ranges*."""

    ranges: tuple[tuple[str, str], ...] = ()
    is_negated: bool = True

    def matches(self, letter: str) -> bool:
        """Return True if *letter* is in the set."""
        return any(low <= letter <= high for low, high in self.ranges) is not self.is_negated


ANY_CHARACTER = CharacterClass()
GlobToken = str | CharacterClass
"""A plain character, or a set of characters."""


@dataclass(frozen=True, slots=True)
class GlobSegment:
    """The part of a pattern between two stars; *literal* is its text if all tokens are plain characters."""

    tokens: tuple[GlobToken, ...]
    literal: str | None

    @classmethod
    def from_tokens(cls, tokens: Sequence[GlobToken]) -> "GlobSegment":
        """Build the segment that consists of *tokens*."""
        letters = [token for token in tokens if isinstance(token, str)]
        return cls(tuple(tokens), "".join(letters) if len(letters) == len(tokens) else None)

    def __len__(self) -> int:
        return len(self.tokens)

    def matches_at(self, text: str, position: int) -> bool:
        """Return True if the segment matches *text* at *position*."""
        if self.literal is not None:
            return text.startswith(self.literal, position)
        if position < 0 or position + len(self.tokens) > len(text):
            return False
        return all(
            token == letter if isinstance(token, str) else token.matches(letter)
            for token, letter in zip(self.tokens, text[position : position + len(self.tokens)], strict=True)
        )

    def find(self, text: str, start: int, end: int) -> int:
        """Return the first position of a match between *start* and *end*; -1 if there is none."""
        if self.literal is not None:
            return text.find(self.literal, start, end)
        places = range(start, end - len(self.tokens) + 1)
        return next((place for place in places if self.matches_at(text, place)), -1)


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern that :func:`compile_glob` built. Matches are case-sensitive."""

    segments: tuple[GlobSegment, ...]

    def matches(self, text: str) -> bool:
        """Return True if the pattern matches all of *text*."""
        first, last = self.segments[0], self.segments[-1]
        if len(self.segments) == 1:
            return len(text) == len(first) and first.matches_at(text, 0)
        end = len(text) - len(last)
        if end < len(first) or not first.matches_at(text, 0) or not last.matches_at(text, end):
            return False
        return self._match_segments(text, len(first), end, self.segments[1:-1]) >= 0

    def find_end(self, text: str, start: int) -> int:
        """Return the end of the shortest match that begins at *start*; -1 if no match begins at *start*."""
        if not self.segments[0].matches_at(text, start):
            return -1
        return self._match_segments(text, start + len(self.segments[0]), len(text), self.segments[1:])

    @staticmethod
    def _match_segments(text: str, position: int, end: int, segments: Sequence[GlobSegment]) -> int:
        """Find *segments* one after another; return the end of the last segment; -1 if any is missing."""
        for part in segments:
            position = part.find(text, position, end)
            if position < 0:
                return -1
            position += len(part)
        return position


@lru_cache(maxsize=4096)
def compile_glob(pattern: str) -> Glob:
    """Parse *pattern*, for example ``lofar:L*_SB[0-9]*``."""
    parts: list[list[GlobToken]] = [[]]
    for token in tokenize(pattern):
        if token is None:
            parts.append([])
        else:
            parts[-1].append(token)
    return Glob(tuple(map(GlobSegment.from_tokens, parts)))


def tokenize(pattern: str) -> list[GlobToken | None]:
    """Split *pattern* into tokens; None is a star. A ``[`` without its ``]`` is a plain character."""
    tokens: list[GlobToken | None] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if character == "*":
            tokens.append(None)
        elif character == "?":
            tokens.append(ANY_CHARACTER)
        elif character == "[" and (end := _find_bracket_end(pattern, position)) > 0:
            tokens.append(_parse_character_class(pattern[position:end]))
            position = end + 1
        else:
            tokens.append(character)
    return tokens


def _find_bracket_end(pattern: str, position: int) -> int:
    """Return the position of the ``]`` that closes the ``[`` before *position*; -1 if there is none.

    A ``]`` directly after the ``[`` or ``[!`` is a character of the set, not the end.
    """
    if pattern.startswith("!", position):
        position += 1
    if pattern.startswith("]", position):
        position += 1
    return pattern.find("]", position)


def _parse_character_class(text: str) -> CharacterClass:
    negated = text.startswith("!")
    text = text.removeprefix("!")
    ranges = []
    place = 0
    while place < len(text):
        high = place + 2 if text.startswith("-", place + 1) and place + 2 < len(text) else place
        ranges.append((text[place], text[high]))
        place = high + 1
    return CharacterClass(tuple(ranges), negated)


def matches_any(text: str, patterns: Sequence[str]) -> bool:
    """Return True if one of *patterns* matches all of *text*. Matches are case-sensitive."""
    return any(compile_glob(pattern).matches(text) for pattern in patterns)
