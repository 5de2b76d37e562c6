"""Split a ClassAd expression into its clauses, the operands of ``&&``.

No library returns the syntax tree of an expression, so this module parses the text.
The input is HTCondor's own output: balanced brackets, ``"…"`` for strings, ``'…'`` for names.
"""

import re
from collections.abc import Callable, Iterator, Sequence

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|=\?=|=!=|\?:|&&|\|\||[A-Za-z_][A-Za-z0-9_]*|.', re.DOTALL
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_REFERENCE = re.compile(r"(?:MY\s*\.\s*)?([A-Za-z_][A-Za-z0-9_]*)\Z", re.IGNORECASE)
_LITERAL = re.compile(r'true|false|undefined|error|[-+0-9.eE]+|"(?:\\.|[^"\\])*"', re.IGNORECASE)
_WEAKER_OPERATORS = {"||", "?", "?:"}
_MAX_DEPTH = 20


def split_into_clauses(
    attribute: str, text_of: Callable[[str], str | None], atomic_attributes: Sequence[str]
) -> list[str]:
    """Return the clauses of *attribute* that ``&&`` joins, in their order.

    Args:
        attribute: the name of an attribute of the ad, such as ``Requirements``.
        text_of: a function that returns the expression of an attribute; None if the ad does not have the
            attribute.
        atomic_attributes: attributes whose names stay in a clause; other names are replaced by their
            expressions.
    """
    atomic_names = frozenset(name.lower() for name in atomic_attributes)
    text = text_of(attribute)
    if text is None:
        return ["undefined"]
    return list(_expand_clauses(text, text_of, atomic_names, {attribute.lower()}))


def find_names(text: str) -> set[str]:
    """Return all words in *text* that may be attribute names; the result also has functions and keywords."""
    names = set()
    for piece in _TOKEN.findall(text):
        if _NAME.match(piece):
            names.add(piece)
        elif piece.startswith("'") and _NAME.match(piece[1:-1]):
            names.add(piece[1:-1])
    return names


def split_conjunction(text: str) -> list[str]:
    """Return the operands of ``&&`` outside brackets; if a weaker operator is there too, *text* itself."""
    depth = 0
    parts = [""]
    for piece in _TOKEN.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        if depth == 0 and piece in _WEAKER_OPERATORS:
            return [text.strip()]
        if depth == 0 and piece == "&&":
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts]


def strip_parentheses(text: str) -> str:
    """Remove the parentheses around all of *text*."""
    text = text.strip()
    while text.startswith("(") and _closing_index(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _expand_clauses(
    text: str, text_of: Callable[[str], str | None], atomic_names: frozenset[str], expanded_names: set[str]
) -> Iterator[str]:
    parts = split_conjunction(strip_parentheses(text))
    if len(parts) > 1:
        for part in parts:
            yield from _expand_clauses(part, text_of, atomic_names, expanded_names)
        return
    clause = strip_parentheses(text)
    reference = _REFERENCE.match(clause)
    name = reference[1].lower() if reference else ""
    if not reference or name in atomic_names or name in expanded_names or len(expanded_names) > _MAX_DEPTH:
        yield clause
        return
    expression = text_of(name)
    if expression is None or _LITERAL.fullmatch(expression):
        yield clause
        return
    yield from _expand_clauses(expression, text_of, atomic_names, expanded_names | {name})


def _closing_index(text: str) -> int:
    """Return the index of the bracket that closes the first bracket of *text*; -1 if there is none."""
    depth = place = 0
    for piece in _TOKEN.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        if depth == 0:
            return place
        place += len(piece)
    return -1
