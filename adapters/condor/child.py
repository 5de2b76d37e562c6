"""The child process: the only code of ours that imports ``htcondor2`` and ``classad2``.

It answers one request a line on the socket it gets as file descriptor 0, each
``{"id": …, "call": …, "args": {…}}``, with one line, ``{"id": …, "ok": …}`` or
``{"id": …, "error": {…}}``. The bindings may print what they like: descriptor 1
is pointed at descriptor 2, which the parent keeps and reads when we fail.

What the bindings say of a failure is one vague sentence; the reason stands in
the security log. So that log is switched on, goes to descriptor 2, is emptied
before each request and read after a failed one.
"""
# ruff: noqa: ANN401  (the bindings have no types)

import ctypes
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
SITE_AD_TYPE = "DataLocality"
SITE_AD_ATTRIBUTES = (
    "Name",
    "DataLocalitySite",
    "DataLocalityGeneration",
    "DataLocalityAsOf",
    "DataLocalityTruncated",
    "DataLocalityTrust",
    "DataLocalityVersion",
    "ClassAdLifetime",
    "LastHeardFrom",
    "AuthenticatedIdentity",
)
SETTLE_SECONDS = 3.0
"""How long an advertisement may take to show: the collector answers queries from forked copies of itself."""
EDITS_AT_ONCE = 1000
REMOVED, COMPLETED = 3, 4  # JobStatus
Ad = dict[str, Any]


