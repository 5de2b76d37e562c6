#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
""":"
# sh runs this part: sh finds a Python and starts it in isolated mode (-I -S: no PYTHONPATH, no site-packages,
# half the start-up time). Python runs the part below. If a node has no Python, the exit status is 2, but 0
# under GlideinWMS: another status would end the glidein.
for python in python3 /usr/libexec/platform-python; do
    command -v "$python" >/dev/null 2>&1 && exec "$python" -I -S "$0" "$@"
done
echo "hydrator hook: no python3 on PATH=$PATH: install Python 3.6 or later" >&2
case "$1" in *glidein_config) exit 0 ;; esac
exit 2
":"""

__doc__ = """The hook: prints one site's data-locality ad into the slot ads of the startd that runs it.

The hook is one file for Python 3.6 or later that needs the standard library only, because administrators copy
it to worker nodes, where STARTD_CRON runs it. ``--help`` lists the options. If an option is not on the
command line, the hook reads ``HYDRATOR_<OPTION>`` from the environment, else from a glidein's
``glidein_config`` file.

The hook prints these lines. After a failure without a local copy it prints only the first three::

    <empty line>                   ends an incomplete line of an earlier run; else the next line is lost
    DataLocalityError = undefined    or the reason why this run failed
    - trouble
    <empty line>
    DataLocalityOpen = (...)         the openings; without openings in the ad, the hook omits this block
    ...
    - openings update:true           `update:true` if this startd got other openings of this generation last
    <empty line>
    DataLocalitySite = "UK"          the contract's attributes; the hook parses the ad of the source
    ...                              and prints only the parsed values
    DataLocalitySource = "hook"
    - locality update:true           `update:true` if this startd got another generation last

Exit status 0: the hook printed the source's current answer. 1: the source failed. Then the hook printed
the source's last answer from the local copy with the old ``DataLocalityAsOf``, so expressions can compute
the age. Without a local copy, or if the source refuses access or does not have the site, the hook printed
only the error; the startd then keeps the earlier attributes.
2: wrong usage or configuration; the hook printed the error only.

With every status but 0 the hook prints one line on stderr, which the startd does not log, and the same text
in ``DataLocalityError``. The startd publishes the output with any status. Under GlideinWMS (the first
argument is its ``glidein_config``) the status is always 0: another status would end the glidein at its
start, and later mark the glidein as failing.

The clock of a source may be up to MAX_SKEW_SECONDS ahead of this node's clock. The hook then replaces the
``DataLocalityAsOf`` of the source by this node's time, so facts age from now on. The hook rejects an answer
whose time is further ahead: jobs would accept its facts for too long.

The hook reads ads of contract version CONTRACT only. An ad of another version is a failure of the source, so
the slots keep the last answer, and ``DataLocalityError`` names both versions.
"""

import os
import sys
import time

TYPE_CHECKING = False  # `typing` costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPConnection, HTTPResponse
    from typing import Any

VERSION = "0.1.0"
CONTRACT = 1
"""The contract version of ads that this hook reads; see docs/reference/attributes.md."""
TAGS = ("trouble", "openings", "locality")
"""All tags of the contract, in the order of output. A block stays in the startd until its tag comes again.
A run without an answer prints the first one only, so that the startd keeps the attributes of the others."""
OPENINGS = ("DataLocalityOpen", "DataLocalityReadFrom", "DataLocalityBacklog", "DataLocalityOpenUntil")
"""The attributes of the block ``openings``, which change without a new generation of the ad."""

MAX_BODY = 1 << 20
"""Bytes of the longest answer that is read."""
MAX_LINE = 65000
"""Bytes of the longest line: the startd cuts at 65,536 (HTCondor 9.0.2 and later) and loses the attribute."""
MAX_TROUBLE = 300
"""Most characters of an error text in the slot ad; the line on stderr may be a little longer."""
MAX_SKEW_SECONDS = 300
"""Seconds that the daemon's clock may be ahead of this node's."""
MAX_AHEAD_SECONDS = 86400
"""Seconds that a generation, the Unix time of a change, may be ahead of the daemon's clock. The daemon
adopts no generation that is further ahead, so such a generation is forged. hydrator/domain/untrusted.py has
the same limit."""
MAX_SECONDS = 10 * 365 * 86400
"""Longest time of a read, in seconds; a longer one is an error of the daemon."""
WRITE_SECONDS = 30
"""Seconds that the startd may keep its pipe full before this run fails."""
DRAIN_SECONDS = 5
"""Seconds to wait until the pipe is empty: after the hook's exit the startd loses most of the rest."""

SITE_KEYS = (
    "GLIDEIN_ResourceName",
    "GLIDEIN_CMSSite",
    "GLIDEIN_Site",
    "GLIDEIN_SiteResource",
    "SiteLocation",
)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"
DID_CHARACTERS = LETTERS + DIGITS + "._:/@=+~-"
KEY_CHARACTERS = DID_CHARACTERS + ","
MAX_DID = 500
MAX_KEY = 500
"""Most characters of a set's key: up to 120 of its names, each with a mark; or a cluster and its schedd."""
STATES = frozenset(("AVAILABLE", "STAGING", "PARTIAL", "NEARLINE", "STUCK", "UNAVAILABLE", "UNKNOWN"))

LANE = '[strcat(TARGET.DataLocalityKey, "~", TARGET.DataLocalityLane)]'
SHARE = "MY.DataLocalitySets[TARGET.DataLocalityKey]"
KNOWN = f"({SHARE} >= 0.0) =?= true"
FRESH = (
    "time() - (MY.DataLocalitySetsAsOf[TARGET.DataLocalityKey] ?: MY.DataLocalityAsOf) < "
    "TARGET.DataLocalityMaxAge"
)
READ_SECONDS = f"(MY.DataLocalityOpen[TARGET.DataLocalityKey] ?: MY.DataLocalityOpen{LANE})"
READ_SOURCE = f"(MY.DataLocalityReadFrom[TARGET.DataLocalityKey] ?: MY.DataLocalityReadFrom{LANE})"
IS_PACED = "(time() < MY.DataLocalityOpenUntil) =?= true"
IS_OPEN = f"(time() < MY.DataLocalityOpenUntil && {READ_SECONDS} >= 0) =?= true"
EXPRESSIONS = {
    "DataLocalityLocal": f"({SHARE} >= 1.0 && {FRESH}) =?= true",
    "DataLocalityAuto": (
        f"MY.DataLocalityLocal =?= true || {IS_OPEN} || ((time() >= TARGET.DataLocalityAnyAfter) =?= true"
        f" && !({IS_PACED} && {KNOWN}))"
    ),
    "DataLocalityRank": (
        f"MY.DataLocalityLocal =?= true ? 0.0 : ({IS_OPEN} && {READ_SECONDS} <= 800000) =?= true ?"
        f" ({KNOWN} ? {SHARE} : 0.0) - 1.0 - {READ_SECONDS} :"
        f" (({SHARE} >= 0.0 && {FRESH}) =?= true ? 100000.0 * {SHARE} : 0.0) - 1000000.0"
    ),
    "DataLocalityOffer": (
        f'MY.DataLocalityLocal =?= true ? "local" : {IS_OPEN} && isInteger({READ_SECONDS}) =?= true ?'
        f' strcat("read ", {READ_SECONDS}, " s",'
        f' regexp("^[]^-~ !#%-[]{{1,60}}$", {READ_SOURCE}) =?= true ?'
        f' strcat(" from ", {READ_SOURCE}) : "") : ""'
    ),
}
"""The match logic that each slot has, with the slot as MY and the job as TARGET. What each means is in
hydrator/domain/ads/expressions.py."""

