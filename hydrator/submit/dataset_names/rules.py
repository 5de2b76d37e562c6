"""Naming rules: turn names in users' files into DIDs by [submit].names and [submit].patterns. Pure."""

from collections.abc import Iterable, Sequence

from hydrator.config import NamePattern, Settings
from hydrator.domain.errors import BadDid, ConfigError
from hydrator.domain.model import Did, parse_did

from .lookup import CompiledPattern, compile_pattern, look_up_configured


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


def compile_patterns(patterns: Iterable[NamePattern]) -> list[CompiledPattern]:
    """Compile [submit].patterns.

    Raises:
        ConfigError: lists every pattern that cannot be used.
    """
    compiled, problems = [], []
    for number, pattern in enumerate(patterns):
        try:
            compiled.append(compile_pattern(pattern.match, pattern.did))
        except ValueError as error:
            problems.append(f"submit.patterns[{number}].{error}")
    if problems:
        raise ConfigError(problems)
    return compiled