class Failed(Exception):
    """What the parent raises: *kind* is ``pool``, ``denied`` or ``usage``."""

    def __init__(self, kind: str, reason: str, daemon: str | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.daemon = daemon


def explain(log: str) -> tuple[str, str] | None:
    """The kind and reason of a failure, from the security log of the request that failed."""
    denied = re.findall(r'"DENIED" from server for user (\S+) using (?:method (\w+)|no)', log)
    if denied and not denied[-1][0].startswith("unauthenticated@"):
        user, method = denied[-1]
        return "denied", f"it knows us as {user} (by {method}) and denies that identity"
    if refused := re.findall(r"attempt to connect to <([^>?]*)[^>]*> failed: ([^(.\n]*)", log):
        address, reason = refused[-1]
        return "pool", f"no connection to {address}: {reason.strip()}"
    tried = re.findall(r"Failed to authenticate using (\w+)|AUTHENTICATE: method \d+ \((\w+)\) failed", log)
    if denied or (tried and "Authentication was a Success" not in log):
        methods = ", ".join(sorted({"".join(pair) for pair in tried})) or "none"
        missing = "; there was no token for this pool" if "No token found" in log else ""
        strangers = " and denies strangers" if denied else ""
        return "denied", f"it accepted none of our credentials (tried {methods}{missing}){strangers}"
    return None


class Pool:
    """The calls that a parent may make; every argument and every answer is JSON."""

    def __init__(self) -> None:
        import classad2
        import htcondor2

        self._classad = classad2
        self._htcondor = htcondor2
        htcondor2.enable_debug("D_SECURITY")

    # what the collector holds

    def site_ads(self) -> list[Ad]:
        return self._query("Any", SITE_AD_ATTRIBUTES, f'MyType == "{SITE_AD_TYPE}"')

    def advertise(self, ads: Sequence[tuple[str, str]], lifetime: int) -> int | None:
        """Send the ads; answer when the collector heard the last of them by its own clock, None if unseen."""
        made = [self._site_ad(name, text, lifetime) for name, text in ads]
        self._send(made, "UPDATE_AD_GENERIC")
        sent = {ad["Name"]: (ad.get("DataLocalityGeneration"), ad.get("DataLocalityAsOf")) for ad in made}

        def shown(ads: list[Ad]) -> bool:
            seen = {ad["Name"]: (ad["DataLocalityGeneration"], ad["DataLocalityAsOf"]) for ad in ads}
            return all(seen.get(name) == what for name, what in sent.items())

        ads_now = self._settle(shown)
        return max((ad["LastHeardFrom"] for ad in ads_now if ad["Name"] in sent), default=None)

    def invalidate(self, names: Sequence[str]) -> None:
        self._send([self._farewell(name) for name in names], "INVALIDATE_ADS_GENERIC")
        self._settle(lambda ads: not {ad["Name"] for ad in ads} & set(names))

    def slots(self, attributes: Sequence[str], constraint: str) -> list[Ad]:
        return self._query("Slot", attributes, constraint)

    # the schedds

    def schedds(self) -> list[Ad]:
        return self._query("Schedd", ("Name", "Machine", "CondorVersion"))

    def queued_datasets(self, schedd: str) -> list[tuple[list[str], int]]:
        """Jobs by RequiredDatasets, removed and completed ones left out.

        GroupBy answers one ad, with a JobCount, for each combination of the
        projected attributes; its constraint sees these attributes only. All are
        asked for: "isnt undefined" would hide a list that refers to nothing.
        Items of a late-materialization factory that are no jobs yet are seen
        by the factory's cluster ad alone, which has the list of its first
        item: it counts as one job, however many are to come.
        """
        queue = self._schedd(schedd)
        options = self._htcondor.QueryOpt
        counts: dict[tuple[str, ...], int] = {}

        def add(ads: Iterable[Any], jobs: Callable[[Any], int]) -> None:
            for ad in ads:
                if "RequiredDatasets" in ad:
                    datasets = self._datasets(ad)
                    counts[datasets] = counts.get(datasets, 0) + jobs(ad)

        grouped = queue.query("true", ["RequiredDatasets", "JobStatus"], opts=options.GroupBy)
        live = (ad for ad in grouped if self._scalar(ad, "JobStatus") not in {REMOVED, COMPLETED})
        add(live, lambda ad: self._scalar(ad, "JobCount") or 1)
        factories = queue.query(
            "ProcId is undefined && JobMaterializeDigestFile isnt undefined "
            f"&& JobStatus =!= {REMOVED} && JobStatus =!= {COMPLETED} "
            "&& (TotalSubmitProcs > JobMaterializeNextProcId) =!= false",
            ["RequiredDatasets"],
            opts=options.IncludeClusterAd,
        )
        add(factories, lambda _: 1)
        return [(list(datasets), jobs) for datasets, jobs in sorted(counts.items()) if jobs]

    def release(self, schedd: str, constraint: str) -> int:
        """Set DataLocalityHere to true; counts what the queue shows afterwards.

        A 23.9 schedd that refuses an edit answers as if it had done it.
        """
        queue = self._schedd(schedd)
        self._expression(constraint, "the constraint")
        held_back = (
            f"({constraint}) && DataLocalityTransformed =?= true && DataLocalityHere =!= true "
            f"&& JobStatus =!= {REMOVED} && JobStatus =!= {COMPLETED}"
        )
        ids = ["ClusterId", "ProcId"]
        jobs = [f"{ad['ClusterId']}.{ad['ProcId']}" for ad in queue.query(held_back, ids)]
        for start in range(0, len(jobs), EDITS_AT_ONCE):
            try:
                queue.edit(jobs[start : start + EDITS_AT_ONCE], "DataLocalityHere", "true")
            except self._htcondor.HTCondorException as exc:
                if found := re.search(r"commit transaction: *(.+)", str(exc)):
                    raise Failed("denied", found[1].strip()) from exc
                raise
        left = {f"{ad['ClusterId']}.{ad['ProcId']}" for ad in queue.query(held_back, ids)} if jobs else set()
        if refused := [job for job in jobs if job in left]:
            raise Failed(
                "denied", f"it did not let us edit {len(refused)} of {len(jobs)} jobs ({refused[0]} first)"
            )
        return len(jobs)

    # daemons

    def config_of(self, daemon: str, names: Sequence[str], name: str | None) -> dict[str, str | None]:
        known = self._htcondor.RemoteParam(self._locate(daemon, name))
        spelling = {key.upper(): key for key in known}
        return {want: known[spelling[want.upper()]] if want.upper() in spelling else None for want in names}

    def ping(self, daemon: str, level: str, name: str | None) -> Ad:
        ad = self._htcondor.ping(self._locate(daemon, name), level)
        return {
            "identity": self._scalar(ad, "MyRemoteUserName"),
            "method": self._scalar(ad, "AuthMethods"),
            "allowed": self._scalar(ad, "AuthorizationSucceeded") is True,
        }

    # helpers

    def _ask(self, ad_type: str, attributes: Sequence[str], constraint: str) -> list[Any]:
        """Ads from the first collector that answers."""
        kind = getattr(self._htcondor.AdType, ad_type)
        try:
            return list(self._htcondor.Collector().query(kind, constraint, list(attributes)))
        except self._htcondor.HTCondorException as exc:
            where = f"collector {', '.join(self._collectors())}".strip()
            raise Failed(*(explain(read_log()) or ("pool", str(exc))), where) from exc

    def _collectors(self) -> list[str]:
        """The addresses of all collectors: the bindings would stop at the first that is down."""
        found = re.split(r"[,\s]+", self._htcondor.param.get("COLLECTOR_HOST", ""))
        return [address for address in found if address]

    def _send(self, ads: list[Any], command: str) -> None:
        collectors = self._collectors()
        if not collectors:
            raise Failed("pool", "no collector is configured (COLLECTOR_HOST)")
        failures = []
        for address in collectors:
            try:
                self._htcondor.Collector(address).advertise(ads, command)
            except self._htcondor.HTCondorException as exc:
                kind, reason = explain(read_log()) or ("pool", str(exc))
                failures.append(Failed(kind, reason, f"collector {address}"))
        if failures:
            raise failures[0]

    def _settle(self, done: Callable[[list[Ad]], bool]) -> list[Ad]:
        """Ask until *done* or for SETTLE_SECONDS: an update is acknowledged by nobody."""
        deadline = time.monotonic() + SETTLE_SECONDS
        pause = 0.01
        while True:
            ads = self.site_ads()
            if done(ads) or time.monotonic() > deadline:
                return ads
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _site_ad(self, name: str, text: str, lifetime: int) -> Any:
        ad = self._classad.ClassAd()
        for line in text.splitlines():
            attribute, _, literal = line.partition(" = ")
            ad[attribute] = self._expression(literal, f"{attribute} of site {name}")
        ad["MyType"] = SITE_AD_TYPE
        ad["Name"] = name
        ad["ClassAdLifetime"] = lifetime
        return ad

    def _farewell(self, name: str) -> Any:
        """A query ad for INVALIDATE_ADS_GENERIC: TargetType is the type of the ads to go, not "Generic"."""
        ad = self._classad.ClassAd()
        ad["MyType"] = "Query"
        ad["TargetType"] = SITE_AD_TYPE
        ad["Name"] = name
        ad["Requirements"] = self._classad.ExprTree(f"Name =?= {self._classad.quote(name)}")
        return ad

    def _query(self, ad_type: str, attributes: Sequence[str], constraint: str = "true") -> list[Ad]:
        self._expression(constraint, "the constraint")
        return [self._plain(ad, attributes) for ad in self._ask(ad_type, attributes, constraint)]

    def _locate(self, daemon: str, name: str | None) -> Any:
        kinds = {"startd": "StartDaemon", "slot": "Slot", "schedd": "Schedd", "negotiator": "Negotiator"}
        kind = kinds.get(daemon, daemon.capitalize())
        constraint = "true" if name is None else f"Name =?= {self._classad.quote(name)}"
        attributes = ["Name", "MyAddress", "MyType", "CondorVersion", "AddressV1"]
        found = [ad for ad in self._ask(kind, attributes, constraint) if "MyAddress" in ad]
        if not found:
            raise Failed(
                "pool", "the collector knows none" if name is None else "the collector does not know it"
            )
        return min(found, key=lambda ad: str(ad.get("Name", "")))

    def _schedd(self, name: str) -> Any:
        return self._htcondor.Schedd(self._locate("schedd", name))

    def _datasets(self, ad: Any) -> tuple[str, ...]:
        """The strings of RequiredDatasets; its text, which is no DID, where it is no list of strings."""
        with suppress(Exception):
            value = ad.eval("RequiredDatasets")
            if isinstance(value, list):
                items = [
                    item.eval(ad) if isinstance(item, self._classad.ExprTree) else item for item in value
                ]
                if items and all(isinstance(item, str) for item in items):
                    return tuple(items)
        return (f"RequiredDatasets = {unparsed(ad, 'RequiredDatasets')}",)

    def _plain(self, ad: Any, attributes: Sequence[str]) -> Ad:
        return {attribute: self._scalar(ad, attribute) for attribute in attributes}

    def _scalar(self, ad: Any, attribute: str) -> Any:
        """A literal as itself, undefined as None, any other expression as its text."""
        try:
            value = ad[attribute]
        except KeyError:
            return None
        except Exception:  # noqa: BLE001  (bytes that are no UTF-8 raise SystemError here)
            return unparsed(ad, attribute)
        if isinstance(value, (bool, int, float, str)):
            return value
        if value is self._classad.Value.Undefined:
            return None
        return unparsed(ad, attribute)

    def _expression(self, text: str, what: str) -> Any:
        try:
            return self._classad.ExprTree(text)
        except Exception as exc:
            raise Failed("usage", f"{what} is not a ClassAd expression: {text[:200]}") from exc


def unparsed(ad: Any, attribute: str) -> str:
    """The text of an expression on one line; in ClassAd text a line break never stands inside a string."""
    return re.sub(r"\s*\n\s*", " ", str(ad.lookup(attribute))).strip()


def read_log() -> str:
    """What descriptor 2 took since this request began, where it is a file."""
    with suppress(OSError):
        return os.pread(2, 200_000, 0).decode("utf-8", "replace")
    return ""


def answer(pool: Pool, request: Mapping[str, Any]) -> dict[str, Any]:
    """Make one call; every failure becomes an answer."""
    with suppress(OSError):
        os.ftruncate(2, 0)
    try:
        return {"ok": getattr(pool, request["call"])(**request["args"])}
    except Failed as exc:
        return {"error": {"kind": exc.kind, "reason": exc.reason, "daemon": exc.daemon}}
    except Exception as exc:  # noqa: BLE001  (whatever the bindings raise, the parent decides)
        kind, reason = explain(read_log()) or ("pool", f"{exc}" or type(exc).__name__)
        return {"error": {"kind": kind, "reason": reason, "daemon": None}}


def die_with_parent() -> None:
    """Let the kernel end us when the thread that started us ends, also while C++ code blocks."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def take_channel() -> socket.socket:
    """The socket on descriptor 0, moved where nothing that prints or reads can reach it."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return channel


def main() -> NoReturn:
    """Answer requests until the parent closes its end."""
    die_with_parent()
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the parent decides when we end
        signal.signal(ignored, signal.SIG_IGN)
    channel = take_channel()
    pool = Pool()
    with channel, channel.makefile("rb") as requests:
        channel.sendall(b'{"id": 0, "ok": "ready"}\n')
        for line in requests:
            request = json.loads(line)
            reply = {"id": request["id"], **answer(pool, request)}
            channel.sendall(json.dumps(reply).encode() + b"\n")
    sys.exit(0)


if __name__ == "__main__":
    main()