HELP = """usage: startd_cron.py [--site NAME] (--url URL | --file PATH | --collector HOST) [options]

Prints the data-locality ad of one site for HTCondor's STARTD_CRON.

  --site NAME        the site of this node; default: the first value of --site-keys in the environment
                     (NAME, _CONDOR_NAME), else in glidein_config, else by condor_config_val
  --site-keys A,B    names of attributes that may have the site's name, in this order
                     (GLIDEIN_ResourceName,GLIDEIN_CMSSite,GLIDEIN_Site,GLIDEIN_SiteResource,
                     SiteLocation)
  --url URL          the daemon, http or https: URL/v1/sites/SITE/ad; or the URL with {site} in it
  --file PATH        an ad file, a directory with SITE.ad in it (percent-encoded), or a path with
                     {site} in it
  --collector HOST   the site ad in the collector, by condor_status
  --token-file PATH  bearer token for the daemon; the hook sends it only over https, or to this host
  --ca-file PATH     certificates to trust instead of the system's
  --cache-dir PATH   private directory for the last answer and the last printed generation
  --timeout SECONDS  time limit for one query (10)
  --jitter SECONDS   wait a random part of this before a query to a server (2; 0 for --file)
  --help, --version

Each option is also read as HYDRATOR_SITE, HYDRATOR_URL, ... from the environment, then from glidein_config.
Proxies: http_proxy, https_proxy, no_proxy; for http also GLIDEIN_Proxy_URL, PROXY_URL of glidein_config.
"""

OPTIONS = (
    *("site", "site-keys", "url", "file", "collector", "token-file", "ca-file", "cache-dir"),
    *("timeout", "jitter"),
)
SOURCES = ("url", "file", "collector")


class HookError(Exception):
    """An error of the hook, reported in one line on stderr; its subclass decides what the hook does next."""


class BadUsage(HookError):
    """A wrong option or configuration: the administrator of the node must correct it. Exit status 2."""


class SourceUnavailable(HookError):
    """A source that did not answer in this run: the hook prints the local copy of the last answer."""


class OutputError(SourceUnavailable):
    """The startd did not read all output, so the last line may be cut: the hook prints nothing more."""


class InvalidAd(HookError):
    """An invalid answer of the source: the hook prints the local copy of the last valid answer."""


class AdNotServed(HookError):
    """The source refuses access or has no ad of the site: the hook does not print the local copy."""


# ---------------------------------------------------------------- literals: text -> value, value -> text


def short_repr(text: str) -> str:
    """Return *text* for a message: short, printable, quoted."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def parse_did(text: str) -> str:
    """Parse a dataset's name; reject characters that could end a ClassAd string or a quoted name."""
    if not 0 < len(text) <= MAX_DID or text.strip(DID_CHARACTERS):
        raise InvalidAd(f"{short_repr(text)} is not a valid dataset name")
    return text


def parse_key(text: str) -> str:
    """Parse the key of a set of datasets, or of a lane; reject characters that could end a quoted name."""
    if not 0 < len(text) <= MAX_KEY or text.strip(KEY_CHARACTERS):
        raise InvalidAd(f"{short_repr(text)} is not a valid key of a set of datasets")
    return text


def parse_string(text: str) -> str:
    """Parse a ClassAd string of printable ASCII that needs no escape."""
    inside = unwrap(text, '"', '"')
    if not is_plain(inside):
        raise InvalidAd(f"{short_repr(text)} is not a ClassAd string of up to 200 plain ASCII characters")
    return inside


def parse_source(text: str) -> str:
    """Parse a ClassAd string with the name of another site, which may have a single quote."""
    return text[1:-1] if parse_string(text.replace("'", "_")) else ""


def is_plain(text: str) -> bool:
    """Return True if *text* is printable ASCII without quotes and backslashes, up to 200 characters."""
    return len(text) <= 200 and all(" " <= letter <= "~" and letter not in "\"'\\" for letter in text)


def parse_state(text: str) -> str:
    """Parse a ClassAd string that is one of the dataset states, such as ``"AVAILABLE"``."""
    inside = unwrap(text, '"', '"')
    if inside not in STATES:
        raise InvalidAd(f"{short_repr(text)} is not a dataset state")
    return inside


def parse_integer(text: str) -> int:
    """Parse a whole number, 0 or more."""
    if not 0 < len(text) <= 15 or text.strip(DIGITS):
        raise InvalidAd(f"{short_repr(text)} is not a whole number")
    return int(text)


def parse_seconds(text: str) -> int:
    """Parse a whole number of seconds, up to MAX_SECONDS."""
    value = parse_integer(text)
    if value > MAX_SECONDS:
        raise InvalidAd(f"{short_repr(text)} is over {MAX_SECONDS} seconds")
    return value


def parse_share(text: str) -> float:
    """Parse a real from 0 to 1, in any notation of HTCondor (``5.000000000000000E-01``, ``0.5``)."""
    try:
        value = float(text) if not text.strip(DIGITS + ".eE+-") else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InvalidAd(f"{short_repr(text)} is not a number from 0 to 1")
    return abs(value)


def parse_boolean(text: str) -> bool:
    """Parse ``true`` or ``false``, in any letter case."""
    if text.lower() not in ("true", "false"):
        raise InvalidAd(f"{short_repr(text)} is not true or false")
    return text.lower() == "true"


def unwrap(text: str, opening: str, closing: str) -> str:
    """Return *text* without the characters *opening* and *closing* that enclose it."""
    if len(text) < 2 or text[0] != opening or text[-1] != closing:
        raise InvalidAd(f"{short_repr(text)} is not enclosed in {opening} {closing}")
    return text[1:-1]


def reject_case_collisions(names: "list[str]") -> "list[str]":
    """Return *names*; reject names that differ in letter case only, because ClassAds ignore letter case."""
    if len({name.lower() for name in names}) != len(names):
        raise InvalidAd("two names are equal, or differ in letter case only")
    return names


def parse_names(text: str) -> "list[str]":
    """Parse a list of dataset names: ``{"a:1","b:2"}``."""
    between = unwrap(text, "{", "}").strip(" ")
    items = [item.strip(" ") for item in between.split(",")] if between else []
    return reject_case_collisions([parse_did(unwrap(item, '"', '"')) for item in items])


def parse_pair(item: str, parse_name: "Callable[[str], str]") -> "tuple[str, str]":
    """Split ``'a:1' = literal`` into name and literal. The name has no quotes if it is an identifier."""
    item = item.strip(" ")
    if item[:1] == "'":
        name, _, rest = item[1:].partition("'")
    else:
        rest = item.lstrip(LETTERS + DIGITS + "_")
        name = item[: len(item) - len(rest)]
    rest = rest.lstrip(" ")
    if rest[:1] != "=":
        raise InvalidAd(f"{short_repr(item)} is not 'name' = literal")
    return parse_name(name), rest[1:].strip(" ")


def parse_record(
    text: str, parse_value: "Callable[[str], object]", parse_name: "Callable[[str], str]" = parse_did
) -> "dict[str, Any]":
    """Parse a nested ad, ``['a:1'=literal;'b:2'=literal]``; *parse_value* parses each literal.

    The names are datasets, or the keys of sets of datasets, such as ``lofar:@l1`` or ``s2bc``.
    """
    between = unwrap(text, "[", "]").strip(" ")
    pairs = [parse_pair(item, parse_name) for item in split_items(between)] if between else []
    reject_case_collisions([name for name, _ in pairs])
    return {name: parse_value(text) for name, text in pairs}


def split_items(between: str) -> "list[str]":
    """Split the inside of a nested ad at each ``;`` that is not in a string, such as a site's name."""
    items = between.split(";")
    if all(item.count('"') in (0, 2) for item in items):
        return items
    whole, part = [], ""
    for item in items:
        part += item
        if part.count('"') % 2:
            part += ";"
        else:
            whole.append(part)
            part = ""
    return [*whole, part] if part else whole


