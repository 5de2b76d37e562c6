"""Keep a run's later jobs at the site of its first: they read what the earlier ones wrote there."""

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SITE_FILE_VARIABLE = "HYDRATOR_TOIL_SITE_FILE"


@dataclass(slots=True)
class SiteAffinity:
    """Where a run is: decided once, by the first job that finished, for all processes of the run.

    ``file`` is shared by the leaders of a run's operations, which follow one another; to let the run
    go elsewhere, remove it.
    """

    file: Path | None
    site: str | None = None

    @classmethod
    def load(cls, file: str | None) -> Self:
        """As an earlier leader left it; a file that cannot be read decides nothing."""
        found = cls(Path(file) if file else None)
        found.site = found._read_site()
        return found

    def record_first_site(self, site: object, job: str) -> bool:
        """A *job* finished at *site*; whether that decided it, and nothing had before."""
        if self.file is None or self.site or not isinstance(site, str) or not site:
            return False
        self.file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f"{self.file.name}.", dir=self.file.parent)
        fresh = Path(name)  # no link that somebody put there is followed
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(json.dumps({"site": site, "job": job}) + "\n")
            fresh.chmod(0o644)
            os.link(fresh, self.file)  # whole or not at all, and the first one stays
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
        self.site = self._read_site() or site
        return True

    def _read_site(self) -> str | None:
        try:
            site = json.loads(self.file.read_text("utf-8"))["site"] if self.file else None
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return site if isinstance(site, str) and site else None
