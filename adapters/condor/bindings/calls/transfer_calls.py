"""Calls that read finished transfers from schedds, in the child process.

Observed on HTCondor 23.9.6 and 25.14.1: the schedd's epoch history has one ``INPUT`` record for each run of a
job whose input a transfer plugin fetched, written when the transfer ends, and one ``EPOCH`` record at the end
of the run. The ``INPUT`` record of 25.14 has ``User``, ``Owner`` and ``RemoteHost``; that of 23.9 has none of
them. The attributes in ``TRANSFER_JOB_ATTRS`` of the schedd's configuration are in it on both releases; on
23.9 they replace ``ClusterId`` and ``ProcId``, unless the operator extends the default.
HTCondor 23.9 writes no epoch history unless ``JOB_EPOCH_HISTORY`` is set.
"""
# ruff: noqa: ANN401  (the bindings have no types)

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from adapters.condor.bindings.library import Bindings
from adapters.condor.bindings.values import Ad, is_number, read_strings

READS_ATTRIBUTE = "ChirpDataLocalityReads"
MIN_BYTES = 100_000_000
"""Smallest file whose transfer is returned; smaller ones measure delays, not the link."""
MAX_REPORTS_OF_USER = 200
"""Jobs with reports of one user in one answer."""
MAX_REPORTS = 5000
MAX_READS_OF_JOB = 10
MAX_READ_CHARS = 300
MAX_ENDED_JOBS = 20_000
"""Ended jobs with reports that one call reads."""
MAX_RECORDS = 10_000
"""Records of the epoch history that one call reads, the newest."""
_RUN = ("ClusterId", "ProcId", "NumShadowStarts")
_CEDAR = "CedarSizeBytesLastRun"


class TransferCalls(Bindings):
    """Queries of finished transfers."""

    def read_rate_reports(self, schedd: str, since: int) -> list[Ad]:
        """Return the jobs with reports: those in the queue, and those that ended after *since*."""
        queue, scalar = self.schedd(schedd), self.scalar
        constraint = f"{READS_ATTRIBUTE} isnt undefined"
        attributes = [READS_ATTRIBUTE, "User", "GlobalJobId"]
        ads = list(queue.query(constraint, attributes))
        ads += queue.history(constraint, attributes, MAX_ENDED_JOBS, since=f"EnteredCurrentStatus < {since}")
        rows: list[Ad] = []
        counts: dict[str, int] = {}
        for ad in ads:
            user = str(scalar(ad, "User"))
            counts[user] = counts.get(user, 0) + 1
            if counts[user] > MAX_REPORTS_OF_USER or len(rows) == MAX_REPORTS:
                continue
            reads = [text[:MAX_READ_CHARS] for text in read_strings(ad, READS_ATTRIBUTE)[:MAX_READS_OF_JOB]]
            rows.append({"user": user, "job": str(scalar(ad, "GlobalJobId")), "reads": reads})
        return rows

    def read_transfer_records(self, schedd: str, since: int, site_attributes: Sequence[str]) -> list[Ad]:
        """Return the records of input transfers and of ended runs that are newer than *since* (Unix s)."""
        machine_attributes = [f"MachineAttr{name}0" for name in site_attributes]
        ads = self.schedd(schedd).jobEpochHistory(
            "true",
            [
                *_RUN, "EpochAdType", "EpochWriteDate", "User", "InputPluginResultList", "TransferInputStats",
                "TransferInStarted", "TransferInFinished", *machine_attributes,
            ],
            MAX_RECORDS,
            since=f"EpochWriteDate < {since}",
            ad_type=["INPUT", "EPOCH"],
        )  # fmt: skip
        return [self._transfer_row(ad, machine_attributes) for ad in ads]

    def _transfer_row(self, ad: Any, machine_attributes: Sequence[str]) -> Ad:
        scalar = self.scalar
        site = next((scalar(ad, name) for name in machine_attributes if scalar(ad, name)), None)
        is_input = "InputPluginResultList" in ad  # 23.9 omits EpochAdType
        files = list(_read_results(ad)) if is_input else self._read_schedd_transfer(ad)
        run = [scalar(ad, name) for name in _RUN]
        return {
            "kind": "INPUT" if is_input else "EPOCH",
            "run": None if None in run else ".".join(map(str, run)),
            "site": site if isinstance(site, str) else None,
            "user": user if isinstance(user := scalar(ad, "User"), str) else None,
            "files": files,
        }

    def _read_schedd_transfer(self, ad: Any) -> list[Ad]:
        """Return the transfer from the schedd (``host`` is None), if no plugin took part in it."""
        sizes: dict[str, Any] = {}
        with suppress(Exception):
            stats = dict(ad.eval("TransferInputStats").items())
            sizes = {name: size for name, size in stats.items() if name.endswith("SizeBytesLastRun")}
        begin, end = self.scalar(ad, "TransferInStarted"), self.scalar(ad, "TransferInFinished")
        if list(sizes) != [_CEDAR] or not (is_number(begin) and is_number(end)):
            return []
        row = _file_row(None, sizes[_CEDAR], end - begin, end)
        return [row] if row else []


def _read_results(ad: Any) -> Iterator[Ad]:
    """Yield the successful downloads in an ``INPUT`` record; the plugin may be the job owner's own."""
    results: Any = None
    with suppress(Exception):
        results = ad.eval("InputPluginResultList")
    for result in results if isinstance(results, list) else []:
        with suppress(Exception):
            row = _read_result(dict(result.items()))
            if row:
                yield row


def _read_result(result: Mapping[str, Any]) -> Ad | None:
    if result.get("TransferSuccess") is not True or result.get("TransferType") not in {None, "download"}:
        return None
    begin, end = result.get("TransferStartTime"), result.get("TransferEndTime")
    if not (is_number(begin) and is_number(end)):
        return None
    host = _find_host(result)
    return _file_row(host, result.get("TransferTotalBytes"), _find_seconds(result, end - begin), end)


def _find_seconds(result: Mapping[str, Any], span: float) -> float:
    """Return the seconds of a transfer.

    Start and end are whole seconds. The curl plugin also has the exact time, as ``ConnectionTimeSeconds``;
    for other plugins this is the time to connect. Without the exact time a span below 2 s is useless.
    """
    exact = result.get("ConnectionTimeSeconds")
    is_curl = str(result.get("TransferProtocol")).lower() in {"http", "https", "ftp"}
    if is_curl and is_number(exact) and span - 1 <= exact <= span + 1:
        return exact
    return span if span >= 2 else 0.0


def _find_host(result: Mapping[str, Any]) -> str:
    """Return the host that sent the data: of the cache that had them, else of the server."""
    details = dict(result.get("DeveloperData") or {})
    is_cached = str(details.get("HttpCacheHitOrMiss")).upper() == "HIT"
    cache = details.get("HttpCacheHost") if is_cached else None
    names = (cache, details.get("Endpoint"), result.get("TransferUrl"))
    named = next((name for name in names if isinstance(name, str) and name), "")
    address = named[:MAX_READ_CHARS]
    return urlsplit(address if "//" in address else f"//{address}").hostname or ""


def _file_row(host: str | None, size: object, seconds: float, ended_at: float) -> Ad | None:
    if not is_number(size) or size < MIN_BYTES or seconds <= 0:
        return None
    return {"host": host, "bytes": int(size), "seconds": float(seconds), "ended_at": float(ended_at)}
