"""Site affinity: later jobs of a run read the first job's output, so they run at the first job's site."""

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SITE_FILE_VARIABLE = "HYDRATOR_TOIL_SITE_FILE"


@dataclass(slots=True)
class SiteAffinity:
    """The site of a run: the site where the run's first finished job ran.

    A run has several operations, each with its own Toil leader; all of them share ``file``. To let the run
    use another site, remove the file.
    """

    file: Path | None
    site: str | None = None

    @classmethod
    def load(cls, file: str | None) -> Self:
        """Load the site that an earlier leader stored; ``site`` is None if *file* is unreadable."""
        affinity = cls(Path(file) if file else None)
        affinity.site = affinity._read_site()
        return affinity

    def record_first_site(self, site: object, job: str) -> bool:
        """Store *site*, where *job* finished, as the run's site; return False if the run already has one."""
        if self.file is None or self.site or not isinstance(site, str) or not site:
            return False
        self.file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f"{self.file.name}.", dir=self.file.parent)
        temporary = Path(name)  # mkstemp makes a new file, so no other user can have made a link of this name
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(json.dumps({"site": site, "job": job}) + "\n")
            temporary.chmod(0o644)
            os.link(temporary, self.file)  # atomic: if two processes store a site, the first one wins
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
        self.site = self._read_site() or site
        return True

    def _read_site(self) -> str | None:
        try:
            site = json.loads(self.file.read_text("utf-8"))["site"] if self.file else None
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return site if isinstance(site, str) and site else None
