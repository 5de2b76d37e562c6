"""Reader of Rapthor's parsets that gives the same values as Rapthor itself. Pure.

tests/integration/test_rapthor_reader.py compares this reader with the reader of rapthor 2.1.post1 (PyPI).
"""

import ast
import configparser
import fnmatch
import io
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from hydrator.domain.errors import ConfigError
from hydrator.submit.dataset_names.lookup import base_name

FILE_OPTIONS = {
    **dict.fromkeys(("input_skymodel", "apparent_skymodel", "facet_layout", "strategy"), "global"),
    **dict.fromkeys(("input_h5parm", "input_fulljones_h5parm", "input_normalization_h5parm"), "global"),
    **dict.fromkeys(("photometry_skymodel", "astrometry_skymodel", "normalization_skymodels"), "imaging"),
}
"""Options that name files, but not measurement sets, each with its section; only the last has a list."""
_REQUIRED_OPTIONS = ("dir_working", "input_ms")
UNSET_VALUES = ("", "None")
_NUMBER = r"\d+(\.\d*)?([:\s]\s*\d+(\.\d*)?)*"
_UNIT = (
    r"(deg(ree)?s?|d|hours?|hourangle|hr|h|min|m|arcmin(ute)?|sec|s|arcsec(ond)?|[mu]as|rad(ian)?"
    "|['\"\u00b0\u2032\u2033])"
)
_ANGLE = re.compile(rf"[+-]?{_NUMBER}\s*({_UNIT}\s*{_NUMBER}\s*)*({_UNIT}\s*)?[NSEW]?")


@dataclass(frozen=True, slots=True)
class Angle:
    """A text such as ``12h30m``, which Rapthor converts to degrees."""

    text: str


@dataclass(frozen=True, slots=True)
class Parset:
    """A parset: ``input_globs`` are the globs in input_ms, ``sections`` the options, as its user wrote."""

    origin: str
    input_globs: tuple[str, ...]
    sections: Mapping[str, Mapping[str, str]]

    def missing_brackets_hint(self, input_glob: str) -> str | None:
        """Return one sentence if *input_glob*, which matches nothing, looks like several names."""
        has_comma = "," in input_glob and len(self.input_globs) == 1
        if not (has_comma or re.search(r"[\s;]/", input_glob)):
            return None
        return (
            f"{self.origin}: input_ms = {printable_line(input_glob)[:200]}: no file matches, because Rapthor"
            " reads this text as one name; write a list in brackets, with commas: [a, b]"
        )

    @property
    def files(self) -> dict[str, list[str]]:
        """The options that name files, but not measurement sets, each with the files' names."""
        found = {}
        for name, section in FILE_OPTIONS.items():
            value = lexical_cast(self.sections.get(section, {}).get(name, "None"))
            texts = value if isinstance(value, list | tuple) else [value]
            found[name] = [
                text
                for text in texts
                if isinstance(text, str)
                and text not in UNSET_VALUES
                and (name != "strategy" or text.endswith(".py"))
            ]
        return {name: files for name, files in found.items() if files}


def parse_parset(content: bytes, origin: str) -> Parset:
    """Read a parset as Rapthor does.

    Args:
        content: the bytes of the file.
        origin: the file's name, for messages.

    Raises:
        ConfigError: Rapthor could not read the parset either, or would find no measurement set.
    """
    try:
        # converts line ends as open() does
        text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except UnicodeDecodeError as error:
        problem = f"{origin}: not UTF-8 text (byte {error.start}): save the parset as UTF-8"
        raise ConfigError([problem]) from error
    if "\0" in text:
        raise ConfigError([f"{origin}: not a text file (byte {text.index(chr(0))} is NUL)"])
    parser = configparser.ConfigParser(interpolation=None)
    # Rapthor also sets these options, so that [DEFAULT] cannot set them
    parser.read_dict({"global": dict.fromkeys(_REQUIRED_OPTIONS, "None")})
    try:
        parser.read_string(text, origin)
    except configparser.Error as error:
        raise ConfigError([f"{origin}: not a parset: {' '.join(str(error).split())}"]) from error
    sections = {name: dict(parser.items(name)) for name in parser.sections()}
    options = sections["global"]
    if missing := [name for name in _REQUIRED_OPTIONS if options[name] in UNSET_VALUES]:
        hints = [
            f"; [{name}]: did you mean [global]?" for name in sections if name.lower() == "global" != name
        ]
        lacks = f"[global] lacks {' and '.join(missing)}, which Rapthor requires"
        raise ConfigError([f"{origin}: {lacks}{''.join(hints)}"])
    problems = [
        f"{origin}: {name}: {why}"
        for options in sections.values()
        for name, text in options.items()
        if (why := _explain_slip(text, is_path=name in (*_REQUIRED_OPTIONS, *FILE_OPTIONS)))
    ]
    if problems:
        raise ConfigError(problems)
    return Parset(origin, _parse_input_globs(options["input_ms"], origin), sections)


def _explain_slip(text: str, *, is_path: bool) -> str | None:
    """Return what is wrong with *text*, which Rapthor would read as another name; None without a slip."""
    value = lexical_cast(text)
    words = re.findall(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^'"\s]+""", text)
    if isinstance(value, list | tuple) and any(
        {one[0], other[0]} <= {"'", '"'} for one, other in pairwise(words)
    ):
        return "a comma is missing between two texts, which Rapthor would join"
    if is_path and value == text and re.search(r"\s#", text):
        return "a comment needs a line of its own"
    if is_path and value == text and text.count("[") != text.count("]"):
        return "a bracket is missing: write [a, b]"
    return None


def lexical_cast(text: str) -> object:
    """Return the value that Rapthor reads from an option's *text*: a literal, an angle, a list or a text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value: object = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        if _ANGLE.fullmatch(text):
            return Angle(text)
        if text.startswith("[") and text.endswith("]"):
            return [lexical_cast(item.strip()) for item in text.strip("[]").split(",")]
        return text
    return value


def _parse_input_globs(text: str, origin: str) -> tuple[str, ...]:
    """Return the globs in *text*, input_ms; raise ConfigError if there are none or an item is not a text."""
    value = lexical_cast(text)
    items = sorted(value, key=str) if isinstance(value, list | tuple | set | dict) else [value]
    problems = [
        f"{origin}: input_ms: Rapthor reads {item.text if isinstance(item, Angle) else repr(item)}"
        " as a number, not as a name; put the name in quotes"
        for item in items
        if not isinstance(item, str)
    ]
    if problems:
        raise ConfigError(problems)
    globs = tuple(item for item in items if isinstance(item, str) and item.strip())
    if not globs:
        shown = " ".join(text.split())[:200]
        raise ConfigError([f"{origin}: input_ms = {shown}: names no measurement set"])
    return globs


def is_glob(pattern: str) -> bool:
    """Return whether *pattern* has a wildcard of Python's ``glob``: ``*``, ``?`` or ``[``."""
    return re.search(r"[*?[]", pattern) is not None


def matches_base_name(name: str, search_pattern: str) -> bool:
    """Return whether the last part of *name* matches the last part of *search_pattern*, as ``glob`` does.

    The comparison respects letter case.
    """
    return fnmatch.fnmatchcase(base_name(name), base_name(search_pattern))


def printable_line(text: str) -> str:
    """Return *text* for a comment: as one line, with ``?`` for characters that cannot be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
