"""Why HTCondor found no IDTOKEN that it may use, or one that allows too little: what the folder shows."""

from collections.abc import Iterable
from pathlib import Path

from hydrator.domain.untrusted import claims_of

TOKEN_ADVICE = "give us a token of this pool (condor_token_create; its file must be ours and private)"


def token_advice(folder: Path | None, uid: int) -> str:
    """What to do when a daemon accepted none of our credentials.

    Args:
        folder: ``htcondor.token_directory``; None where HTCondor's own configuration names one.
        user: our uid, whom HTCondor wants tokens to belong to.
    """
    if folder is None:
        return f"{TOKEN_ADVICE}, and name its folder: htcondor.token_directory"
    try:
        owners = {file: file.stat().st_uid for file in sorted(folder.iterdir()) if file.is_file()}
    except OSError as error:
        return f"{folder}: {error.strerror} (we are uid {uid}); under systemd LoadCredential= hands it over"
    if not owners:
        return f"{TOKEN_ADVICE}: {folder} holds none"
    for file, owner in owners.items():
        if owner != uid:
            return f"{file} belongs to uid {owner}, and HTCondor takes tokens of uid {uid} alone, who we are"
    return TOKEN_ADVICE


_SCOPE = "condor:/"
_IMPLIED_BY = {
    "READ": {"WRITE", "DAEMON", "NEGOTIATOR", "ADMINISTRATOR"},
    "WRITE": {"DAEMON", "ADMINISTRATOR"},
}
"""By authorization level those that bring it along."""
_MAX_FILE_BYTES = 1 << 16
"""Bytes of a file with tokens that are read."""


def token_limits(folders: Iterable[Path]) -> frozenset[str]:
    """Return the levels that all tokens in *folders* are limited to (``condor_token_create -authz``).

    Nothing where one has no limit, where there is none, or where one cannot be read.
    """
    found: set[str] = set()
    try:
        files = [file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir())]
        for file in (file for file in files if file.is_file()):
            with file.open("rb") as opened:
                lines = opened.read(_MAX_FILE_BYTES).decode("utf-8", "replace").splitlines()
            for line in (line.strip() for line in lines if line.strip() and not line.startswith("#")):
                levels = _parse_levels(line)
                if not levels:
                    return frozenset()
                found |= levels
    except OSError:
        return frozenset()
    return frozenset(found)


def is_level_missing(allowed_levels: frozenset[str], level: str) -> bool:
    """Return True where tokens that are *limited* to some levels do not allow *level*, whoever shows them."""
    return (
        bool(allowed_levels)
        and level not in allowed_levels
        and not allowed_levels & _IMPLIED_BY.get(level, set())
    )


def describe_token_limit(allowed_levels: frozenset[str], level: str) -> str:
    """Say that a token does not allow *level*, and what to do."""
    wanted = " ".join(f"-authz {one}" for one in sorted({*allowed_levels, level}))
    only = ", ".join(sorted(allowed_levels))
    return f"its token is limited to {only}: make one that allows {level} too (condor_token_create {wanted})"


def _parse_levels(token: str) -> set[str]:
    """Return what the scope of *token*, a JWT, limits it to; nothing where it has no limit."""
    words = str(claims_of(token).get("scope", "")).split()
    return {
        word.removeprefix(_SCOPE)[:40] for word in words if word.startswith(_SCOPE) and word.isprintable()
    }
