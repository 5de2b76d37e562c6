"""Advice after a denial: which authorization level a call needs, and what is wrong with the IDTOKENS."""

from collections.abc import Iterable
from pathlib import Path

from hydrator.domain.untrusted import claims_of

READ_NEED = "READ", "the client needs READ there, see ALLOW_READ in docs/operators/security.md"
MERGE_ADVICE = (
    "the client needs NEGOTIATOR at the collector, "
    "see COLLECTOR.ALLOW_NEGOTIATOR and docs/operators/other-pools.md"
)
_ADVERTISE_NEED = (
    "DAEMON",
    "the client needs DAEMON at the collector, see COLLECTOR.ALLOW_DAEMON in docs/operators/security.md",
)
_RUN_ANYWHERE_ADVICE = (
    "only a queue super user with a user record in the schedd (QUEUE_SUPER_USERS, condor_qusers -add) "
    "may edit the attributes in PROTECTED_JOB_ATTRS; no user may edit those in IMMUTABLE_JOB_ATTRS"
)
NEEDS = {
    "ping": ("", ""),
    "advertise": _ADVERTISE_NEED,
    "invalidate": _ADVERTISE_NEED,
    "merge": ("NEGOTIATOR", MERGE_ADVICE),
    "run_anywhere": ("WRITE", _RUN_ANYWHERE_ADVICE),
}
"""The authorization level that a call needs, and the advice after a denial; other calls: READ_NEED."""
TOKEN_ADVICE = "provide an IDTOKEN of this pool (condor_token_create), in a private file of this user"  # noqa: S105
_SCOPE = "condor:/"
_IMPLIED_BY = {
    "READ": {"WRITE", "DAEMON", "NEGOTIATOR", "ADMINISTRATOR"},
    "WRITE": {"DAEMON", "ADMINISTRATOR"},
}
"""For an authorization level, the levels that include it."""
_MAX_FILE_BYTES = 1 << 16
"""Bytes of a token file that are read."""


def token_advice(folder: Path | None, uid: int) -> str:
    """Return the advice after a daemon accepted none of the credentials.

    Args:
        folder: ``htcondor.token_directory``; None if only HTCondor's configuration sets the folder.
        uid: the user id of this process; HTCondor uses only token files of this user.
    """
    if folder is None:
        return f"{TOKEN_ADVICE}, and set htcondor.token_directory to its folder"
    try:
        owners = {file: file.stat().st_uid for file in sorted(folder.iterdir()) if file.is_file()}
    except OSError as error:
        return (
            f"{folder}: {error.strerror} (this process has uid {uid}); "
            "under systemd, pass the tokens by LoadCredential="
        )
    if not owners:
        return f"{TOKEN_ADVICE}: {folder} contains no token"
    for file, owner in owners.items():
        if owner != uid:
            return (
                f"{file} belongs to uid {owner}; HTCondor uses only tokens of this process's user, uid {uid}"
            )
    return TOKEN_ADVICE


def token_limits(folders: Iterable[Path]) -> frozenset[str]:
    """Return the levels that at least one token in *folders* allows (``condor_token_create -authz``).

    Return an empty set if a token has no limit, if the folders have no token, or if a token cannot be
    read.
    """
    limits: set[str] = set()
    try:
        files = [file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir())]
        for file in (file for file in files if file.is_file()):
            with file.open("rb") as stream:
                lines = stream.read(_MAX_FILE_BYTES).decode("utf-8", "replace").splitlines()
            for line in (line.strip() for line in lines if line.strip() and not line.startswith("#")):
                levels = _parse_levels(line)
                if not levels:
                    return frozenset()
                limits |= levels
    except OSError:
        return frozenset()
    return frozenset(limits)


def is_level_missing(allowed_levels: frozenset[str], level: str) -> bool:
    """Return True if tokens limited to *allowed_levels* cannot give *level* to any identity."""
    return (
        bool(allowed_levels)
        and level not in allowed_levels
        and not allowed_levels & _IMPLIED_BY.get(level, set())
    )


def describe_token_limit(allowed_levels: frozenset[str], level: str) -> str:
    """Return the advice for tokens that do not allow *level*."""
    options = " ".join(f"-authz {one}" for one in sorted({*allowed_levels, level}))
    only = ", ".join(sorted(allowed_levels))
    return (
        f"its token allows only {only}: "
        f"create a token that also allows {level} (condor_token_create {options})"
    )


def _parse_levels(token: str) -> set[str]:
    """Return the levels to which the scope of *token* (a JWT) limits it; empty without a limit."""
    words = str(claims_of(token).get("scope", "")).split()
    return {
        word.removeprefix(_SCOPE)[:40] for word in words if word.startswith(_SCOPE) and word.isprintable()
    }
