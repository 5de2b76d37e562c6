"""``hydrator token``: create, list and revoke tokens of the HTTP API."""

import os
import re
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from hydrator.cli.groups import PlainGroup
from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption, read_typed
from hydrator.cli.output.new_files import lock_folder
from hydrator.cli.output.printing import print_problems, print_result
from hydrator.config import load
from hydrator.domain.errors import ConfigError
from hydrator.domain.files import replace_file
from hydrator.domain.model import Site
from hydrator.server.auth import (
    Role,
    append_grant,
    create_token,
    parse_grants,
    read_protected_file,
    remove_grant,
)
from hydrator.wiring import system_clock


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token of the HTTP API.

    Attributes:
        key: argument of `hydrator token revoke`.
        made: day of its creation, as 2026-11-21.
        role: read, or site:NAME.
    """

    key: str
    made: str
    role: str


token = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    help="Create, list and revoke tokens of the HTTP API.",
    no_args_is_help=True,
)


@token.command()
def new(
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    site: Annotated[
        str | None, typer.Option(help="Let the token read only the ad of this site.", callback=read_typed)
    ] = None,
    role: Annotated[Literal["read"] | None, typer.Option(help="read: read all published data.")] = None,
) -> None:
    """Create a token and print it; the tokens file stores only its hash. The daemon needs no restart."""
    if (site is None) == (role is None):
        raise ConfigError(["give either --site NAME or --role read"])
    if site is not None and (not site.strip() or not site.isprintable() or site != site.strip()):
        raise ConfigError([f"--site {site!r}: not a valid site name"])
    created_on = f"{system_clock():%Y-%m-%d}"
    text, grant = create_token(Role.SITE if site else Role.READ, Site(site) if site else None, created_on)
    file = _tokens_file(config)
    with lock_folder(file.parent):  # a change replaces the file
        _replace_file(file, append_grant(_read_tokens_file(file), grant))
    print(text)
    print_problems(f"the token with the key {grant.key} is for {grant.role_text}; {file} stores its hash")


@token.command("list")
def list_tokens(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print the key, creation day and role of each token; the tokens themselves are not stored."""
    grants, problems = parse_grants(_read_tokens_file(_tokens_file(config)))
    rows = [TokenRow(grant.key, grant.created_on, grant.role_text) for grant in grants]
    print_result(as_json, rows, lambda: print(end="".join("  ".join(astuple(row)) + "\n" for row in rows)))
    print_problems(*problems)


@token.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Key of the token: the first column of `hydrator token list`.")],
    config: ConfigOption = DEFAULT_CONFIG_PATH,
) -> None:
    """Revoke a token; the daemon needs no restart."""
    if not re.fullmatch(r"[0-9a-f]{8,64}", key):
        raise ConfigError([f"{key!r} is not a token's key; see hydrator token list"])
    file = _tokens_file(config)
    with lock_folder(file.parent):  # a change replaces the file
        text, removed_grants = remove_grant(_read_tokens_file(file), key)
        if not removed_grants:
            raise ConfigError([f"{file} has no token {key}; see hydrator token list"])
        _replace_file(file, text)
    for grant in removed_grants:
        print(f"revoked the token {grant.key}, which was for {grant.role_text}")


def _tokens_file(config: Path) -> Path:
    file = load(config).publish.http.tokens_file
    if file is None:
        raise ConfigError(
            [f"{config}: publish.http.tokens_file is not set: name a file for the tokens' hashes"]
        )
    return file.resolve()


def _read_tokens_file(file: Path) -> str:
    """Return the text of *file*; empty if the file does not exist yet."""
    try:
        return read_protected_file(file)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError([f"{file}: {error.strerror or error}"]) from error


def _replace_file(file: Path, text: str) -> None:
    """Replace *file* by *text* atomically, with the same owner and mode.

    A new file belongs to the owner of the folder, and only this owner can read the file. So root can
    create tokens for a daemon that runs as another user.
    """
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
        raise ConfigError([f"{file}: {error.strerror}; the old file is unchanged"]) from error
