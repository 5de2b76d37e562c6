"""HTCondor's Python bindings, their values, and the steps that calls to daemons share, in the child process.

The bindings report a failure in one vague sentence; the reason is in HTCondor's security log. So the child
enables this log, writes it to descriptor 2, empties it before each request and reads it after a failure.
In a value, ``undefined`` and ``error`` are members of an integer enumeration.
"""
# ruff: noqa: ANN401  (the bindings have no types)

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeGuard

from hydrator.domain.ads import contract

if TYPE_CHECKING:  # the child starts without dataclasses
    from hydrator.domain.daemon_probe import DaemonKind

Ad = dict[str, Any]
"""Attributes of an ad, or fields of a row, as JSON."""
FIRST_COLLECTOR = "HYDRATOR_FIRST_COLLECTOR"
"""Environment variable of the child: the index, from 0, of the collector that it queries first."""
SITE_WIDE_ATTRIBUTES = (
    contract.AVAILABLE_DATASETS,
    contract.DATASET_STATES,
    contract.DATASET_FRACTIONS,
    contract.DATASET_AS_OF,
    contract.SETS,
    contract.SETS_AS_OF,
    contract.OPEN,
    contract.READ_FROM,
)
"""Long attributes, equal on all slots of a site that have the same generation."""
MAX_MISSES_OF_JOB = 50
"""Misses of one job that are read, since its owner may write any number of them."""
MAX_MISS_CHARS = 2000
"""Characters of one miss that are read."""


def is_plain(value: object) -> TypeGuard[str | int | float | bool]:
    """Return True for a text, a number or a truth value, but not for ``undefined`` and ``error``."""
    return isinstance(value, (str, float, bool)) or type(value) is int


def is_number(value: object) -> TypeGuard[int | float]:
    """Return True for a number that is not a truth value, NaN or infinity."""
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


def job_order(job: str) -> tuple[int, ...]:
    """Return the ClusterId and the ProcId of the id *job*: older jobs have smaller ones."""
    return tuple(map(int, job.split(".")))


def expression_text(ad: Any, attribute: str) -> str:
    """Return the text of an expression on one line; ClassAd text has no line break inside a string."""
    lines = map(str.strip, str(ad.lookup(attribute)).split("\n"))
    return " ".join(line for line in lines if line)


_STRING_TEXT = r'"(?:[^"\\]|\\.)*+"'
_PLAIN_TEXT = re.compile(
    rf"\s*(?:{_STRING_TEXT}|-?[0-9][0-9.eE+-]*|\{{\s*(?:{_STRING_TEXT}\s*,\s*)*+(?:{_STRING_TEXT}\s*)?\}})\s*",
    re.DOTALL,
)
"""The text of a string, a number or a list of strings."""


def read_plain(ad: Any, attribute: str) -> Any:
    """Return the value of an attribute that a job's owner can set; None if it is not a plain literal.

    The text is checked first: bindings before 25.13.2 evaluate ``+X = false ? {} : X`` without end.
    """
    if attribute not in ad or not _PLAIN_TEXT.fullmatch(str(ad.lookup(attribute))):
        return None
    with suppress(Exception):
        return ad.eval(attribute)
    return None


def read_text(ad: Any, attribute: str, max_length: int = MAX_MISS_CHARS) -> str | None:
    """Return a text that a job's owner can set; None if it is too long, or not a plain literal."""
    value = read_plain(ad, attribute)
    return value if isinstance(value, str) and len(value) <= max_length else None


def read_strings(ad: Any, attribute: str) -> list[str]:
    """Return the strings in a list attribute. The value is untrusted: any job's owner can set it."""
    value = read_plain(ad, attribute)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


RESOURCES = ("Cpus", "Memory", "Disk", "GPUs")
"""Resources of a slot. Those of a partitionable one are the free amounts; ``TotalSlotCpus`` is all."""
NOT_DEFINED = "Not defined"
"""A daemon returns this text for a setting that HTCondor knows but that has no value."""
REAL_SLOT = "IsDataSlot =!= true"
"""The constraint of all queries for slots. A data slot of HTCondor 25 (``data1_1@…``) runs no job: it keeps
common input files.
"""
NOT_DYNAMIC_SLOT = "DynamicSlot =!= true"
"""Excludes dynamic slots: they are claimed and short-lived; jobs match the slot that they were cut from."""
LOCATION_ATTRIBUTES = ("Name", "MyAddress", "MyType", "CondorVersion", "AddressV1")
"""Attributes of a daemon's ad that the bindings need to connect to it."""