READERS = {
    "DataLocalitySite": parse_string,
    "AvailableDatasets": parse_names,
    "DatasetStates": lambda text: parse_record(text, parse_state),
    "DatasetFractions": lambda text: parse_record(text, parse_share),
    "DatasetAsOf": lambda text: parse_record(text, parse_integer),
    "DataLocalityTruncated": parse_boolean,
    "DataLocalitySets": lambda text: parse_record(text, parse_share, parse_key),
    "DataLocalitySetsAsOf": lambda text: parse_record(text, parse_integer, parse_key),
    "DataLocalityOpen": lambda text: parse_record(text, parse_seconds, parse_key),
    "DataLocalityReadFrom": lambda text: parse_record(text, parse_source, parse_key),
    "DataLocalityBacklog": parse_integer,
    "DataLocalityOpenUntil": parse_integer,
    "DataLocalityAsOf": parse_integer,
    "DataLocalityGeneration": parse_integer,
    "DataLocalityVersion": parse_integer,
}
"""The accepted attributes and their parsers, in the order of output."""
OPTIONAL_ATTRIBUTES = ("AvailableDatasets", "DataLocalitySetsAsOf", *OPENINGS)


def format_literal(value: object) -> str:
    """Return *value* as a ClassAd literal on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_real(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return "{" + ",".join(['"' + name + '"' for name in value]) + "}"
    if isinstance(value, dict):
        items = [format_name(name) + "=" + format_literal(each) for name, each in value.items()]
        return "[" + ";".join(items) + "]"
    return '"' + str(value) + '"'


def format_name(name: str) -> str:
    """Return *name* for a nested ad: in quotes, unless it is a hashed key (``s`` and 20 characters)."""
    is_hashed = len(name) == 21 and name[0] == "s" and name.isalnum()
    return name if is_hashed else "'" + name + "'"


def format_real(value: float) -> str:
    """Return a real from 0 to 1 as the daemon writes it: the shortest exact digits, without an exponent."""
    digits, _, exponent = repr(value).partition("e-")
    return "0." + "0" * (int(exponent) - 1) + digits.replace(".", "") if exponent else digits


# ---------------------------------------------------------------- one site's ad: text -> values -> text


def read_ad(text: bytes, site: str, now: int) -> "dict[str, Any]":
    """Parse *text*, an ad with one ``Name = literal`` a line; reject the whole ad for one error.

    Raises:
        InvalidAd: a line has a foreign or repeated attribute, or a literal of a wrong type; the last line
            is not ``DataLocalityVersion``, so the ad is truncated; the ad is of another contract version or
            site; its AsOf or its generation is too far ahead of *now*.
    """
    ad = {}  # type: dict[str, Any]
    lines = decode_ascii(text).split("\n")
    for line in lines[-2:-1]:
        if line.startswith("DataLocalityVersion = "):
            check_version(line.partition(" = ")[2])
    for line in lines[:-1]:
        name, equals, rest = line.partition(" = ")
        if not equals or name not in READERS:
            raise InvalidAd(f"{short_repr(line)} is not an attribute of a site ad")
        if name in ad:
            raise InvalidAd(f"the ad has {name} twice")
        if len(line) > MAX_LINE:
            raise InvalidAd(f"line {name} of the ad has {len(line)} bytes, {MAX_LINE} are allowed")
        ad[name] = read_literal(name, rest)
    if lines[-1] or not ad or list(ad)[-1] != "DataLocalityVersion":
        raise InvalidAd("the ad is truncated: its last line is not DataLocalityVersion")
    return validate(ad, site, now)


def decode_ascii(text: bytes) -> str:
    try:
        return text.decode("ascii")
    except UnicodeDecodeError as trouble:
        raise InvalidAd(f"byte {trouble.start} of the ad is not ASCII") from trouble


def read_literal(name: str, text: str) -> object:
    try:
        return READERS[name](text)
    except InvalidAd as trouble:
        raise InvalidAd(f"in {name}: {trouble}") from trouble


def read_classads(text: bytes, site: str, now: int) -> "dict[str, Any]":
    """Return the newest of the ads that ``condor_status -long`` printed; ignore foreign attributes.

    The function skips ads that are not valid if at least one ad is valid.

    Raises:
        AdNotServed: the output has no ad.
        InvalidAd: no ad is valid; the error describes the first ad, as in :func:`read_ad`.
    """
    ads = []
    first_error = None  # type: InvalidAd | None
    for lines in text.split(b"\n\n"):
        try:
            ad = read_classad(decode_ascii(lines))
            if ad:
                ads.append(validate(ad, site, now))
        except InvalidAd as trouble:
            first_error = first_error or trouble
    if not ads and first_error:
        raise first_error
    if not ads:
        raise AdNotServed(
            f"has no DataLocality ad for site {short_repr(site)}: check --site, and that the daemon runs"
        )
    return max(ads, key=lambda ad: ad["DataLocalityAsOf"])


def read_classad(lines: str) -> "dict[str, Any]":
    """Return the site ad's attributes among *lines*, in the order of READERS."""
    literals = {}  # type: dict[str, str]
    for line in lines.split("\n"):
        name, _, rest = line.partition(" = ")
        literals[name] = rest
    if "DataLocalityVersion" in literals:
        check_version(literals["DataLocalityVersion"])
    return {name: sort_names(read_literal(name, literals[name])) for name in READERS if name in literals}


def check_version(literal: str) -> None:
    """Reject an ad of another contract version, before its attributes: it may have other ones."""
    version = read_literal("DataLocalityVersion", literal)
    if version != CONTRACT:
        raise InvalidAd(
            f"the ad has contract version {version}, this hook reads {CONTRACT}: "
            "update the older of hook and daemon"
        )


def sort_names(value: object) -> object:
    """Return a list or nested ad with its names sorted, because a collector returns them in any order."""
    if isinstance(value, list):
        return sorted(value)
    if isinstance(value, dict):
        return {name: value[name] for name in sorted(value)}
    return value


def validate(ad: "dict[str, Any]", site: str, now: int) -> "dict[str, Any]":
    """Check *ad*; return it with times that are not after *now*.

    Raises:
        InvalidAd: the ad is incomplete, of another site, or too far in the future.
    """
    missing = [name for name in READERS if name not in ad and name not in OPTIONAL_ATTRIBUTES]
    if missing:
        raise InvalidAd("the ad is truncated: it lacks " + ", ".join(missing))
    check_generation(ad["DataLocalityGeneration"], now)
    if ad["DataLocalitySite"] != site:
        raise InvalidAd(
            f"this is the ad of site {short_repr(str(ad['DataLocalitySite']))}, not of {short_repr(site)}"
        )
    return limit_times(ad, ad["DataLocalityAsOf"], ad.get("DataLocalityOpenUntil"), now)


def check_generation(generation: int, now: int) -> None:
    """Reject a *generation*, the Unix time of the ad's last change, that is far in the future."""
    ahead = generation - now
    if ahead > MAX_AHEAD_SECONDS + MAX_SKEW_SECONDS:
        raise InvalidAd(
            f"the ad's generation {generation} is {ahead} s in the future: "
            "correct this node's clock, or the clock of the daemon's host"
        )


