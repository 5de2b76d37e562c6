"""Transfers between sites, from schedds: what the job wrapper measured, and the schedds' transfer records."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from hydrator.domain.ads.estimates import TransferLogAnswer, TransferOrigin, TransferSample
from hydrator.domain.model import Site, Unseen
from hydrator.domain.ports import Clock
from hydrator.domain.untrusted import valid_integer, valid_number, valid_time

from .bindings.client import QueueClient
from .bindings.values import Ad
from .schedd_rounds import ScheddRounds
from .schedds import OVERLAP

MAX_WAITING_RUNS = 10_000
"""Runs whose transfers wait for the record with their site, at the end of the run."""

_MAX_DIGITS = 18


class ScheddTransferLog(ScheddRounds):
    """A part of a ``TransferLog`` that asks each schedd for what is new since its last answer."""

    def __init__(
        self, client: QueueClient, clock: Clock, *, first_period: timedelta = timedelta(days=1)
    ) -> None:
        super().__init__(client)
        self._clock = clock
        self._begin_at = clock() - first_period
        self._answered_at: dict[str, datetime] = {}

    def read_samples(self) -> TransferLogAnswer:
        """See :class:`hydrator.domain.ads.estimates.TransferLog`."""
        answers = self.ask(self._query_schedd)
        return TransferLogAnswer(
            tuple(
                sample
                for schedd, answer in answers.items()
                if not isinstance(answer, Unseen)
                for sample in self._parse(schedd, answer)
            ),
            {schedd: answer.reason for schedd, answer in answers.items() if isinstance(answer, Unseen)},
        )

    def _query_schedd(self, client: QueueClient, schedd: str) -> Sequence[Ad]:
        now = self._clock()
        rows = self._query(client, schedd, self._answered_at.get(schedd, self._begin_at) - OVERLAP)
        self._answered_at[schedd] = now
        return rows

    def _query(self, client: QueueClient, schedd: str, since: datetime) -> Sequence[Ad]:
        raise NotImplementedError

    def _parse(self, schedd: str, rows: Sequence[Ad]) -> Iterator[TransferSample]:
        raise NotImplementedError


class WrapperReports(ScheddTransferLog):
    """A ``TransferLog`` of the rates that the job wrapper measured, from ChirpDataLocalityReads of jobs."""

    origin = TransferOrigin.WRAPPER

    def _query(self, client: QueueClient, schedd: str, since: datetime) -> Sequence[Ad]:
        return client.read_rate_reports(schedd, since)

    def _parse(self, schedd: str, rows: Sequence[Ad]) -> Iterator[TransferSample]:  # noqa: ARG002
        for row in rows:
            for text in row["reads"]:
                if sample := parse_read(str(text), str(row["user"]), str(row["job"])):
                    yield sample


def parse_read(text: str, user: str, job: str) -> TransferSample | None:
    """Parse ``SOURCE:BYTES:SECONDS:WHEN:SITE``, which a job's owner may have invented; None if it is bad."""
    parts = text.split(":")
    if len(parts) != 5 or not all(part.isascii() and part.isprintable() for part in parts):
        return None
    source, size, seconds, when, site = parts
    if max(map(len, (size, seconds, when))) > _MAX_DIGITS:
        return None
    with suppress(ValueError):
        ended_at, span = valid_time(int(when)), valid_number(float(seconds))
        count = valid_integer(int(size))
        if count and span and span > 0 and ended_at and source.strip() and site.strip():
            origin = TransferOrigin.WRAPPER
            return TransferSample(Site(source), Site(site), count, span, ended_at, origin, user, job)
    return None


class TransferRecords(ScheddTransferLog):
    """A ``TransferLog`` of the schedds' JOB_EPOCH_HISTORY.

    A record without a site waits in memory for the record at the end of its run, which has the site.

    Args:
        site_attributes: slot attributes with a slot's site; the first that the schedd recorded counts.
        find_site: returns the site of a host, or None; a transfer from a host without a site is ignored.
    """

    origin = TransferOrigin.SCHEDD

    def __init__(
        self,
        client: QueueClient,
        clock: Clock,
        site_attributes: Sequence[str],
        find_site: Callable[[str], Site | None],
    ) -> None:
        super().__init__(client, clock)
        self._site_attributes = site_attributes
        self._find_site = find_site
        self._waiting: OrderedDict[str, Ad] = OrderedDict()

    def _query(self, client: QueueClient, schedd: str, since: datetime) -> Sequence[Ad]:
        return client.read_transfer_records(schedd, since, self._site_attributes)

    def _parse(self, schedd: str, rows: Sequence[Ad]) -> Iterator[TransferSample]:
        ends = {row["run"]: row for row in rows if row["kind"] == "EPOCH" and row["run"]}
        for row in rows:
            if row["kind"] == "EPOCH":
                yield from self._samples(schedd, row, row)
                if waiting := self._waiting.pop(f"{schedd} {row['run']}", None):
                    yield from self._samples(schedd, waiting, row)
            elif row["site"] and row["user"]:
                yield from self._samples(schedd, row, row)
            elif end := ends.get(row["run"]):
                yield from self._samples(schedd, row, end)
            elif row["files"] and row["run"]:
                self._waiting[f"{schedd} {row['run']}"] = row
                if len(self._waiting) > MAX_WAITING_RUNS:
                    self._waiting.popitem(last=False)

    def _samples(self, schedd: str, row: Ad, end: Ad) -> Iterator[TransferSample]:
        """Yield the transfers in *row*, of the run whose site and user are in *row* or in *end*."""
        site, user = row["site"] or end["site"], row["user"] or end["user"] or ""
        for number, file in enumerate(row["files"] if site else ()):
            source = self._find_site(_host_of(schedd, file))
            ended_at = valid_time(file["ended_at"])
            if source and ended_at:
                job = f"{schedd} {row['run']} {number}"
                size, seconds = file["bytes"], file["seconds"]
                yield TransferSample(source, Site(site), size, seconds, ended_at, self.origin, user, job)


def _host_of(schedd: str, file: Mapping[str, Any]) -> str:
    """Return the host that sent *file*; files without a host came from the host of *schedd*."""
    return str(file["host"] or schedd.rpartition("@")[2])
