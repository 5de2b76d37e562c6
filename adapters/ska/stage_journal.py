"""Stage journal: the stage requests that were sent to DMAPI, in a file.

DMAPI neither stores a tag nor lists its stage requests. So each request is written into the journal before it
is sent. A request whose answer was lost stays in the journal until its lifetime is over: perhaps DMAPI
carries it out.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from adapters.bounded_json import Bounds, decode
from hydrator.domain.errors import CatalogueGarbled
from hydrator.domain.files import replace_file
from hydrator.domain.model import Did, Site
from hydrator.domain.ports.staging import OwnRequest, StagingKind
from hydrator.domain.untrusted import valid_time

LOST_JOB = "no-answer"
"""The handle of a request whose answer was lost."""


@dataclass(frozen=True, slots=True)
class StageEntry:
    """One request: its tag, its job in DMAPI, the storage area, and the Unix time at which it ends."""

    tag: str
    job: str
    site: str
    did: str
    area: str
    ends_at: float

    @property
    def request(self) -> OwnRequest:
        """The entry as a request of ours."""
        return OwnRequest(self.tag, self.job, StagingKind.STAGE, Site(self.site), Did(self.did))


class StageJournal:
    """The journal of the catalogue called *name* in *file*; each change is on disk when it returns."""

    def __init__(self, name: str, file: Path) -> None:
        self._name = name
        self._file = file

    def read(self, now: datetime) -> dict[str, StageEntry]:
        """Return the requests that have not ended, by tag.

        Raises:
            CatalogueGarbled: the file cannot be read.
        """
        try:
            rows = decode(self._file.read_bytes(), Bounds())
            entries = [StageEntry(**row) for row in rows]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as error:
            raise CatalogueGarbled(self._name, f"the journal {self._file}: {error}") from None
        ends = {entry.tag: valid_time(entry.ends_at) for entry in entries}
        if None in ends.values():
            raise CatalogueGarbled(self._name, f"the journal {self._file} has an entry without its end")
        return {entry.tag: entry for entry in entries if entry.ends_at > now.timestamp()}

    def write(self, entries: Mapping[str, StageEntry]) -> None:
        """Replace the journal.

        Raises:
            CatalogueGarbled: the file cannot be written.
        """
        rows = [asdict(entry) for entry in entries.values()]
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._file, json.dumps(rows).encode())
        except OSError as error:
            raise CatalogueGarbled(self._name, f"the journal {self._file}: {error}") from None