def limit_times(ad: "dict[str, Any]", moment: int, until: "int | None", now: int) -> "dict[str, Any]":
    """Return *ad* with the source's time *moment* and the end *until* of the openings, by this node's clock.

    The time is at most *now*, and no fact's time is later. A *moment* that is ahead of *now* shows that the
    source's clock is ahead at least by the difference, so the openings end earlier by this node's clock.
    If *until* is None, the openings of *ad* keep their end.
    """
    if moment > now + MAX_SKEW_SECONDS:
        raise InvalidAd(
            f"the ad's time is {moment - now} s in the future: synchronize the clocks of node and daemon"
        )
    limited = dict(ad)
    if until is not None:
        limited["DataLocalityOpenUntil"] = until = max(0, until - max(0, moment - now))
        if until > now + MAX_AHEAD_SECONDS + MAX_SKEW_SECONDS:
            raise InvalidAd(
                f"the ad's openings end {until - now} s in the future: "
                "synchronize the clocks of node and daemon"
            )
    limited["DataLocalityAsOf"] = moment = min(moment, now)
    for name in ("DatasetAsOf", "DataLocalitySetsAsOf"):
        if name in ad:
            limited[name] = {key: min(at, moment) for key, at in ad[name].items()}
    return limited


def ad_text(ad: "dict[str, Any]") -> str:
    """Return *ad* as text in the format that :func:`read_ad` parses."""
    return "".join([f"{name} = {format_literal(value)}\n" for name, value in ad.items()])


def trouble_block(text: str) -> bytes:
    """Return the block with the error *text* for the pool; an empty *text* removes an earlier error."""
    # replace the characters that would end the string or begin an escape
    reason = to_one_line(text)[:MAX_TROUBLE].translate({34: "'", 92: "/"})
    value = format_literal(reason) if reason else "undefined"
    return ("\nDataLocalityError = " + value + "\n- " + TAGS[0] + "\n").encode("ascii")


def openings_block(ad: "dict[str, Any]", is_update: bool) -> bytes:
    """Return the output block with the openings of the site; empty if the ad has none."""
    lines = [attribute_line(name, ad[name]) for name in OPENINGS if name in ad]
    return block(TAGS[1], lines, is_update) if lines else b""


def locality_block(ad: "dict[str, Any]", is_update: bool) -> bytes:
    """Return the output block with the attributes of the site's data, and the match logic."""
    attributes = [attribute_line(name, value) for name, value in ad.items() if name not in OPENINGS]
    expressions = [f"{name} = {text}" for name, text in EXPRESSIONS.items()]
    return block(TAGS[2], [*attributes, *expressions, 'DataLocalitySource = "hook"'], is_update)


def attribute_line(name: str, value: object) -> str:
    """Return the line of an attribute.

    Lists and nested ads are in parentheses: HTCondor's ClassAd cache then stores them
    once for all slots of a site. Without parentheses it stores one copy for each slot.
    """
    text = format_literal(value)
    return f"{name} = ({text})" if isinstance(value, (list, dict)) else f"{name} = {text}"


def block(tag: str, lines: "list[str]", is_update: bool) -> bytes:
    """Return the output block of *lines*; its last line is the *tag*."""
    for line in lines:
        if len(line) > MAX_LINE:
            raise InvalidAd(f"line {line.split()[0]} of the ad has {len(line)} bytes, {MAX_LINE} are allowed")
    end = "- " + tag + (" update:true" if is_update else "")
    text = ("\n" + "\n".join([*lines, end]) + "\n").encode("ascii")
    if len(text) > MAX_BODY:
        raise InvalidAd(f"the ad has {len(text)} bytes, {MAX_BODY} are allowed")
    return text


def openings_mark(ad: "dict[str, Any]") -> str:
    """Return a short text that changes with the openings, but not with the time of their end."""
    import zlib

    text = "".join([f"{name}={format_literal(ad[name])};" for name in OPENINGS[:-1] if name in ad])
    return f"{zlib.crc32(text.encode('ascii')):08x}"


# ---------------------------------------------------------------- configuration


def parse_arguments(argv: "list[str]") -> "tuple[dict[str, str], list[str]]":
    """Parse a command line into options, ``--name value`` or ``--name=value``, and other arguments."""
    options = {}  # type: dict[str, str]
    others = []  # type: list[str]
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            others.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if name not in OPTIONS:
            raise BadUsage(f"unknown option {short_repr(word)}: see --help")
        if not equals and not words:
            raise BadUsage(f"--{name} needs a value: see --help")
        options[name] = value if equals else words.pop(0)
        if not options[name]:
            raise BadUsage(f"--{name} is empty: give a value or leave it out")
    return options, others


def find_glidein_config(positional: "list[str]", environ: "dict[str, str]") -> "tuple[str, dict[str, str]]":
    """Return the path of the glidein's ``glidein_config`` file and its values; both empty without a file.

    The places, in this order: the first argument, as GlideinWMS calls the hook; the variables GLIDEIN_CONFIG
    and glidein_config; the directory of the file that CONDOR_CONFIG names.
    """
    if positional and not os.path.isfile(positional[0]):
        raise BadUsage(
            f"unexpected argument {short_repr(positional[0])}, which is not a glidein_config file: see --help"
        )
    folder = os.path.dirname(environ.get("CONDOR_CONFIG", "")) or "/nonexistent"
    named = [environ.get("GLIDEIN_CONFIG", ""), environ.get("glidein_config", "")]
    for path in [*positional[:1], *named, os.path.join(folder, "glidein_config")]:
        if path and os.path.isfile(path):
            return path, read_glidein_values(path)
    return "", {}


def read_glidein_values(path: str) -> "dict[str, str]":
    """Read the ``KEY value`` lines of a file; if a key comes twice, use the last value."""
    values = {}  # type: dict[str, str]
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.strip().partition(" ")
                values[key] = value.strip()
    except OSError as trouble:
        raise BadUsage(f"cannot read {path}: {trouble.strerror}") from trouble
    return values


class HookSettings:
    """Settings of a run, from options, environment and glidein_config.

    ``source`` is ``url``, ``file`` or ``collector``, and ``location`` its URL, path or host.
    """

    def __init__(self, argv: "list[str]", environ: "dict[str, str]") -> None:
        options, others = parse_arguments(argv)
        self.glidein_path, self.glidein_values = find_glidein_config(others, environ)
        self.under_glidein = bool(others)
        self.environ = environ
        self.levels = (
            options,
            {name: environ.get(environment_variable(name), "") for name in OPTIONS},
            {name: self.glidein_values.get(environment_variable(name), "") for name in OPTIONS},
        )
        self.source, self.location = self.choose_source()
        self.timeout_seconds = self.parse_seconds("timeout", 10.0, 300)
        self.jitter_seconds = self.parse_seconds("jitter", 0.0 if self.source == "file" else 2.0, 3600)
        if not self.timeout_seconds:
            raise BadUsage("--timeout is 0: give a number of seconds above 0")
        self.site_keys = (
            tuple(key.strip() for key in self.value("site-keys").split(",") if key.strip()) or SITE_KEYS
        )
        for key in self.site_keys:
            if key.strip(LETTERS + DIGITS + "_"):
                raise BadUsage(f"--site-keys has {short_repr(key)}, which is not an attribute's name")
        self.site = self.value("site")
        self.proxy = None  # type: Url | None
        self.token = self.read_token()
        self.ca_file = self.value("ca-file")
        if self.ca_file and not os.path.isfile(self.ca_file):
            raise BadUsage(f"--ca-file {short_repr(self.ca_file)} is not a file")
        if self.source == "url":
            self.url = Url(self.location.replace("{site}", "x"))
            self.proxy = proxy_for(self.url, environ, self.glidein_values)
            if self.token and not self.url.is_https and (self.proxy or not self.url.is_local):
                raise BadUsage(
                    "the hook sends a token over https only, or to this host: write --url https://..."
                )

    def value(self, name: str) -> str:
        return next((level[name] for level in self.levels if level.get(name)), "")

    def choose_source(self) -> "tuple[str, str]":
        for level in self.levels:
            sources = [name for name in SOURCES if level.get(name)]
            if len(sources) > 1:
                raise BadUsage(
                    "more than one source: " + ", ".join(["--" + name for name in sources]) + "; give one"
                )
            if sources:
                source, location = sources[0], level[sources[0]]
                is_text = is_printable(location) if source != "file" else min(location) >= " "
                if location.startswith("-") or not is_text:
                    raise BadUsage(
                        f"--{source} {short_repr(location)} cannot be used: "
                        "it begins with -, or has spaces or other characters that no address has"
                    )
                return source, location
        raise BadUsage("no source: give --url, --file or --collector (or HYDRATOR_URL, ...)")

    def parse_seconds(self, name: str, default: float, max_seconds: float) -> float:
        text = self.value(name) or str(default)
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= max_seconds:
            raise BadUsage(f"--{name} {short_repr(text)} is not a number of seconds from 0 to {max_seconds}")
        return seconds

    def read_token(self) -> str:
        path = self.value("token-file")
        if not path:
            return ""
        if not os.path.isfile(path):  # open waits for the writer of a pipe
            raise BadUsage(f"cannot read the token in {short_repr(path)}: it is not a file")
        try:
            with open(path, encoding="ascii") as lines:
                token = lines.read(16384).strip()
        except (OSError, ValueError) as trouble:
            raise BadUsage(f"cannot read the token in {short_repr(path)}: {trouble}") from trouble
        if not token or not is_printable(token):
            raise BadUsage(f"{short_repr(path)} has no token: write the token on one line without spaces")
        return token


