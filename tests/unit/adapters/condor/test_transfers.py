"""Transfers between sites, from schedds: records of both releases, and reports that users can invent."""

from datetime import timedelta

import classad2
import pytest

from adapters.condor.bindings.schedd_calls import TransferCalls
from adapters.condor.job_history import (
    MAX_MISSES,
    MAX_WAITING_RUNS,
    BufferedMisses,
    TransferRecords,
    WrapperReports,
    parse_read,
)
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site, to_unix
from hydrator.domain.network import TransferOrigin, TransferSample
from hydrator.wiring.assembly import site_of_host
from tests.factories import NOON

WHEN = to_unix(NOON)


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (f"UK:200000000:12.5:{WHEN}:NL", True),
        (f"UK:200000000:12.5:{WHEN}", False),
        (f"UK:200000000:12.5:{WHEN}:NL:x", False),
        (f"UK:-1:12.5:{WHEN}:NL", False),
        (f"UK:{'9' * 30}:12.5:{WHEN}:NL", False),
        (f"UK:1e9:12.5:{WHEN}:NL", False),
        (f"UK:200000000:nan:{WHEN}:NL", False),
        (f"UK:200000000:inf:{WHEN}:NL", False),
        (f"UK:200000000:0:{WHEN}:NL", False),
        ("UK:200000000:12.5:-7:NL", False),
        (f"UK:200000000:12.5:{10**15}:NL", False),
        (f":200000000:12.5:{WHEN}:NL", False),
        (f"UK:200000000:12.5:{WHEN}: ", False),
        (f"U\nK:200000000:12.5:{WHEN}:NL", False),
        ("", False),
    ],
)
def test_report_of_a_job_is_parsed_or_ignored(text, is_valid):
    sample = parse_read(text, "alice@pool", "ap#1.0")
    assert bool(sample) == is_valid
    if text == f"UK:200000000:12.5:{WHEN}:NL":
        assert sample == TransferSample(
            Site("UK"), Site("NL"), 200_000_000, 12.5, NOON, TransferOrigin.WRAPPER, "alice@pool", "ap#1.0"
        )


class Client:
    """A client of two schedds; a schedd without rows does not answer."""

    def __init__(self, **rows: list) -> None:
        self.rows = rows
        self.since: list[int] = []

    def schedds(self):
        return [{"Name": name} for name in ("ap1", "ap2")]

    def read_transfer_records(self, schedd, since, site_attributes):
        assert site_attributes == ("GLIDEIN_Site",)
        self.since.append(since)
        if schedd not in self.rows:
            raise PoolError(schedd, "no such history")
        return self.rows[schedd]

    def close(self):
        """Close nothing."""


FILE = {"host": "se.uk", "bytes": 120_000_000, "seconds": 2.0, "ended_at": float(WHEN)}


def row(kind="INPUT", run="1.0.1", site=None, user=None, files=(FILE,)):
    return {"kind": kind, "run": run, "site": site, "user": user, "files": list(files)}


def end(run="1.0.1", site="NL", user="alice", files=()):
    return row("EPOCH", run, site, user, files)


def records(*rounds, hosts=(("se.uk", "UK"), ("ap1", "DE"))):
    """Return the transfers (source, destination, user) of each round of queries of schedd ap1."""
    client = Client(ap2=[])
    log = TransferRecords(client, lambda: NOON, ("GLIDEIN_Site",), site_of_host(dict(hosts)))
    for rows in rounds:
        client.rows["ap1"] = rows
        answer = log.read_samples()
        assert answer.failures == {}
        assert len(set(answer.samples)) == len(answer.samples)
        yield [(each.source, each.destination, each.user) for each in answer.samples]


ALICE = ("UK", "NL", "alice")