class CallError(Exception):
    """A failure that the parent process raises again: *kind* is ``pool``, ``denied`` or ``usage``."""

    def __init__(self, kind: str, reason: str, daemon: str | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.daemon = daemon


def explain_failure(log: str) -> tuple[str, str] | None:
    """Return the kind and reason of a failure, from the security log of the request that failed."""
    denials = re.findall(r'"DENIED" from server for user (\S+) using (?:method (\w+)|no)', log)
    if denials and not denials[-1][0].startswith("unauthenticated@"):
        user, method = denials[-1]
        return "denied", describe_denial(user, method)
    if connections := re.findall(r"attempt to connect to <([^>?]*)[^>]*> failed: ([^(.\n]*)", log):
        address, reason = connections[-1]
        return "pool", f"no connection to {address}: {reason.strip()}"
    attempts = re.findall(
        r"Failed to authenticate using (\w+)|AUTHENTICATE: method \d+ \((\w+)\) failed", log
    )
    if denials or (attempts and "Authentication was a Success" not in log):
        methods = ", ".join(sorted({"".join(pair) for pair in attempts})) or "none"
        missing = "; there was no token for this pool" if "No token found" in log else ""
        anonymous = " and denies unauthenticated clients" if denials else ""
        return "denied", f"it accepted none of the credentials (tried {methods}{missing}){anonymous}"
    return None


def describe_denial(identity: str, method: str) -> str:
    """Return the reason of a denial, from which the parent process parses identity and method."""
    return f"it authenticated the client as {identity} (by {method}) and denies that identity"


def failure_of(error: Exception, daemon: str | None = None) -> CallError:
    """Return a CallError for *error*; its reason is from the security log, else the text of *error*."""
    log = ""
    with suppress(OSError):  # descriptor 2 is not always a file
        log = os.pread(2, 200_000, 0).decode("utf-8", "replace")
    kind, reason = explain_failure(log) or ("pool", f"{error}" or type(error).__name__)
    return CallError(kind, reason, daemon)


class Bindings:
    """The modules ``htcondor2`` and ``classad2``, with queries and conversions to JSON.

    Only ``hydrator submit`` imports these two modules too: for a user's own submit file, without a daemon.
    """

    def __init__(self) -> None:
        import classad2
        import htcondor2

        self.classad = classad2
        self.htcondor = htcondor2
        htcondor2.enable_debug("D_SECURITY")

    # calls to any daemon, and calls that contact no daemon

    def ping(self, daemon: str, level: str, name: str | None) -> Ad:
        """Ask *daemon* for this client's identity, and whether the identity is authorized for *level*."""
        ad = self.htcondor.ping(self.locate(daemon, name), level)
        return {
            "identity": self.scalar(ad, "MyRemoteUserName"),
            "method": self.scalar(ad, "AuthMethods"),
            "allowed": self.scalar(ad, "AuthorizationSucceeded") is True,
        }

    def config_of(
        self, daemon: "DaemonKind", names: Iterable[str], name: str | None = None
    ) -> dict[str, str | None]:
        """Return configuration values of *daemon*, None for an undefined value; it must authorize READ.

        *name* selects one of several daemons, a collector by its address; None takes the first daemon.
        """
        config = self.htcondor.RemoteParam(self.locate(daemon, name))
        spelling = {key.upper(): key for key in config}
        values = {key: config[spelling[key.upper()]] for key in names if key.upper() in spelling}
        defined = {key: value for key, value in values.items() if value != NOT_DEFINED}
        return {key: defined.get(key) for key in names}

    def token_folders(self) -> list[str]:
        """Return the folders where HTCondor looks for this user's IDTOKENS, without contacting a daemon."""
        names = ["SEC_TOKEN_DIRECTORY", *(["SEC_TOKEN_SYSTEM_DIRECTORY"] if os.geteuid() == 0 else [])]
        folders = [self.htcondor.param.get(name, "") for name in names]
        home = os.path.expanduser("~/.condor/tokens.d")  # noqa: PTH111 - HTCondor's default, as text
        return [folder or home for folder in folders if folder or os.geteuid() != 0]

    def check_expressions(self, expressions: Mapping[str, str]) -> None:
        """Raise CallError unless each text is a ClassAd expression, both without and with parentheses.

        The message names the text by its key.
        """
        for description, text in expressions.items():
            self.parse_expression(text, description)
            self.parse_expression(f"({text})", description)

    # queries

    def collector_addresses(self) -> list[str]:
        """Return the addresses of all collectors; collectors that hung at the last query come last.

        Without an address the bindings would choose a collector at random, and wait for its answer longer
        than the parent waits for this process.
        """
        parts = re.split(r"[,\s]+", self.htcondor.param.get("COLLECTOR_HOST", ""))
        addresses = [address for address in parts if address]
        first = int(os.environ.get(FIRST_COLLECTOR, "0")) % max(1, len(addresses))
        return addresses[first:] + addresses[:first]

    def query_ads(
        self, ad_type: str, attributes: Sequence[str], constraint: str, collector: str | None = None
    ) -> list[Any]:
        """Return ads from the first collector that answers, or from *collector*."""
        kind = getattr(self.htcondor.AdType, ad_type)
        constraint = f"({constraint}) && {REAL_SLOT}" if ad_type == "Slot" else constraint
        addresses = [collector] if collector else self.collector_addresses() or [""]
        for address in addresses:
            try:
                return list(
                    self.htcondor.Collector(address or None).query(kind, constraint, list(attributes))
                )
            except self.htcondor.HTCondorException as exc:
                failure, cause = failure_of(exc, f"collector {', '.join(addresses)}".strip()), exc
        raise failure from cause

    def query_scalars(
        self,
        ad_type: str,
        attributes: Sequence[str],
        constraint: str = "true",
        collector: str | None = None,
    ) -> list[Ad]:
        """Return the ads of :meth:`query_ads` as JSON."""
        self.parse_expression(constraint, "the constraint")
        ads = self.query_ads(ad_type, attributes, constraint, collector)
        return [self.scalars(ad, attributes) for ad in ads]

    def locate(self, daemon: str, name: str | None) -> Any:
        """Return the ad of a daemon; the bindings need the ad to connect to the daemon."""
        if daemon == "collector" and name is not None:
            return self._find_collector_ad(name)
        kinds = {"startd": "StartDaemon", "slot": "Slot", "schedd": "Schedd", "negotiator": "Negotiator"}
        constraint = "true" if name is None else f"Name =?= {self.classad.quote(name)}"
        ads = self.query_ads(kinds.get(daemon, daemon.capitalize()), LOCATION_ATTRIBUTES, constraint)
        located = [ad for ad in ads if "MyAddress" in ad]
        if not located:
            which = f"any {daemon}" if name is None else "this daemon"
            raise CallError("pool", f"the collector has no ad of {which}")
        return min(located, key=lambda ad: str(ad.get("Name", "")))

    def _find_collector_ad(self, address: str) -> Any:
        """Query the collector at *address*; return its own ad, or the first ad if none has that port."""
        ads = self.query_ads("Collector", LOCATION_ATTRIBUTES, "true", address)
        located = [ad for ad in ads if "MyAddress" in ad]
        port = address.rpartition(":")[2]
        own = [ad for ad in located if re.search(rf":{re.escape(port)}\b", str(ad["MyAddress"]))]
        if not located:
            raise CallError("pool", "the collector has no ad of itself", f"collector {address}")
        return (own or located)[0]

    def schedd(self, name: str) -> Any:
        """Return the bindings' object for the schedd *name*."""
        return self.htcondor.Schedd(self.locate("schedd", name))

    # values

    def scalars(self, ad: Any, attributes: Sequence[str]) -> Ad:
        """Return a dict with the result of :meth:`scalar` for each attribute."""
        return {attribute: self.scalar(ad, attribute) for attribute in attributes}

    def scalar(self, ad: Any, attribute: str) -> Any:
        """Return the value of a literal, None for undefined, and the text of any other expression."""
        try:
            value = ad[attribute]
        except KeyError:
            return None
        except Exception:  # noqa: BLE001  (bytes that are not UTF-8 raise SystemError here)
            return expression_text(ad, attribute)
        if is_plain(value):
            return value
        if value is self.classad.Value.Undefined:
            return None
        return expression_text(ad, attribute)

    def parse_expression(self, text: str, description: str) -> Any:
        """Parse *text* into an expression object of the bindings."""
        try:
            return self.classad.ExprTree(text)
        except Exception as exc:
            raise CallError("usage", f"{description} is not a ClassAd expression: {text[:200]}") from exc
