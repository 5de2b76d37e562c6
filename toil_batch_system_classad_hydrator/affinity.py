"""Site affinity: later jobs of a run read the first job's output, so they run at the first job's site."""

import json
from pathlib import Path

SITE_FILE_VARIABLE = "HYDRATOR_TOIL_SITE_FILE"


class SiteAffinity:
    """The site of a run: the site where the run's first finished job ran.

    A run has several operations, each with its own Toil leader; all of them share ``file``. To let the run
    use another site, remove the file. ``site`` is None if the file is unreadable.
    """

    def __init__(self, file: str | None) -> None:
        self.file = Path(file) if file else None
        self.site = self._read_site()

    def record_first_site(self, site: object, job: str) -> bool:
        """Store *site*, where *job* finished, as the run's site; return False if the run already has one."""
        if self.file is None or self.site or not isinstance(site, str) or not site:
            return False
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.file.open("x", encoding="utf-8") as stream:  # of two leaders the first wins
                stream.write(json.dumps({"site": site, "job": job}) + "\n")
        except FileExistsError:
            pass
        self.site = self._read_site() or site
        return True

    def _read_site(self) -> str | None:
        try:
            site = json.loads(self.file.read_text("utf-8"))["site"] if self.file else None
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return site if isinstance(site, str) and site else None
