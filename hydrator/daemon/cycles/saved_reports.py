"""Saved reports: facts about the daemon that ``hydrator status`` and ``check`` read from the state."""

import contextlib
from collections.abc import Sequence

from hydrator.diagnostics.credential_expiry import Credential, credential_rows
from hydrator.domain.errors import StateError
from hydrator.domain.model import to_unix
from hydrator.state.store import Store
from hydrator.wiring import Parts, system_clock


class SavedReports:
    """Reports in the state, written when they change.

    A report that cannot be saved is saved later. The cycle reports the reason, since it cannot save the state
    either.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._credentials: Sequence[Credential] | None = None
        self._private_problem: str | None = "not saved yet"

    def save_credentials(self, credentials: Sequence[Credential]) -> None:
        """Save the credentials in use and their expiry."""
        if credentials != self._credentials:
            with contextlib.suppress(StateError):
                self._store.save_report("credentials", {"rows": credential_rows(credentials)})
                self._credentials = credentials

    def save_private_problem(self, parts: Parts | None) -> None:
        """Save why names of private datasets may be lost."""
        pseudonym_store = parts.pseudonym_store if parts else None
        problem = pseudonym_store.problem if pseudonym_store else None
        if problem != self._private_problem:
            with contextlib.suppress(StateError):
                self._store.save_report("private", {"trouble": problem} if problem else {})
                self._private_problem = problem

    def save_reload(self, problems: Sequence[str]) -> None:
        """Save whether the configuration in use is the one on disk; *problems* say why it is not."""
        report = {"at": to_unix(system_clock()), "problems": list(problems)} if problems else {}
        with contextlib.suppress(StateError):
            self._store.save_report("reload", report)
