"""`hydrator run` as a process in its own folder, for tests that damage its environment. No pool is needed."""

import signal
from pathlib import Path

from tests.daemon import Running

SITES = ("CAM", "RAL", "OSO")


class Daemon(Running):
    """A daemon whose ads are read from its files and over HTTP."""

    sites = SITES

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int | None:
        """End the process, if there is one; kill it if it does not end."""
        return self.end(how) if self.alive else None

    def within(self, name: str) -> Path:
        """Return the folder of the daemon called *name*, as the daemon sees it."""
        return self.folder / name

    def file(self, site: str) -> str | None:
        """Return the ad of *site* as a hook reads it from its file."""
        try:
            return (self.within("ads") / f"{site}.ad").read_text()
        except FileNotFoundError:
            return None

    def served(self, site: str) -> str | None:
        """Return the ad of *site* as a hook reads it over HTTP; None without one."""
        answer = self.get(f"/v1/sites/{site}/ad")
        return answer.text if answer.status_code == 200 else None

    def lists(self, site: str, did: str) -> bool:
        """Return whether both the file and HTTP list this dataset."""
        return f"'{did}'" in (self.file(site) or "") and f"'{did}'" in (self.served(site) or "")