def environment_variable(option: str) -> str:
    return "HYDRATOR_" + option.upper().replace("-", "_")


def is_printable(text: str) -> bool:
    """Return True if *text* is ASCII without spaces and control characters."""
    return all("!" <= letter <= "~" for letter in text)


def find_site(settings: HookSettings) -> str:
    """Return the site of this node: from --site, else environment, else glidein_config, else HTCondor.

    Raises:
        BadUsage: no place has a site, or its name has characters that are not allowed.
    """
    places = (settings.site, site_from_environment, site_from_glidein_config, site_from_condor)
    for place in places:
        site = place(settings).strip().strip('"') if callable(place) else place
        if site and site != "None":
            if not is_plain(site) or site.strip() != site:
                raise BadUsage(
                    f"the site {short_repr(site)} is not plain ASCII of up to 200 characters: set --site"
                )
            return site
    raise BadUsage("no site: give --site NAME, or set one of " + ", ".join(settings.site_keys))


def site_from_environment(settings: HookSettings) -> str:
    """Return the site from the environment variables ``NAME`` or ``_CONDOR_NAME``, in any letter case.

    NAME is each name in --site-keys. pyglidein sets ``_CONDOR_NAME``.
    """
    values = {name.lower(): value for name, value in settings.environ.items()}
    candidates = [
        values.get(prefix + key.lower(), "") for key in settings.site_keys for prefix in ("", "_condor_")
    ]
    return next((value for value in candidates if value.strip('"')), "")


def site_from_glidein_config(settings: HookSettings) -> str:
    candidates = [settings.glidein_values.get(key, "") for key in settings.site_keys]
    return next((value for value in candidates if value and value != "None"), "")


def site_from_condor(settings: HookSettings) -> str:
    """Return the site that ``condor_config_val`` prints, with the ``-local-name`` of this startd, if any."""
    tool = find_tool("condor_config_val", settings)
    if not tool:
        return ""
    local = local_name_arguments(find_startd(os.getppid())[2])
    _, out, _ = run([tool, *local, *settings.site_keys], settings.timeout_seconds)
    return next((line for line in out.decode("utf-8", "replace").split("\n") if line.strip(' "')), "")


def find_tool(name: str, settings: HookSettings) -> str:
    """Return the path of HTCondor's tool *name* in PATH, the glidein's CONDOR_DIR or /usr/bin; else empty."""
    directories = settings.environ.get("PATH", "").split(":")
    if settings.glidein_values.get("CONDOR_DIR"):
        directories.append(os.path.join(settings.glidein_values["CONDOR_DIR"], "bin"))
    for directory in [*directories, "/usr/bin"]:
        path = os.path.join(directory, name)
        if directory and os.access(path, os.X_OK):
            return path
    return ""


def percent_encode(text: str) -> str:
    """Percent-encode *text* for one part of a URL's path or one file name."""
    unreserved = LETTERS + DIGITS + "_.-~"
    data = text.encode("utf-8", "surrogateescape")
    return "".join([chr(byte) if chr(byte) in unreserved else f"%{byte:02X}" for byte in data])


# ---------------------------------------------------------------- sources


def ask_file(path: str, site: str, now: int) -> "dict[str, Any]":
    """Return the ad in the file for *site*; *path* is the value of ``--file``."""
    if "{site}" in path:
        path = path.replace("{site}", percent_encode(site))
    elif os.path.isdir(path):
        # adapters/files/ad_files.py has the same name
        path = os.path.join(path, percent_encode(site) + ".ad")
    text = read_file(path)
    try:
        return read_ad(text, site, now)
    except InvalidAd as trouble:
        raise InvalidAd(f"{path} is not valid: {trouble}") from trouble


def read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_BODY + 1)
    except OSError as trouble:
        raise SourceUnavailable(
            f"cannot read {path}: {trouble.strerror}: check --file and --site"
        ) from trouble
    if len(text) > MAX_BODY:
        raise InvalidAd(f"{path} has over {MAX_BODY} bytes")
    return text


def ask_collector(host: str, site: str, now: int, settings: HookSettings) -> "dict[str, Any]":
    """Query the site's ad from the collector: run ``condor_status`` with this node's credentials."""
    tool = find_tool("condor_status", settings)
    if not tool:
        raise BadUsage("no condor_status on PATH, in CONDOR_DIR/bin or /usr/bin: install it, or use --url")
    constraint = f'MyType == "DataLocality" && DataLocalitySite =?= "{site}"'
    query = ["-pool", host, "-any", "-constraint", constraint, "-long", "-attributes", ",".join(READERS)]
    status, out, error = run([tool, *query], settings.timeout_seconds)
    if status:
        raise SourceUnavailable(f"condor_status -pool {host} failed with status {status}: {error}")
    if len(out) > 4 * MAX_BODY:
        raise InvalidAd(f"the answer of collector {host} has over {4 * MAX_BODY} bytes")
    try:
        return read_classads(out, site, now)
    except AdNotServed as trouble:
        raise AdNotServed(f"collector {host} {trouble}") from trouble
    except InvalidAd as trouble:
        raise InvalidAd(f"the ad in collector {host} is not valid: {trouble}") from trouble


def run(command: "list[str]", timeout_seconds: float) -> "tuple[int, bytes, str]":
    """Run *command* for at most *timeout_seconds*; return its status, output and last line on stderr."""
    import subprocess

    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as trouble:
        raise SourceUnavailable(f"cannot run {command[0]}: {trouble.strerror}") from trouble
    try:
        out, errors = child.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired as trouble:
        os.killpg(child.pid, 9)
        raise SourceUnavailable(
            f"{os.path.basename(command[0])} took over {timeout_seconds:g} s"
        ) from trouble
    lines = errors.decode("utf-8", "replace").strip().split("\n")
    return child.returncode, out, lines[-1]


class Url:
    """An http(s) URL in its parts; ``target`` is the path with its query."""

    def __init__(self, text: str) -> None:
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as trouble:
            raise BadUsage(f"{short_repr(text)} is not a URL: {trouble}") from trouble
        bare = parts.hostname or ""
        odd = bare.strip(LETTERS + DIGITS + (".:" if "[" in parts.netloc else ".-_"))
        target = parts._replace(scheme="", netloc="").geturl() or "/"
        is_address = parts.scheme in ("http", "https") and bare and not odd and port != 0
        if not is_address or "@" in parts.netloc or "#" in text or target[0] != "/":
            raise BadUsage(
                f"{short_repr(text)} is not a URL: write http(s)://host[:port][/path], without a user or a #"
            )
        self.is_https = parts.scheme == "https"
        self.address = parts.netloc
        self.host, self.port = bare, port or (443 if self.is_https else 80)
        self.target = target
        self.is_local = is_loopback(bare)
        self.text = text


