"""Ad files: publish one file per site for the hook's ``--file``. A rename replaces an old file.

The file's name is the site's name with the suffix ``.ad``. All characters of the site's name except letters,
digits and ``_ . - ~`` are percent-encoded. A file's modification time is the time of writing.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from adapters.readback import parse_published_ad, read_back
from hydrator.domain.ads.contract import CONTRACT_VERSION
from hydrator.domain.errors import PublishError
from hydrator.domain.files import TEMPORARY_PREFIX, TEMPORARY_SUFFIX, flush_folder, read_regular, replace_file
from hydrator.domain.model import PublishedAd, Site, SiteAd
from hydrator.domain.ports import Clock

AD_SUFFIX: Final = ".ad"
LEFTOVER_AFTER: Final = timedelta(minutes=10)
"""A temporary file of this age has no writer any more: the daemon that wrote it was killed."""

MAX_BYTES: Final = 16 * 1024 * 1024
_MODE: Final = 0o644
# a pattern that begins with its text, not with ^, is found without a look at each character of a long line
_LINE: Final = re.compile(
    r'\nDataLocality(Site|AsOf|Generation|OpenUntil) = (?:"((?:[^"\\\n]|\\.)*)"|([0-9]{1,18}))$', re.MULTILINE
)
"""A line that is read back, after its line feed; each has the name, and a text or a number."""
_LAST_LINE: Final = re.compile(r"\nDataLocalityVersion = ([0-9]{1,9})\n\Z")


class AdFilePublisher:
    """A publisher that writes ads into *folder*, which it creates, and reads them back.

    ``rejected`` has the ``.ad`` files that the last read-back rejected, each with the reason: the file is
    incomplete, from another program, unreadable or dated in the future.
    """

    name = "file"

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self.rejected: Mapping[str, str] = {}

    def path(self, site: Site) -> Path:
        """Return the path of the file with the ad of *site*, which the hook reads with ``--file``."""
        return self._folder / ad_file_name(site)

    def published(self) -> Mapping[Site, PublishedAd]:
        """See :class:`hydrator.domain.ports.Publisher`. If the folder is missing, return no ads."""
        now = self._clock()
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(AD_SUFFIX))  # noqa: PTH208
        except FileNotFoundError:
            names = []
        except OSError as exc:
            raise PublishError(self.name, f"{self._folder}: {exc.strerror}") from exc
        readers = [(name, partial(_read_ad, self._folder / name, now)) for name in names]
        ads, self.rejected = read_back(readers)
        return ads

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """See :class:`hydrator.domain.ports.Publisher`. A file is replaced completely or not at all."""
        try:
            prepare_folder(self._folder, self._clock)
        except OSError as exc:
            raise PublishError(self.name, f"{self._folder}: {exc.strerror}") from exc
        self._run_steps([(ad.site, partial(self._write, ad)) for ad in ads], "written")

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """See :class:`hydrator.domain.ports.Publisher`."""
        removals = [(site, partial(self.path(site).unlink, missing_ok=True)) for site in sorted(sites)]
        self._run_steps(removals, "removed")

    def _run_steps(self, steps: Iterable[tuple[Site, Callable[[], None]]], past_verb: str) -> None:
        """Run every step and flush the folder to disk; then raise one error that lists the failed steps."""
        failures = []
        for site, step in steps:
            try:
                step()
            except (OSError, ValueError) as exc:
                failures.append(f"{site}: {getattr(exc, 'strerror', None) or exc}")
        flush_folder(self._folder)
        if failures:
            raise PublishError(self.name, f"ads not {past_verb} in {self._folder}: {'; '.join(failures)}")

    def _write(self, ad: SiteAd) -> None:
        replace_file(
            self.path(ad.site),
            ad.text.encode(),
            mode=_MODE,
            modified_ns=int(self._clock().timestamp() * 1_000_000_000),
            should_flush_folder=False,
        )


def ad_file_name(site: Site) -> str:
    """Return the file name of the ad of *site*. The hook (hydrator/startd_cron.py) has the same name."""
    return quote(site, safe="") + AD_SUFFIX


def prepare_folder(folder: Path, clock: Clock) -> None:
    """Create *folder*, or remove the temporary files of a daemon that was killed while it wrote into it.

    A new folder has mode 0755 with any umask, so that hooks can read it; an existing one keeps its mode.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    oldest = (clock() - LEFTOVER_AFTER).timestamp()
    for leftover in folder.glob(f"{TEMPORARY_PREFIX}*{TEMPORARY_SUFFIX}"):
        with suppress(OSError):
            if leftover.lstat().st_mtime < oldest:
                leftover.unlink()


def _read_ad(path: Path, now: datetime) -> PublishedAd:
    """Read the ad in *path*; raise OSError, or ValueError if the ad is incomplete or from another program."""
    data, status = read_regular(path, MAX_BYTES)
    text = f"\n{data.decode()}"  # each line follows a line feed
    last_line = _LAST_LINE.search(text)
    if not last_line:
        raise ValueError("the file is incomplete: its last line is not DataLocalityVersion")
    if int(last_line[1]) != CONTRACT_VERSION:
        raise ValueError(f"the ad has contract version {last_line[1]}, not {CONTRACT_VERSION}")
    lines = _LINE.findall(text)
    values = {name: quoted or number for name, quoted, number in lines}
    if len(values) < len(lines) or not {"Site", "AsOf", "Generation"} <= values.keys():
        raise ValueError("not an ad of this daemon: it needs one line each with site, AsOf and generation")
    site = Site(unquote(path.name.removesuffix(AD_SUFFIX)))
    if re.sub(r"\\(.)", r"\1", values["Site"]) != site:  # the escapes of a ClassAd string
        raise ValueError("the site of the ad is not the site in the file's name")
    until = values.get("OpenUntil")
    return parse_published_ad(
        site,
        int(values["Generation"]),
        int(values["AsOf"]),
        status.st_mtime,
        now,
        int(until) if until else None,
    )