@pytest.mark.parametrize(
    ("rounds", "found"),
    [
        ([[row(site="NL", user="alice")]], [[ALICE]]),
        ([[end(), row()]], [[ALICE]]),
        ([[row()], [end()]], [[], [ALICE]]),
        ([[row(user="bob")], [end()]], [[], [("UK", "NL", "bob")]]),
        ([[row(run="2.0.1")], [end()]], [[], []]),
        ([[row(run=None)], [end(run=None)]], [[], []]),
        ([[end(run=None), row(run=None)]], [[]]),
        ([[row(run=None, site="NL", user="alice")]], [[ALICE]]),
        ([[row()], [end(site=None)]], [[], []]),
        ([[row(files=[FILE | {"host": "elsewhere"}], site="NL", user="a")]], [[]]),
        ([[end(files=[FILE | {"host": None}])]], [[("DE", "NL", "alice")]]),
        ([[row(files=[FILE, FILE], site="NL", user="alice")]], [[ALICE, ALICE]]),
    ],
)
def test_record_gets_site_and_user_from_itself_or_from_the_end_of_its_run(rounds, found):
    assert list(records(*rounds)) == found


def test_waiting_records_are_bounded():
    many = [row(run=f"{n}.0.1") for n in range(MAX_WAITING_RUNS + 1)]
    first, last = end("0.0.1"), end(f"{MAX_WAITING_RUNS}.0.1")
    assert list(records(many, [first], [last])) == [[], [], [ALICE]]


def test_schedd_that_fails_is_named_and_asked_for_the_same_time_again():
    client, now = Client(), [NOON]
    log = TransferRecords(client, lambda: now[0], ("GLIDEIN_Site",), site_of_host({"se.uk": "UK"}))
    assert log.read_samples().failures == {"ap1": "no such history", "ap2": "no such history"}
    client.rows = {"ap1": [row(site="NL", user="alice")]}
    now[0] += timedelta(hours=1)
    answer = log.read_samples()
    assert [each.user for each in answer.samples] == ["alice"]
    assert answer.failures == {"ap2": "no such history"}
    now[0] += timedelta(hours=1)
    log.read_samples()
    start, ap1 = NOON - timedelta(days=1, minutes=5), NOON + timedelta(minutes=55)
    assert client.since == [to_unix(at) for at in [start] * 4 + [ap1, start]]


def reports(*texts, job="1", user="alice", misses=()):
    return {"GlobalJobId": job, "User": user, "reads": list(texts), "misses": list(misses)}


def test_newest_reads_of_a_job_are_samples_once():
    reads = WrapperReports()
    for schedd, size in [("ap1", 1), ("ap2", 2), ("ap1", 3)]:
        reads.add({schedd: [reports(f"UK:{size}:9:{WHEN}:NL")]})
    assert sorted(each.bytes for each in reads.read_samples().samples) == [2, 3]
    assert reads.read_samples().samples == ()


def test_misses_of_one_user_take_the_place_of_no_other_users():
    misses = BufferedMisses()
    many = [f"{WHEN + n} t:{n} UK" for n in range(50)]
    jobs = [reports(job=f"a{job}", misses=[f"{text}{job}" for text in many]) for job in range(30)]
    misses.add({"ap1": [*jobs, reports(job="b", user="bob", misses=[f"{WHEN} t:1 NL"])]})
    read = misses.read_reports()
    assert [f"{WHEN} t:1 NL"] in read
    assert len(read) == MAX_MISSES
    assert misses.read_reports() == []


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("se1.ral.example.org", "RAL"),
        ("SE1.RAL.EXAMPLE.ORG.", "RAL"),
        ("door.example.org", "ORG"),
        ("special.ral.example.org", "NL"),
        ("ral.example.org", "ORG"),
        ("example.org", None),
        ("", None),
    ],
)
def test_most_specific_pattern_gives_the_site_of_a_host(host, site):
    hosts = {"*.ral.example.org": "RAL", "*.example.org.": "ORG", "special.ral.Example.org.": "NL"}
    assert site_of_host(hosts)(host) == site


RESULT = """[ TransferUrl = "http://se.uk:8443/d/120.bin"; TransferType = "download";
  DeveloperData = [ TransferTries = 1; TransferHostName = "se.uk:8443" %s ];
  TransferEndTime = 1795417890; TransferSuccess = true; TransferProtocol = "http";
  TransferFileBytes = 120000000; TransferStartTime = 1795417890; TransferTotalBytes = 120000000;
  ConnectionTimeSeconds = 1.52917E-01 ]"""