def is_loopback(host: str) -> bool:
    """Return True if *host* is literally ``localhost``, ``::1`` or an address in 127.0.0.0/8."""
    parts = host.split(".")
    octets = [int(part) for part in parts if 0 < len(part) < 4 and not part.strip(DIGITS)]
    in_range = len(parts) == 4 and len(octets) == 4 and max(octets) < 256 and parts[0] == "127"
    return host in ("localhost", "::1") or in_range


def ad_url(base: str, site: str) -> str:
    """Return the URL of the ad of *site*; *base* is the value of ``--url``."""
    if "{site}" in base:
        return base.replace("{site}", percent_encode(site))
    return base.rstrip("/") + f"/v{CONTRACT}/sites/" + percent_encode(site) + "/ad"


def proxy_for(url: Url, environ: "dict[str, str]", glidein: "dict[str, str]") -> "Url | None":
    """Return the proxy for *url*, or None.

    The hook uses the proxies of glidein_config for http only: they are caches and rarely let https through.
    """
    for entry in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").split(","):
        name = entry.strip().partition(":")[0].lstrip(".").lower()
        if name and (name == "*" or url.host.lower() == name or url.host.lower().endswith("." + name)):
            return None
    scheme = "https" if url.is_https else "http"
    candidates = [environ.get(scheme + "_proxy"), environ.get(scheme.upper() + "_PROXY")]
    candidates += [] if url.is_https else [glidein.get("GLIDEIN_Proxy_URL"), glidein.get("PROXY_URL")]
    candidates += [environ.get("all_proxy"), environ.get("ALL_PROXY")]
    address = next((each for each in candidates if each and each != "None"), "")
    if not address:
        return None
    try:
        proxy = Url((address if "://" in address else "http://" + address).rstrip("/"))
    except BadUsage as trouble:
        raise BadUsage(
            f"the proxy in the environment or glidein_config cannot be used: {trouble}"
        ) from trouble
    if proxy.is_https:
        raise BadUsage(
            f"the proxy {short_repr(address)} is not http://host:port, the only kind that this hook can use"
        )
    return proxy


def decompress_gzip(body: bytes, source_name: str) -> bytes:
    import zlib

    unzip = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        text = unzip.decompress(body, MAX_BODY + 1)
    except zlib.error as trouble:
        raise InvalidAd(f"{source_name} sends gzip that cannot be read: {trouble}") from trouble
    if len(text) > MAX_BODY:
        raise InvalidAd(f"the unpacked answer of {source_name} has over {MAX_BODY} bytes")
    if not unzip.eof:
        raise InvalidAd(f"{source_name} sends truncated gzip")
    return text


def http_get(
    url: Url, fields: "dict[str, str]", settings: HookSettings
) -> "tuple[int, dict[str, str], bytes]":
    """Send one GET; return status, fields and body. Follow no redirect: no other URL gets the token."""
    import http.client

    proxy = settings.proxy
    source_name = url.text + (f" through proxy {proxy.address}" if proxy else "")
    target = url.text if proxy and not url.is_https else url.target
    try:
        connection = connect(url, settings)
        try:
            connection.request("GET", target, headers={"Host": url.address, "Connection": "close", **fields})
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            body = read_body(answer, named, source_name) if answer.status == 200 else b""
            return answer.status, named, body
        finally:
            connection.close()
    except http.client.HTTPException as trouble:
        reason = f"{type(trouble).__name__} {trouble}".strip()
        raise InvalidAd(
            f"{source_name} does not answer in HTTP, or its answer is truncated: {reason}"
        ) from trouble
    except (OSError, ValueError) as trouble:  # UnicodeError, and ssl.CertificateError of Python 3.6, too
        reason = getattr(trouble, "strerror", None) or str(trouble)
        raise SourceUnavailable(f"no answer from {source_name}: {reason}") from trouble


def connect(url: Url, settings: HookSettings) -> "HTTPConnection":
    """Return a connection to the server of *url*, or to the proxy, which leads https through a tunnel."""
    import http.client

    server = settings.proxy or url
    if not url.is_https:
        return http.client.HTTPConnection(server.host, server.port, timeout=settings.timeout_seconds)
    import ssl

    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
    except (ssl.SSLError, OSError) as trouble:
        raise BadUsage(f"--ca-file {short_repr(settings.ca_file)} cannot be used: {trouble}") from trouble
    connection = http.client.HTTPSConnection(
        server.host, server.port, timeout=settings.timeout_seconds, context=context
    )
    if settings.proxy:
        connection.set_tunnel(url.host, url.port)
    return connection


def read_body(answer: "HTTPResponse", fields: "dict[str, str]", source_name: str) -> bytes:
    """Return the unpacked body of *answer*, which has the header *fields*."""
    body = answer.read(MAX_BODY + 1)
    if len(body) > MAX_BODY:
        raise InvalidAd(f"the answer of {source_name} has over {MAX_BODY} bytes")
    if answer.length:
        raise InvalidAd(f"the answer of {source_name} is truncated: {answer.length} bytes are missing")
    coding = fields.get("content-encoding", "identity").lower()
    return body if coding == "identity" else decompress_gzip(body, source_name)


def ask_daemon(settings: HookSettings, site: str, now: int, cached: "CachedAd | None") -> "CachedAd":
    """Return the daemon's ad of *site*; after a 304 (not modified), *cached* with the answer's times."""
    url = Url(ad_url(settings.location, site))
    fields = {"User-Agent": "hydrator-hook/" + VERSION, "Accept": "text/plain", "Accept-Encoding": "gzip"}
    if cached and cached.etag:
        fields["If-None-Match"] = cached.etag
    if settings.token:
        fields["Authorization"] = "Bearer " + settings.token
    status, answer, body = http_get(url, fields, settings)
    try:
        if status == 200:
            etag = answer.get("etag", "")
            fresh = update_times(read_ad(body, site, now), answer, now, may_go_back=True)
            return CachedAd(etag if is_printable(etag) and len(etag) < 200 else "", fresh)
        if status == 304 and cached and cached.etag:
            return CachedAd(cached.etag, update_times(cached.ad, answer, now, may_go_back=False))
    except InvalidAd as trouble:
        raise InvalidAd(f"the answer of {url.text} is not valid: {trouble}") from trouble
    raise error_for_status(status, answer, url.text)


def update_times(
    ad: "dict[str, Any]", answer: "dict[str, str]", now: int, may_go_back: bool
) -> "dict[str, Any]":
    """Return *ad* with the times in the header fields *answer*, which are newer than the ad's text.

    If not *may_go_back*, keep a later time of *ad*: a proxy's cache may send an old 304.
    """
    oldest, known = ad["DataLocalityAsOf"], ad.get("DataLocalityOpenUntil")
    moment, until = oldest, None
    if answer.get("x-datalocality-asof"):
        moment = parse_integer(answer["x-datalocality-asof"])
    if answer.get("x-datalocality-openuntil") and known is not None:
        until = parse_integer(answer["x-datalocality-openuntil"])
    if may_go_back:
        return limit_times(ad, moment, until, now)
    fresh = limit_times(ad, max(moment, oldest), until, now)
    if until is not None:
        fresh["DataLocalityOpenUntil"] = max(known, fresh["DataLocalityOpenUntil"])
    return fresh


