"""Permissions: find out which writes Rucio allows this account, by writes that cannot have an effect."""

import uuid
from collections.abc import Callable
from typing import Any

from adapters.rucio.session.client import RucioClient
from adapters.rucio.session.writes import WriteRefused
from hydrator.domain.errors import CatalogueGarbled
from hydrator.domain.ports.staging import StagingPermissions

from .destinations import Destinations
from .rule_writer import RuleWriter

_NO_RULE = "0" * 32


class PermissionProbe:
    """A probe of permissions.

    It adds a rule for a DID that does not exist, and changes a rule that does not exist. Rucio checks the
    permission first, then the quota and the RSE, and the DID or the rule last.
    """

    def __init__(
        self, name: str, account: str, activity: str, writer: RuleWriter, destinations: Destinations
    ) -> None:
        self._name = name
        self._account = account
        self._activity = activity
        self._writer = writer
        self._destinations = destinations

    def probe(self) -> StagingPermissions:
        """Return the permissions.

        Raises:
            CatalogueError: Rucio gave no answer.
        """
        can_ask, note = self._probe_add()
        can_renew = self._probe_change(
            lambda client: client.update_replication_rule(_NO_RULE, {"lifetime": 60})
        )
        can_delete = self._probe_change(lambda client: client.delete_replication_rule(_NO_RULE))
        notes = [note] if note else []
        if not can_renew:
            notes.append(
                f"account {self._account} may not renew rules:"
                " each request needs a lifetime that is long enough from its start"
            )
        if not (can_renew or can_delete):
            notes.append(f"account {self._account} may not cancel rules: each request ends by its lifetime")
        return StagingPermissions(can_ask, can_renew, can_renew or can_delete, tuple(notes))

    def _probe_add(self) -> tuple[bool | None, str]:
        storage = self._destinations.any_disk()
        if storage is None:
            return None, "no site has just one disk in Rucio, so the permission to add rules is unknown"
        rule: dict[str, Any] = {
            "dids": [{"scope": "classad-hydrator", "name": f"no-such-dataset-{uuid.uuid4().hex}"}],
            "copies": 1,
            "rse_expression": storage,
            "lifetime": 60,
            "activity": self._activity,
            "comment": "classad-hydrator: a test of permissions",
        }
        try:
            self._writer.send(lambda client: client.add_replication_rule(**rule), bool)
        except WriteRefused as error:
            if error.kind == "DataIdentifierNotFound":
                return True, ""
            return False, self._writer.translate(error, "add", "a dataset", storage).reason
        raise CatalogueGarbled(self._name, "Rucio accepted a rule for a DID that does not exist")

    def _probe_change(self, call: Callable[[RucioClient], object]) -> bool:
        """Return whether Rucio refuses *call* only because its rule does not exist."""
        try:
            self._writer.send(call, bool)
        except WriteRefused as error:
            return error.kind == "RuleNotFound"
        raise CatalogueGarbled(self._name, "Rucio changed a rule that does not exist")
