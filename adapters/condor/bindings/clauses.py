"""The parts of a ClassAd expression that must all be true, as text: no ClassAd library has a tree to look at.

What is written is what HTCondor prints: balanced brackets, ``"…"`` for strings, ``'…'`` for names.
"""

import re
from collections.abc import Callable, Iterator, Sequence

_PIECE = re.compile(
    r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|=\?=|=!=|\?:|&&|\|\||[A-Za-z_][A-Za-z0-9_]*|.', re.DOTALL
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_REFERENCE = re.compile(r"(?:MY\s*\.\s*)?([A-Za-z_][A-Za-z0-9_]*)\Z", re.IGNORECASE)
_LITERAL = re.compile(r'true|false|undefined|error|[-+0-9.eE]+|"(?:\\.|[^"\\])*"', re.IGNORECASE)
_WEAKER = {"||", "?", "?:"}
_DEEPEST = 20


def clauses(attribute: str, text_of: Callable[[str], str | None], whole: Sequence[str]) -> list[str]:
    """The clauses of *attribute* that ``&&`` joins, in their order.

    Args:
        attribute: an attribute of the ad, such as ``Requirements``.
        text_of: an attribute's expression, None where the ad has none.
        whole: attributes that are given as they are referred to, not as what they are made of.
    """
    kept = frozenset(name.lower() for name in whole)
    text = text_of(attribute)
    return ["undefined"] if text is None else list(_clauses(text, text_of, kept, {attribute.lower()}))


def names(text: str) -> set[str]:
    """Everything in *text* that may be the name of an attribute; functions and keywords too."""
    found = set()
    for piece in _PIECE.findall(text):
        if _NAME.match(piece):
            found.add(piece)
        elif piece.startswith("'") and _NAME.match(piece[1:-1]):
            found.add(piece[1:-1])
    return found


def split(text: str) -> list[str]:
    """The operands of the ``&&`` outside all brackets; *text* alone where something weaker stands there."""
    depth = 0
    parts = [""]
    for piece in _PIECE.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        if depth == 0 and piece in _WEAKER:
            return [text.strip()]
        if depth == 0 and piece == "&&":
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts]


def bare(text: str) -> str:
    """*text* without the parentheses around all of it."""
    text = text.strip()
    while text.startswith("(") and _closes_at(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _clauses(
    text: str, text_of: Callable[[str], str | None], kept: frozenset[str], seen: set[str]
) -> Iterator[str]:
    parts = split(bare(text))
    if len(parts) > 1:
        for part in parts:
            yield from _clauses(part, text_of, kept, seen)
        return
    clause = bare(text)
    reference = _REFERENCE.match(clause)
    name = reference[1].lower() if reference else ""
    if not reference or name in kept or name in seen or len(seen) > _DEEPEST:
        yield clause
        return
    behind = text_of(name)
    if behind is None or _LITERAL.fullmatch(behind):
        yield clause
        return
    yield from _clauses(behind, text_of, kept, seen | {name})


def _closes_at(text: str) -> int:
    """Where the bracket that opens *text* closes; -1 where it does not."""
    depth = place = 0
    for piece in _PIECE.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        if depth == 0:
            return place
        place += len(piece)
    return -1