REFUSALS = {
    401: "denies access (401): check --token-file",
    403: "denies access (403): check --token-file",
    404: "has no such site (404): check --site and --url",
    407: "is behind a proxy that requires a login (407): set no_proxy, or use another proxy",
    410: "has no such site (410): check --site and --url",
}
"""By HTTP status of a server or proxy that refuses the ad: its meaning, and the advice."""


def error_for_status(status: int, answer: "dict[str, str]", url_text: str) -> HookError:
    """Return the error for an HTTP *status* other than 200 and 304."""
    if status in REFUSALS:
        return AdNotServed(f"{url_text} {REFUSALS[status]}")
    if 300 <= status < 400 and status != 304:
        target = short_repr(answer.get("location", ""))
        return AdNotServed(f"{url_text} redirects ({status}) to {target}: correct --url")
    return SourceUnavailable(f"{url_text} answers {status}")


# ---------------------------------------------------------------- files that the hook keeps between runs


class CachedAd:
    """The last answer of a source: the ad with its ETag."""

    def __init__(self, etag: str, ad: "dict[str, Any]") -> None:
        self.etag = etag
        self.ad = ad

    @property
    def text(self) -> str:
        """The text of the local copy, below its first line."""
        return f"{self.etag}\n{ad_text(self.ad)}"


class CacheDirectory:
    """A private directory for small files. Raise PermissionError if other users may write to the directory.

    All paths are relative to the opened directory, so no other process can replace the directory meanwhile.
    """

    def __init__(self, path: str) -> None:
        umask = os.umask(0o077)  # of the parents: Python gives them no mode
        try:
            os.makedirs(path, 0o700, exist_ok=True)
        finally:
            os.umask(umask)
        self.directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        facts = os.fstat(self.directory)
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            os.close(self.directory)
            raise PermissionError(
                13, "the directory belongs to another user, or others may write in it: run chmod 700"
            )

    def read(self, name: str) -> bytes:
        """Return the content of the file *name*; empty after an error or for a file that is not private."""
        import stat

        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            file = os.open(name, flags, dir_fd=self.directory)
            with os.fdopen(file, "rb") as lines:
                facts = os.fstat(file)
                is_own = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid()
                return lines.read(MAX_BODY + 4096) if is_own and not facts.st_mode & 0o022 else b""
        except OSError:
            return b""

    def put(self, name: str, text: bytes) -> None:
        """Replace the file *name* atomically; after an error remove the file, because it is outdated."""
        draft = f"{name}.{os.getpid()}.new"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(draft, flags, 0o600, dir_fd=self.directory), "wb") as file:
                file.write(text)
            os.replace(draft, name, src_dir_fd=self.directory, dst_dir_fd=self.directory)
        except OSError:
            self.drop(draft)
            self.drop(name)

    def drop(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self.directory)
        except OSError:
            return

    def sweep(self, now: int) -> None:
        """Remove the files of startds, and unfinished files, that are older than 30 days.

        If the startd of a removed file still runs, it gets one needless ``update:true``.
        """
        try:
            names = os.listdir(self.directory)
        except OSError:
            return
        for name in names:
            if name.startswith("startd-") or name.endswith(".new"):
                try:
                    modified_at = os.stat(name, dir_fd=self.directory, follow_symlinks=False).st_mtime
                except OSError:
                    continue
                if modified_at < now - 30 * 86400:
                    self.drop(name)


def find_cache_directory(settings: HookSettings) -> "CacheDirectory | None":
    """Return the directory of --cache-dir, else the first private default directory, else None."""
    configured = settings.value("cache-dir")
    if configured:
        try:
            return CacheDirectory(configured)
        except OSError as trouble:
            raise BadUsage(
                f"--cache-dir {short_repr(configured)} cannot be used: {trouble.strerror}"
            ) from trouble
    environ = settings.environ
    home = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or home_directory(), ".cache")
    defaults = [os.path.join(home, "classad-hydrator", "hook")]
    if settings.glidein_path:
        defaults.insert(
            0, os.path.join(os.path.dirname(os.path.abspath(settings.glidein_path)), "hydrator-hook")
        )
    spare = environ.get("TMPDIR") or "/tmp"  # noqa: S108 - the hook makes a private folder in /tmp
    for path in [*defaults, *candidate_directories(spare)]:
        try:
            return CacheDirectory(path)
        except OSError:
            continue
    return None


def home_directory() -> str:
    """Return this user's home directory from the user database, for an environment without HOME."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/nonexistent"


def candidate_directories(folder: str) -> "list[str]":
    """Return paths of directories to try in *folder*, a folder where all users may write, such as /tmp.

    The first are the directories of earlier runs. The last is a new one with a random name: another user
    could take a name that can be foretold.
    """
    begin = f"hydrator-hook-{os.geteuid()}-"
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(begin))
    except OSError:
        names = []
    return [os.path.join(folder, name) for name in [*names, begin + os.urandom(8).hex()]]


def cache_file_name(settings: HookSettings, site: str) -> str:
    import zlib

    return f"ad-{percent_encode(site)[:100]}-{zlib.crc32(settings.location.encode()):08x}"


def read_cached_ad(
    cache: "CacheDirectory | None", settings: HookSettings, site: str, now: int
) -> "CachedAd | None":
    """Return the last answer of this source for *site*; None without a valid local copy."""
    if cache is None or settings.source == "file":
        return None
    first, _, rest = cache.read(cache_file_name(settings, site)).partition(b"\n")
    second, _, text = rest.partition(b"\n")
    try:
        if first != settings.location.encode():
            return None
        return CachedAd(decode_ascii(second), read_ad(text, site, now))
    except Exception:
        return None


def write_cached_ad(
    cache: "CacheDirectory | None", settings: HookSettings, site: str, cached: CachedAd
) -> None:
    if cache is not None and settings.source != "file":
        try:
            text = f"{settings.location}\n{cached.text}"
            cache.put(cache_file_name(settings, site), text.encode("ascii"))
        except Exception as trouble:
            print_error(f"cannot store the answer in the cache: {describe_bug(trouble)}")


def find_startd(pid: int) -> "tuple[int, str, list[str]]":
    """Return process id, start time and arguments of the startd: *pid* or a process above it.

    If no process above is a startd, return the values of *pid*. The start time is in clock ticks since boot.
    Under GlideinWMS the hook's parent is a wrapper that runs once, and the startd is the wrapper's parent.
    """
    first = (pid, *read_process(pid)[1:])
    for _ in range(8):
        parent, started_at, words = read_process(pid)
        if not parent:
            break
        if os.path.basename(words[0]) == "condor_startd":
            return pid, started_at, words
        pid = parent
    return first


def read_process(pid: int) -> "tuple[int, str, list[str]]":
    """Return parent, start time and arguments of process *pid*; 0 and empty texts without such a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read(4096).rpartition(b")")[2].split()
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(65536).decode("utf-8", "replace").split("\0")
        return int(fields[1]), fields[19].decode("ascii"), words
    except (OSError, ValueError, IndexError):
        return 0, "", [""]


def local_name_arguments(words: "list[str]") -> "list[str]":
    """Return the two words ``-local-name X`` among a daemon's arguments *words*; empty if there are none."""
    at = words.index("-local-name") if "-local-name" in words[:-1] else -1
    return words[at : at + 2] if at >= 0 else []


def startd_instance_name() -> str:
    """Return a file name that is unique for this startd process; empty if the process is not found."""
    try:
        pid, started_at, _ = find_startd(os.getppid())
        return f"startd-{percent_encode(os.uname().nodename)[:100]}-{pid}-{started_at}" if started_at else ""
    except Exception:
        return ""


# ---------------------------------------------------------------- printing


