"""Look-up of a name in the entries and patterns of [submit]. Toil's batch system uses it too.

Toil's leader imports this module without any library of ours, so the module needs only the standard library.
"""

import re
from collections.abc import Mapping, Sequence

CompiledPattern = tuple[re.Pattern[str], str]
"""The regular expression of a name, and the template of its DID."""


def compile_pattern(match: str, template: str) -> CompiledPattern:
    """Compile one of [submit].patterns.

    Raises:
        ValueError: *match* is not a regular expression, or *template* refers to a group that it lacks.
    """
    try:
        compiled = re.compile(match)
    except re.error as error:
        raise ValueError(f"match: not a regular expression: {error}") from None
    try:
        re.compile(f"(?:{match})|").match("").expand(template)  # type: ignore[union-attr]
    except (re.error, IndexError) as error:
        raise ValueError(f"did: {error}; write a group as \\1 or \\g<name>") from None
    return compiled, template


def look_up_configured(
    name: str, table: Mapping[str, str], patterns: Sequence[CompiledPattern]
) -> str | None:
    """Return the DID of *name*, or of a path, by an entry of *table*, else by the first pattern that matches.

    The keys of *table* have no slash at their end.
    """
    path, base = name.rstrip("/"), base_name(name)
    for key in (path, base, strip_tar(base)):
        if key in table:
            return table[key]
    for pattern, template in patterns:
        if match := pattern.fullmatch(base) or pattern.fullmatch(path):
            return match.expand(template)
    return None


def base_name(name: str) -> str:
    """Return the last part of a path or of a dataset's name, without a trailing slash."""
    return name.rstrip("/").rpartition("/")[2]


def strip_tar(base: str) -> str:
    return base.removesuffix(".tar")
