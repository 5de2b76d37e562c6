"""Naming rules: turn names in users' files into DIDs by [submit].names and [submit].patterns. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence

from hydrator.config import NamePattern, Settings
from hydrator.domain.errors import BadDid, ConfigError
from hydrator.domain.model import Did, parse_did
from hydrator.submit.rapthor.parset import base_name


def apply_configuration(names: Sequence[str], settings: Settings) -> dict[str, Did]:
    """Return, by name, the DIDs that [submit].names and [submit].patterns give for *names*.

    Raises:
        ConfigError: an entry or a pattern gives an invalid DID, or a pattern is not a regular expression.
    """
    patterns = compile_patterns(settings.submit.patterns)
    table = {name.rstrip("/"): text for name, text in settings.submit.names.items()}
    chosen: dict[str, Did] = {}
    problems: list[str] = []
    for name in dict.fromkeys(names):
        try:
            if text := look_up_configured(name, table, patterns):
                chosen[name] = parse_did(text, settings.daemon.default_scope)
        except BadDid as bad:
            problems.append(f"[submit] gives an invalid DID for {name}: {bad}")
    if problems:
        raise ConfigError(problems)
    return chosen


def look_up_configured(
    name: str, table: Mapping[str, str], patterns: Sequence[tuple[re.Pattern[str], str]]
) -> str | None:
    path, base = name.rstrip("/"), base_name(name)
    for key in (path, base, strip_tar(base)):
        if key in table:
            return table[key]
    for pattern, template in patterns:
        if match := pattern.fullmatch(base) or pattern.fullmatch(path):
            return match.expand(template)
    return None


def compile_patterns(patterns: Iterable[NamePattern]) -> list[tuple[re.Pattern[str], str]]:
    templates, problems = [], []
    for number, pattern in enumerate(patterns):
        try:
            compiled = re.compile(pattern.match)
        except re.error as error:
            problems.append(f"submit.patterns[{number}].match: not a regular expression: {error}")
            continue
        try:
            re.compile(f"(?:{pattern.match})|").match("").expand(pattern.did)  # type: ignore[union-attr]
        except (re.error, IndexError) as error:
            problems.append(f"submit.patterns[{number}].did: {error}; write a group as \\1 or \\g<name>")
        templates.append((compiled, pattern.did))
    if problems:
        raise ConfigError(problems)
    return templates


def strip_tar(base: str) -> str:
    return base.removesuffix(".tar")
