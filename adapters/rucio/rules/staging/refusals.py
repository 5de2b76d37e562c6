"""Refusals: turn each error of Rucio into one sentence, with what to do about it. This module is pure."""

from adapters.rucio.session.writes import WriteRefused, WriteUnconfirmed
from hydrator.domain.errors import CatalogueDenied, CatalogueError
from hydrator.domain.ports.staging import (
    RefusalKind,
    StagingError,
    StagingOutcomeUnknown,
    StagingRefused,
    StagingUnavailable,
)

_KINDS = {
    "AccessDenied": RefusalKind.PERMISSION,
    "InsufficientAccountLimit": RefusalKind.QUOTA,
    "RSEOverQuota": RefusalKind.QUOTA,
    "InsufficientTargetRSEs": RefusalKind.CLOSED,
    "RSEWriteBlocked": RefusalKind.CLOSED,
    "RSENotFound": RefusalKind.CLOSED,
    "InvalidRSEExpression": RefusalKind.CLOSED,
    "DataIdentifierNotFound": RefusalKind.UNKNOWN_DATASET,
    "InvalidSourceReplicaExpression": RefusalKind.NO_SOURCE,
}
_TEMPORARY = frozenset({"ReplicationRuleCreationTemporaryFailed"})


def translate_error(
    error: CatalogueError, *, verb: str, subject: str, account: str, storage: str = "", activity: str = ""
) -> StagingError:
    """Return the error of the port for the *error* of a write.

    Args:
        verb: what the write was to do with rules: add, renew or cancel.
        subject: the DID or the rule.
        account: the account that sent the write.
        storage: the RSE of a new rule.
        activity: the configured activity of a new rule.
    """
    name = error.catalogue
    if isinstance(error, StagingError):
        return error
    if isinstance(error, WriteUnconfirmed):
        return StagingOutcomeUnknown(name, f"no usable answer to {verb} a rule: {error.reason}")
    if isinstance(error, CatalogueDenied):
        reason = f"Rucio refuses the login of account {account}: {error.reason}"
        return StagingRefused(name, reason, RefusalKind.PERMISSION)
    if not isinstance(error, WriteRefused) or error.kind in _TEMPORARY:
        return StagingUnavailable(name, error.reason)
    kind = _KINDS.get(error.kind, RefusalKind.OTHER)
    if error.kind == "InvalidObject" and activity and f"'{activity}' is not one of" in error.reason:
        kind = RefusalKind.ACTIVITY
    sentences = {
        RefusalKind.PERMISSION: f"account {account} may not {verb} rules; ask Rucio's administrators for it",
        RefusalKind.QUOTA: f"account {account} has no quota left at {storage}; ask for a larger limit",
        RefusalKind.ACTIVITY: f"Rucio does not have the activity {activity!r}; set activity to one it has",
        RefusalKind.CLOSED: f"{storage} takes no data now ({error.kind})",
        RefusalKind.UNKNOWN_DATASET: f"Rucio does not have {subject}",
        RefusalKind.NO_SOURCE: f"no storage element that may send {subject} exists",
    }
    sentence = sentences.get(kind, f"Rucio refuses to {verb} a rule for {subject} ({error.kind})")
    return StagingRefused(name, f"{sentence}: {error.reason}", kind)
