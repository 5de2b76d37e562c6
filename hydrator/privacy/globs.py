"""Glob patterns that no text can make slow: ``*``, ``?`` and ``[…]``, as :mod:`fnmatch` reads them.

A pattern is split at its stars; each part is looked for from where the one
before it ended. That is at most the length of the text times that of the
pattern, whatever either of them holds: nothing backtracks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character: any of *ranges*, or with *negated* any other."""

    ranges: tuple[tuple[str, str], ...] = ()
    negated: bool = True

    def has(self, letter: str) -> bool:
        """Does this stand for *letter*?"""
        return any(low <= letter <= high for low, high in self.ranges) is not self.negated


ANY = OneOf()
Token = str | OneOf
"""A character that stands for itself, or several that one stands for."""


@dataclass(frozen=True, slots=True)
class Part:
    """The tokens between two stars; *plain* is their text where each stands for itself."""

    tokens: tuple[Token, ...]
    plain: str | None

    @classmethod
    def of(cls, tokens: Sequence[Token]) -> "Part":
        """The part with these *tokens*."""
        letters = [token for token in tokens if isinstance(token, str)]
        return cls(tuple(tokens), "".join(letters) if len(letters) == len(tokens) else None)

    def __len__(self) -> int:
        return len(self.tokens)

    def at(self, text: str, place: int) -> bool:
        """Does it match *text* at *place*?"""
        if self.plain is not None:
            return text.startswith(self.plain, place)
        if place < 0 or place + len(self.tokens) > len(text):
            return False
        return all(
            token == letter if isinstance(token, str) else token.has(letter)
            for token, letter in zip(self.tokens, text[place : place + len(self.tokens)], strict=True)
        )

    def find(self, text: str, start: int, end: int) -> int:
        """The first place of *text* from *start* where it matches and ends by *end*; -1 for none."""
        if self.plain is not None:
            return text.find(self.plain, start, end)
        places = range(start, end - len(self.tokens) + 1)
        return next((place for place in places if self.at(text, place)), -1)


@dataclass(frozen=True, slots=True)
class Glob:
    """One pattern; build it with :func:`glob`. Letter case counts."""

    parts: tuple[Part, ...]

    def matches(self, text: str) -> bool:
        """Does the pattern match all of *text*?"""
        first, last = self.parts[0], self.parts[-1]
        if len(self.parts) == 1:
            return len(text) == len(first) and first.at(text, 0)
        end = len(text) - len(last)
        if end < len(first) or not first.at(text, 0) or not last.at(text, end):
            return False
        return self._middle(text, len(first), end, self.parts[1:-1]) >= 0

    def end_from(self, text: str, start: int) -> int:
        """The first place where a match ends that begins at *start*; -1 for none."""
        if not self.parts[0].at(text, start):
            return -1
        return self._middle(text, start + len(self.parts[0]), len(text), self.parts[1:])

    @staticmethod
    def _middle(text: str, place: int, end: int, parts: Sequence[Part]) -> int:
        """Return where the last of *parts* ends, each after the one before; -1 where one is missing."""
        for part in parts:
            place = part.find(text, place, end)
            if place < 0:
                return -1
            place += len(part)
        return place


@lru_cache(maxsize=4096)
def glob(pattern: str) -> Glob:
    """Read *pattern*."""
    parts: list[list[Token]] = [[]]
    for token in tokens(pattern):
        if token is None:
            parts.append([])
        else:
            parts[-1].append(token)
    return Glob(tuple(map(Part.of, parts)))


def tokens(pattern: str) -> list[Token | None]:
    """Split *pattern*; None stands for a star. A bracket that nothing closes stands for itself."""
    found: list[Token | None] = []
    place = 0
    while place < len(pattern):
        letter = pattern[place]
        place += 1
        if letter == "*":
            found.append(None)
        elif letter == "?":
            found.append(ANY)
        elif letter == "[" and (end := _closing(pattern, place)) > 0:
            found.append(_one_of(pattern[place:end]))
            place = end + 1
        else:
            found.append(letter)
    return found


def _closing(pattern: str, place: int) -> int:
    """Return where the bracket ends that opened before *place*; one right at its begin belongs to it."""
    if pattern.startswith("!", place):
        place += 1
    if pattern.startswith("]", place):
        place += 1
    return pattern.find("]", place)


def _one_of(text: str) -> OneOf:
    negated = text.startswith("!")
    text = text.removeprefix("!")
    ranges = []
    place = 0
    while place < len(text):
        high = place + 2 if text.startswith("-", place + 1) and place + 2 < len(text) else place
        ranges.append((text[place], text[high]))
        place = high + 1
    return OneOf(tuple(ranges), negated)


def matches_any(text: str, patterns: Sequence[str]) -> bool:
    """Does one of *patterns* match all of *text*? Letter case counts."""
    return any(glob(pattern).matches(text) for pattern in patterns)
