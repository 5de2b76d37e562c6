"""``hydrator token``: makes, lists and revokes the tokens that the HTTP answers ask for."""

import fcntl
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption
from hydrator.domain.errors import ConfigError

token = typer.Typer(help="Tokens for the HTTP answers: who may read what.", no_args_is_help=True)


@token.command()
def new(
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    site: Annotated[str | None, typer.Option(help="For the ad of this site, and nothing else.")] = None,
    role: Annotated[
        str | None,
        typer.Option(
            help="read: all that is published; submit: that, and names of private datasets; "
            "event: to tell of changes, and nothing else."
        ),
    ] = None,
) -> None:
    """Print a new token, this once; the tokens file keeps its hash. The daemon needs no restart."""
    from hydrator.domain.model import Site
    from hydrator.server.auth import Role, append_grant, create_token
    from hydrator.wiring import system_clock

    if (site is None) == (role is None):
        raise ConfigError(["give either --site NAME or --role read|submit|event"])
    if role not in (None, Role.READ, Role.SUBMIT, Role.EVENT):
        raise ConfigError([f"--role {role!r}: it is read, submit or event; for a site give --site NAME"])
    if site is not None and (not site.strip() or not site.isprintable() or site != site.strip()):
        raise ConfigError([f"--site {site!r}: is no site's name"])
    kind = Role.SITE if site is not None else Role(str(role))
    made = f"{system_clock():%Y-%m-%d}"
    text, grant = create_token(kind, Site(site) if site is not None else None, made)
    file = _tokens_file(config)
    with _lock_tokens_file(file):
        _replace_file(file, append_grant(_read_tokens_file(file), grant))
    print(text)
    print(f"hydrator: {grant.key} is for {grant.role_text}; {file} keeps its hash", file=sys.stderr)


@token.command("list")
def list_tokens(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print whom tokens were made for; the tokens themselves are on no disk."""
    import json

    from hydrator.server.auth import parse_grants

    grants, problems = parse_grants(_read_tokens_file(_tokens_file(config)))
    if as_json:
        print(
            json.dumps([{"key": g.key, "made": g.created_on, "role": g.role_text} for g in grants], indent=2)
        )
    else:
        for grant in grants:
            print(f"{grant.key}  {grant.created_on}  {grant.role_text}")
    for problem in problems:
        print(f"hydrator: {problem}", file=sys.stderr)


@token.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The first column of `hydrator token list`.")],
    config: ConfigOption = DEFAULT_CONFIG_PATH,
) -> None:
    """Let a token open nothing any more; the daemon needs no restart."""
    from hydrator.server.auth import remove_grant

    if not re.fullmatch(r"[0-9a-f]{8,64}", key):
        raise ConfigError([f"{key!r} is no token's key; see hydrator token list"])
    file = _tokens_file(config)
    with _lock_tokens_file(file):
        text, gone = remove_grant(_read_tokens_file(file), key)
        if not gone:
            raise ConfigError([f"{file} has no token {key}; see hydrator token list"])
        _replace_file(file, text)
    for grant in gone:
        print(f"revoked {grant.key}, which was for {grant.role_text}")


def _tokens_file(config: Path) -> Path:
    from hydrator.config import load

    file = load(config).publish.http.tokens_file
    if file is None:
        raise ConfigError([f"{config}: publish.http.tokens_file is not set: name the file that keeps hashes"])
    return file.resolve()


def _read_tokens_file(file: Path) -> str:
    """What *file* says; nothing where it is not there yet."""
    from hydrator.server.auth import read_protected_file

    try:
        return read_protected_file(file)[0]
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError([f"{file}: {error.strerror or error}"]) from error


@contextmanager
def _lock_tokens_file(file: Path) -> Iterator[None]:
    """One change of *file* at a time: the folder is locked, since the file itself is replaced."""
    try:
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ConfigError([f"{file.parent}: {error.strerror}"]) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace_file(file: Path, text: str) -> None:
    """Put *text* in place of *file* at once, with the owner and mode it has.

    A new file is for its owner alone: whoever owns the folder, so that root
    can make tokens for a daemon that runs as somebody else.
    """
    from hydrator.domain.files import replace_file

    try:
        is_known = file.exists()
        status = (file if is_known else file.parent).stat()
        replace_file(
            file,
            text.encode("utf-8", "replace"),
            mode=status.st_mode & 0o755 if is_known else 0o600,
            owner=(status.st_uid, status.st_gid) if os.geteuid() == 0 else None,
        )
    except OSError as error:
        raise ConfigError([f"{file}: {error.strerror}; the old one stays"]) from error
