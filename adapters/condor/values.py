"""What the bindings' values are: their `undefined` and `error` are members of an enumeration of integers."""

import re
from typing import Any, TypeGuard


def plain(value: object) -> TypeGuard[str | int | float | bool]:
    """Is this a text, a number or a truth value, and none of the two that Python takes for integers?"""
    return isinstance(value, (str, float, bool)) or type(value) is int


def unparsed(ad: Any, attribute: str) -> str:  # noqa: ANN401  (the bindings have no types)
    """The text of an expression on one line; in ClassAd text a line break never stands inside a string."""
    return re.sub(r"\s*\n\s*", " ", str(ad.lookup(attribute))).strip()
