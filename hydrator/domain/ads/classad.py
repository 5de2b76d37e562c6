"""ClassAd texts: literals. This module is pure: no socket, no clock."""

from collections.abc import Iterable


def string_literal(text: str) -> str:
    r"""Return *text* as a ClassAd string: ``a"b`` becomes ``"a\"b"``."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def classad_string(text: str) -> str:
    """Return *text* as a ClassAd string on one line: a blank replaces each unprintable character."""
    return string_literal("".join(letter if letter.isprintable() else " " for letter in text))


def list_literal(literals: Iterable[str], separator: str = ",") -> str:
    """Return the ClassAd list of *literals*, such as ``{"lofar:L1","lofar:L2"}``."""
    return "{" + separator.join(literals) + "}"


def nested_ad_literal(entries: Iterable[tuple[str, str]]) -> str:
    """Return the nested ad of *entries* (name, literal), such as ``['lofar:L1'="STAGING"]``.

    The names are in single quotes, in which no character of a DID needs an escape.
    """
    return "[" + ";".join(f"'{name}'={literal}" for name, literal in entries) + "]"


def escape_macros(text: str) -> str:
    """Return *text* with each ``$`` escaped, so that a submit file expands no macro in it."""
    return text.replace("$", "$(DOLLAR)")