OF_25 = """[ User = "alice@pool.test"; ProcId = 1; ClusterId = 7; RemoteHost = "slot1_1@UK@vm";
  EpochAdType = "INPUT"; EpochWriteDate = 1795417891; NumShadowStarts = 2; InputPluginResultList = { %s } ]"""
OF_23 = """[ ProcID = 1; ClusterID = 7; EpochWriteDate = 1795417891; NumShadowStarts = 2;
  InputPluginResultList = { %s } ]"""
END = """[ User = "alice@pool.test"; ProcId = 1; ClusterId = 7; NumShadowStarts = 2; EpochAdType = "EPOCH";
  MachineAttrGLIDEIN_Site0 = "NL"; TransferInStarted = 100; TransferInFinished = 160;
  TransferInputStats = %s ]"""


def rows(text: str) -> dict:
    calls = object.__new__(TransferCalls)
    calls.classad = classad2
    return calls._transfer_row(classad2.ClassAd(text), ["MachineAttrGLIDEIN_Site0"])


def test_records_of_both_releases_are_read():
    """The two records are of real pools of both releases: 25.14.1 and 23.9.6."""
    file = {"host": "se.uk", "bytes": 120_000_000, "seconds": 0.152917, "ended_at": 1795417890.0}
    expected = {"kind": "INPUT", "run": "7.1.2", "site": None, "files": [file]}
    assert rows(OF_25 % (RESULT % "")) == expected | {"user": "alice@pool.test"}
    assert rows(OF_23 % (RESULT % "")) == expected | {"user": None}


@pytest.mark.parametrize("attribute", ["ClusterID", "ProcID", "NumShadowStarts"])
def test_record_without_its_job_names_no_run(attribute):
    """TRANSFER_JOB_ATTRS of the operator replaces the default of 23.9, which has these attributes."""
    assert rows(OF_23.replace(attribute, "Other") % (RESULT % ""))["run"] is None


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("TransferSuccess = true", "TransferSuccess = false", None),
        ("TransferSuccess = true", "Other = 1", None),
        ('"download"', '"upload"', None),
        ("TransferTotalBytes = 120000000", "TransferTotalBytes = 99999999", None),
        ("TransferTotalBytes = 120000000", 'TransferTotalBytes = "many"', None),
        ("TransferEndTime = 1795417890", "TransferEndTime = 1795417880", None),
        ("TransferEndTime = 1795417890", "TransferEndTime = undefined", None),
        ("TransferEndTime = 1795417890", "TransferEndTime = 1795417900", ("se.uk", 10.0)),
        ('TransferProtocol = "http"', 'TransferProtocol = "osdf"', None),
        ("TransferTries = 1", 'HttpCacheHitOrMiss = "HIT"; HttpCacheHost = "c.nl:8000"', ("c.nl", 0.152917)),
        ("TransferTries = 1", 'HttpCacheHitOrMiss = "MISS"; HttpCacheHost = "c.nl"', ("se.uk", 0.152917)),
        ("TransferTries = 1", 'Endpoint = "cache.de:8443"', ("cache.de", 0.152917)),
    ],
)
def test_host_and_seconds_of_a_transfer(old, new, found):
    assert old in RESULT
    files = rows(OF_25 % (RESULT % "").replace(old, new))["files"]
    assert [(each["host"], each["seconds"]) for each in files] == ([found] if found else [])


@pytest.mark.parametrize("results", ["7", "error", "[]", '{ "text", 1, undefined }', "{ [] }"])
def test_results_of_any_other_form_are_ignored(results):
    text = OF_25.replace("{ %s }", results)
    assert rows(text)["files"] == []


@pytest.mark.parametrize(
    ("stats", "found"),
    [
        ("[ CedarSizeBytesLastRun = 600000000; CedarFilesCountLastRun = 1 ]", [(None, 60.0)]),
        ("[ CedarSizeBytesLastRun = 600000000; HttpSizeBytesLastRun = 1 ]", []),
        ("[ CedarSizeBytesLastRun = 6 ]", []),
        ("undefined", []),
        ("7", []),
    ],
)
def test_transfer_from_the_schedd_counts_if_it_was_the_only_one(stats, found):
    row = rows(END % stats)
    assert (row["kind"], row["site"]) == ("EPOCH", "NL")
    assert [(each["host"], each["seconds"]) for each in row["files"]] == found
