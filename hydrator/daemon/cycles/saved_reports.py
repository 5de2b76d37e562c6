"""Saved reports: facts about the daemon in the state; ``hydrator status`` and ``check`` read them."""

import contextlib
from collections.abc import Sequence

from hydrator.diagnostics.credential_expiry import Credential, credential_rows
from hydrator.domain.errors import StateError
from hydrator.domain.model import to_unix
from hydrator.state.store import Store
from hydrator.wiring import system_clock


class SavedReports:
    """Reports that the daemon writes to the state when they change.

    If a report cannot be written, the next call tries again and no error is raised. The cycle cannot save the
    state either in this case, so the report of the cycle has the reason.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._credentials: Sequence[Credential] | None = None

    def save_credentials(self, credentials: Sequence[Credential]) -> None:
        """Save the credentials in use and their expiry."""
        if credentials != self._credentials:
            with contextlib.suppress(StateError):
                self._store.save_report("credentials", {"rows": credential_rows(credentials)})
                self._credentials = credentials

    def save_reload(self, problems: Sequence[str]) -> None:
        """Save whether the daemon uses the configuration on disk; *problems* say why the reload failed."""
        report = {"at": to_unix(system_clock()), "problems": list(problems)} if problems else {}
        with contextlib.suppress(StateError):
            self._store.save_report("reload", report)
