"""What the bindings' values are: their `undefined` and `error` are members of an enumeration of integers."""

from typing import TypeGuard


def plain(value: object) -> TypeGuard[str | int | float | bool]:
    """Is this a text, a number or a truth value, and none of the two that Python takes for integers?"""
    return isinstance(value, (str, float, bool)) or type(value) is int