def write(output_fd: int, text: bytes, seconds: float) -> None:
    """Write all of *text*; wait up to *seconds* in total for a slow reader.

    The function writes pieces so small that a writable pipe accepts each at once, so no write blocks. It does
    not make the pipe non-blocking, because other processes share the pipe.
    """
    import select

    end = time.monotonic() + seconds
    ready = select.poll()
    ready.register(output_fd, select.POLLOUT)
    while text:
        remaining_seconds = end - time.monotonic()
        if remaining_seconds <= 0 or not ready.poll(int(remaining_seconds * 1000) + 1):
            raise OutputError(
                f"the startd did not read the last {len(text)} bytes of the output within {seconds} s"
            )
        try:
            text = text[os.write(output_fd, text[:4096]) :]
        except BlockingIOError:
            time.sleep(0.01)
        except OSError as trouble:
            raise OutputError(f"the startd closed the output: {trouble.strerror}") from trouble


def drain(output_fd: int, seconds: float) -> None:
    """Wait up to *seconds* until the startd has read all of the pipe *output_fd*.

    After the hook exits, the startd reads only a few more kilobytes from the pipe and loses the rest.
    """
    import stat

    if not stat.S_ISFIFO(os.fstat(output_fd).st_mode):
        return
    end = time.monotonic() + seconds
    pause = 0.001
    while unread_byte_count(output_fd) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def unread_byte_count(pipe: int) -> int:
    """Return the number of unread bytes in *pipe*."""
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def ignore_sigterm() -> None:
    """Ignore SIGTERM, so that a late run can finish its output.

    With KILL = True the startd sends SIGTERM to a late run, and SIGKILL a second later.
    """
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def to_one_line(text: str) -> str:
    """Return *text* in one line of printable ASCII."""
    return "".join([letter if " " <= letter <= "~" else "?" for letter in " ".join(text.split())])


def print_error(text: str) -> None:
    """Print *text* as one line on stderr."""
    try:
        os.write(2, ("hydrator hook: " + to_one_line(text)[:600] + "\n").encode("ascii"))
    except OSError:
        return


# ---------------------------------------------------------------- one run


def run_with_timeout(seconds: float, source_name: str, work: "Callable[[], CachedAd]") -> "CachedAd":
    """Return the result of ``work()``, or raise its error, within *seconds*.

    ``work()`` runs in a thread, so the limit also applies to waits for DNS, a dead mount or a slow server.
    """
    import _thread

    results = []  # type: list[CachedAd | BaseException]
    is_done = _thread.allocate_lock()

    def task() -> None:
        try:
            results.append(work())
        except BaseException as trouble:
            results.append(trouble)
        finally:
            is_done.release()

    is_done.acquire()
    _thread.start_new_thread(task, ())
    if not is_done.acquire(True, seconds):
        raise SourceUnavailable(f"no answer from {source_name} within {seconds:g} s")
    result = results[0]
    if isinstance(result, BaseException):
        raise result
    return result


def ask_source(settings: HookSettings, site: str, cached: "CachedAd | None") -> CachedAd:
    """Return the current answer of the source."""
    now = int(time.time())
    if settings.source == "file":
        return CachedAd("", ask_file(settings.location, site, now))
    if settings.source == "collector":
        return CachedAd("", ask_collector(settings.location, site, now, settings))
    return ask_daemon(settings, site, now, cached)


def ask_or_use_cache(
    settings: HookSettings, site: str, cache: "CacheDirectory | None"
) -> "tuple[CachedAd, str]":
    """Return the source's ad and ""; if the source fails, the local copy of the ad and the reason."""
    if settings.jitter_seconds:
        time.sleep(settings.jitter_seconds * int.from_bytes(os.urandom(4), "big") / 2**32)
    cached = read_cached_ad(cache, settings, site, int(time.time()))
    # condor_status has the same limit: wait longer for its end
    margin = 1 if settings.source == "collector" else 0
    try:
        fresh = run_with_timeout(
            settings.timeout_seconds + margin, settings.location, lambda: ask_source(settings, site, cached)
        )
    except (BadUsage, AdNotServed):
        raise
    except BaseException as trouble:
        if cached is None:
            raise
        return cached, str(trouble) if isinstance(trouble, HookError) else describe_bug(trouble)
    if cached is None or vars(cached) != vars(fresh):
        write_cached_ad(cache, settings, site, fresh)
    return fresh, ""


def run_hook(settings: HookSettings, output_fd: int) -> int:
    """Query the source, print all blocks, and store the printed generation; return the exit status."""
    site = find_site(settings)
    if settings.under_glidein and not settings.environ.get("GLIDEIN_PERIODIC_SCRIPT"):
        return 0  # GlideinWMS only tests the script at the start of a glidein; the test passed
    cache = find_cache_directory(settings)
    cached, failure = ask_or_use_cache(settings, site, cache)
    name = startd_instance_name() if cache else ""
    facts = f"{site} {cached.ad['DataLocalityGeneration']} {VERSION}\n"
    openings = openings_mark(cached.ad)
    mark = (facts + openings).encode("ascii")
    last = cache.read(name) if cache and name else b""
    is_new = not last.startswith(facts.encode("ascii"))
    has_new_openings = last != mark and not is_new
    text = trouble_block(failure) + openings_block(cached.ad, has_new_openings)
    text += locality_block(cached.ad, is_new)
    ignore_sigterm()
    print_once(output_fd, text)
    if cache and name and last != mark:
        cache.put(name, mark)
        cache.sweep(int(time.time()))
    if failure:
        age = max(0, int(time.time()) - cached.ad["DataLocalityAsOf"])  # the clock may be set back meanwhile
        print_error(f"{failure}; the hook printed the last answer of the source, which is {age} s old")
    elif cache is None:
        print_error(
            "no private directory for the local copy, so each run requests the complete ad: set --cache-dir"
        )
    return 1 if failure else 0


def print_once(output_fd: int, text: bytes) -> None:
    """Print *text*; raise OutputError after a failure, so that the hook prints nothing after a cut line."""
    try:
        write(output_fd, text, WRITE_SECONDS)
        drain(output_fd, DRAIN_SECONDS)
    except OutputError:
        raise
    except BaseException as trouble:
        raise OutputError(f"cannot write the output: {describe_bug(trouble)}") from trouble


def print_trouble(reason: str, output_fd: int) -> None:
    """Print only the block with the error *reason*; the startd keeps the attributes of the other blocks."""
    try:
        print_once(output_fd, trouble_block(reason))
    except OutputError:
        return


def describe_bug(trouble: BaseException) -> str:
    """Return one sentence that describes an exception that is not a HookError."""
    text = f"{type(trouble).__name__}: {trouble}: this is a bug in the hook {VERSION}"
    return f"{text}, please report it to the pool's operator"


def main(argv: "list[str]", environ: "dict[str, str]", output_fd: int = 1) -> int:
    """Print help, or run the hook; return the exit status and never raise.

    The hook also prints the error for the pool. After an OutputError the hook cannot print any more.
    """
    under_glidein = bool(argv) and os.path.basename(argv[0]) == "glidein_config"
    try:
        if "--help" in argv or "--version" in argv:
            text = HELP if "--help" in argv else f"hydrator hook {VERSION}, contract {CONTRACT}\n"
            write(output_fd, text.encode("ascii"), WRITE_SECONDS)
            return 0
        status = run_hook(HookSettings(argv, environ), output_fd)
    except BaseException as trouble:
        reason = str(trouble) if isinstance(trouble, HookError) else describe_bug(trouble)
        if not isinstance(trouble, OutputError) and (
            not under_glidein or environ.get("GLIDEIN_PERIODIC_SCRIPT")
        ):
            print_trouble(reason, output_fd)
        print_error(reason)
        status = 2 if isinstance(trouble, BadUsage) else 1
    return 0 if under_glidein else status


if __name__ == "__main__":
    # skip Python's clean-up at exit: it takes time, and a thread may still wait for a dead server
    os._exit(main(sys.argv[1:], dict(os.environ)))
