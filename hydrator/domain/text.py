"""Texts for people: format durations, counts and lists so that they fit on a line."""

import fnmatch
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote

from .untrusted import nearest_moment, nearest_span

if TYPE_CHECKING:  # workers and commands load this module without pydantic
    from pydantic import ValidationError

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
MAX_LISTED_ITEMS = 3
"""Maximum number of items that a list shows; after them comes the number of the other items."""
_MAX_CAUSES = 20
_OBJECT = re.compile(r"<[\w.]+ object at 0x[0-9a-f]+>(?:: )?")
_CALL = re.compile(r"\b[A-Z]\w*\((?:[^()]|\([^()]*\))*\)(?:: )?")
_SSL = re.compile(r"\[SSL: \w+\] | ?\(_ssl\.c:\d+\)")
_NOTATION = re.compile(r"[{\[]'|object at 0x|\b(?:None|NoneType|True|False)\b|Caused by")


def format_duration(seconds: float) -> str:
    """Return *seconds* in one or two units, such as ``3 h 5 min``; the largest unit is the day."""
    left = nearest_span(max(0, seconds))
    hours, rest = divmod(left.seconds, 3600)
    parts = [(left.days, "d"), (hours, "h"), (rest // 60, "min"), (rest % 60, "s")]
    return " ".join([f"{value} {unit}" for value, unit in parts if value][:2]) or "0 s"


def format_age(moment: datetime, now: datetime) -> str:
    """Return how long ago *moment* was; "0 s ago" if it comes from a clock that is ahead of *now*."""
    return f"{format_duration((now - moment).total_seconds())} ago"


def format_time(unix_seconds: float, now: datetime) -> str:
    """Return the time of *unix_seconds* in UTC, with the date unless this is the date of *now*."""
    moment = nearest_moment(unix_seconds)
    return f"{moment:%H:%M} UTC" if moment.date() == now.date() else f"{moment:%Y-%m-%d %H:%M} UTC"


def format_bytes(number: float) -> str:
    """Return a number of bytes with three significant digits and a unit."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 999.5:  # else it is rounded to 1000
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.4g} PB"


def format_address(host: str, port: int | str) -> str:
    """Return ``host:port``, with brackets around an IPv6 address: ``[::1]:443``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def format_count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def format_percent(fraction: float | None) -> str:
    return "" if fraction is None else f" {int(fraction * 100 + 1e-9)} %"


def comma_separated(items: Iterable[str]) -> str:
    return ", ".join(items)


def shorten_list(items: Sequence[str], separator: str = ", ", *, limit: int = MAX_LISTED_ITEMS) -> str:
    """Join the first *limit* of *items* and add the number of the other items: ``a, b, c, and 2 more``."""
    more = [f"and {len(items) - limit} more"] if len(items) > limit else []
    return separator.join([*items[:limit], *more])


def did_you_mean(names: Sequence[str]) -> str:
    """Return the question whether one of the similar *names* is meant; empty without names.

    >>> did_you_mean(["x:L1", "x:L2"])
    'did you mean x:L1 or x:L2?'
    """
    return f"did you mean {' or '.join(names)}?" if names else ""


def deduplicate(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def group_pairs(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key in *pairs*; keys and values keep their order."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def shorten(text: str, max_chars: int = 120) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def reason_of(error: BaseException) -> str:
    """Return the reason of *error* in words, without names, addresses or representations of Python objects.

    Prefer the text of the operating system, such as ``Connection refused``, if the error has such a text.
    """
    words = [each.strerror for each in _causes(error) if isinstance(each, OSError) and each.strerror]
    text = words[-1] if words else f"{error}"
    if isinstance(error, KeyError):
        text = f"{error.args[0]} is missing" if error.args else ""
    plain = " ".join(_SSL.sub("", _CALL.sub("", _OBJECT.sub("", text))).split()).strip(" :")
    if plain and not _NOTATION.search(plain):
        return plain
    kind = type(error).__name__.removesuffix("Exception")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).lower() or "no reason given"


def list_problems(error: "ValidationError") -> list[str]:
    """Return a sentence for each problem of *error*, with its place, such as ``sites.0.name``."""
    problems = error.errors(include_url=False, include_input=False)
    return [f"{'.'.join(map(str, one['loc'])) or 'the whole value'}: {one['msg']}" for one in problems]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and the errors that caused it, also the exceptions in its ``args``."""
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting and len(seen) < _MAX_CAUSES:
        each = waiting.pop(0)
        if isinstance(each, BaseException) and not any(each is one for one in seen):
            seen.append(each)
            yield each
            waiting += [each.__cause__, *each.args, getattr(each, "reason", None), each.__context__]


DOCUMENTATION: Final = "file:///opt/classad-hydrator/share/doc/classad-hydrator"
"""The documentation pages that the wheel installs, if its virtual environment is /opt/classad-hydrator."""


_PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")


def documentation() -> str:
    """Return DOCUMENTATION, the URL of the documentation.

    If DOCUMENTATION is a ``file:`` URL, return the URL of the copy in this installation or checkout, if any.
    """
    copies = (Path(sys.prefix, "share", "doc", "classad-hydrator"), Path(__file__).parents[2] / "docs")
    if DOCUMENTATION.startswith("file:"):
        return next((one.as_uri() for one in copies if (one / "index.md").exists()), DOCUMENTATION)
    return DOCUMENTATION


def link_to_page(name: str, base: str = DOCUMENTATION) -> str:
    """Return the link to the documentation page *name*, such as ``metrics.md#hydratordown``."""
    return f"{base}/{name}"


def link_to_bug_report() -> str:
    """Return the link to the page on bug reports."""
    return link_to_page("operators/troubleshooting.md#report-a-bug", documentation())


def docs_folder_note(*texts: str) -> str | None:
    """Return a note that says where ``docs/`` is; None if no text in *texts* names a page in ``docs/``."""
    return f"docs/ is {documentation()}" if any(map(_PAGE.search, texts)) else None


def matches_any(text: str, patterns: tuple[str, ...]) -> bool:
    """Return True if one of the glob *patterns* matches all of *text*; the matching is case-sensitive."""
    return bool(patterns) and _compile_globs(patterns).match(text) is not None


_MAX_PATH_PARTS: Final = 12


def mentions_any(text: str, patterns: tuple[str, ...], default_scope: str | None = None) -> bool:
    """Return True if a name in *text*, also one with the marks of a key, matches one of the *patterns*.

    Names without a scope have the *default_scope*; None if they are no names.

    >>> mentions_any("job 7 names x:L1, y:@L2: it waits", ("y:L?",))
    True
    >>> mentions_any("404 for https://rucio/replicas/y/L2?rse=UK", ("y:L?",))
    True
    """
    if not patterns:
        return False
    plain = unquote(text)
    words = re.split(r"(?:\\\w|[^\w.:/@=+~-])+", " ".join((text, plain, re.sub("@(.)", r"\1", plain))))
    words += [word.rpartition("=")[2] for word in words]  # as of a URL's did=x:L1
    words += [word.rstrip(".:/") for word in words]
    for parts in [word.split("/")[-_MAX_PATH_PARTS:] for word in words if "/" in word]:
        for start, end in combinations(range(len(parts) + 1), 2):  # as of …/x:L1 and …/x/L1/rules
            first, *rest = parts[start:end]
            words += ["/".join([first, *rest]), f"{first}:{'/'.join(rest)}"]
    if default_scope:
        words += [f"{default_scope}:{word}" for word in words if ":" not in word]
    return any(matches_any(word, patterns) for word in words)


@lru_cache(maxsize=10_000)  # most facts share their reason with others
def hide_names(reason: str, never: tuple[str, ...]) -> str:
    """Return *reason*, the text of a catalogue, if it names no dataset that matches *never*."""
    return "its reason names a dataset that is never published" if mentions_any(reason, never) else reason


@lru_cache(maxsize=16)
def _compile_globs(patterns: tuple[str, ...]) -> re.Pattern[str]:
    # fnmatch writes a regular expression that does not backtrack over more than one star
    return re.compile("|".join(map(fnmatch.translate, patterns)))
