"""Findings of `hydrator check` for a healthy installation, and for each problem."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from hydrator.diagnostics.check.examine import examine
from hydrator.diagnostics.check.findings import CheckInputs, Finding, Level
from hydrator.diagnostics.check.slots import site_of
from hydrator.domain.bugs import WorkerBug
from hydrator.domain.daemon_probe import Authorization
from hydrator.domain.errors import PoolDenied, PoolError
from hydrator.domain.model import QueuedJobs, ScheddDemand, Survey, Unseen
from hydrator.domain.staging_ports import StagingPermissions
from tests.factories import CAM, NOON, RAL, replica
from tests.memory import MemoryCatalogue, MemoryPool
from tests.memory_stager import MemoryStager

SLOT_ATTRIBUTES = ("GLIDEIN_ResourceName", "GLIDEIN_Site")


TWO = ("cm1:9618", "cm2:9618")


ALLOWED = Authorization(True, "hydrator@pool", "IDTOKENS")
DENIED = replace(ALLOWED, is_allowed=False)


@dataclass
class Pool:
    """A pool with answers chosen by the test; it raises an answer that is an exception."""

    slots_there: list = field(default_factory=lambda: [slot()])
    transform: str | None = "DataLocality"
    limits: str | None = "False"
    rank: str | None = "1e9 * (TARGET.DataLocalityRank ?: 0.0) + My.Rank"
    too_much: frozenset = frozenset()
    reads: bool = True
    unknown: str = ""
    merging: frozenset = frozenset({"cm1:9618", "cm2:9618"})
    addresses: tuple = ("cm1:9618",)
    denying: frozenset = frozenset()
    ping_answer: Authorization | Exception = ALLOWED
    version: str = "25.14.1"
    advertisers: str | None = "condor@pool.test hydrator@pool.test"
    counts: Mapping[str, int] = field(default_factory=dict)

    def slots(self, attributes, constraint="true"):
        return self.slots_there

    def config_of(self, daemon, names, name=None):
        values = {
            "JOB_TRANSFORM_NAMES": self.transform,
            "SCHEDD_ENABLE_PER_USER_MATCH_LIMITS": self.limits,
            "NEGOTIATOR_PRE_JOB_RANK": self.rank,
            "ALLOW_DAEMON": self.advertisers,
        }
        return {wanted: values[wanted] for wanted in names}

    def ping(self, daemon, level, name=None):
        if isinstance(self.ping_answer, Exception):
            raise self.ping_answer
        if self.unknown:
            return Authorization(False, reason=self.unknown)
        if level == "READ":
            return replace(ALLOWED, is_allowed=self.reads)
        if level == "NEGOTIATOR" and name in self.merging & set(self.addresses):
            return ALLOWED
        if level == "DAEMON" and name in self.denying:
            return DENIED
        return self.ping_answer if level == "DAEMON" else replace(ALLOWED, is_allowed=level in self.too_much)

    def collectors(self):
        return list(self.addresses)

    def schedds(self):
        return [
            {"Name": "ap1", "CondorVersion": f"$CondorVersion: {self.version} 2026-11-01 $", **self.counts}
        ]


@dataclass
class OneCollector(Pool):
    """One of several collectors, queried by itself."""

    pool: Pool | None = None
    address: str = ""

    def ping(self, daemon, level, name=None):
        assert self.pool is not None
        assert name is None
        return self.pool.ping(daemon, level, self.address)


def each_of(pool: Pool | None) -> dict:
    several = pool is not None and len(pool.addresses) > 1
    return (
        {f"collector {at}": OneCollector(pool=pool, address=at) for at in pool.addresses} if several else {}
    )


def slot(name="slot1@a", site=CAM, **more):
    well = {
        "Name": name,
        "GLIDEIN_Site": site,
        "DataLocalityAsOf": 1,
        "DataLocalitySource": "hook",
        "Start": "(true) && (TARGET.DataLocalityHere =!= false)",
    }
    return {**well, **more}


def findings(
    pool=None, *, queues=None, catalogue=None, folder=None, sites_file=None, merges=False, **more
) -> list[Finding]:
    catalogue = catalogue or MemoryCatalogue("rucio", [replica()], sites=[CAM, RAL], clock=lambda: NOON)
    return examine(
        inputs(
            pool,
            catalogues=[catalogue],
            queues=queues or MemoryPool({"ap1": ScheddDemand(NOON, (QueuedJobs(("lofar:L1",), 3),))}),
            ad_folder=folder,
            sites_file=sites_file,
            is_merging=merges,
            **more,
        )
    )


def inputs(pool=None, **more) -> CheckInputs:
    always = {"slot_attributes": SLOT_ATTRIBUTES, "is_advertising": True}
    nothing = {"catalogues": (), "queues": None, "ad_folder": None}
    return CheckInputs(pool=pool, collectors=each_of(pool), **{**always, **nothing, **more})


def ill(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.level is not Level.OK]


@pytest.mark.parametrize(
    ("updated_at", "merges", "is_named"),
    [(999, True, False), (881, True, False), (880, True, True), (None, True, True), (999, False, True)],
)
def test_bare_slot_is_named_unless_the_next_merge_may_still_be_due(updated_at, merges, is_named):
    """Otherwise the result would change between two checks of the same pool."""
    bare = slot(DataLocalityAsOf=None, DataLocalitySource=None, Start="true", LastHeardFrom=updated_at)
    assert [one.level for one in slots_of(bare, merges=merges)] == [Level.WARN] * is_named


@pytest.mark.parametrize(("via", "merges"), [("merge", True), (None, True), ("merge", False)])
def test_start_clause_without_a_hook_is_a_warning_with_and_without_a_merge(via, merges):
    there = {"DataLocalitySource": via, "DataLocalityAsOf": 1 if via else None, "LastHeardFrom": 999}
    (found,) = slots_of(slot(**there), merges=merges)
    assert "no hook: their startds have no dataset attributes" in found.message
    assert "refuse every job with datasets: slot1@a" in found.message
    assert slots_of(slot(**there, Start="true"), merges=merges) == []


def slots_of(*slots: dict, merges: bool) -> list[Finding]:
    found = ill(findings(Pool(slots_there=list(slots)), merges=merges, now=1000))
    return [one for one in found if one.subject == "slots"]


def test_check_of_a_healthy_installation_has_no_advice(tmp_path):
    assert ill(findings(Pool(), folder=tmp_path / "not" / "there" / "yet")) == []


WARN, FAIL, ADVICE = Level.WARN, Level.FAIL, Level.ADVICE
RANKS, NARROW = "--role negotiator", "-authz READ -authz DAEMON"
TOKEN, VALID = (
    "no token, we are uid 7",
    "give the daemon a valid token of this pool: docs/operators/credentials",
)
NO_TOKEN = Authorization(is_allowed=False, reason="no credential")
BELOW = "= $(ALLOW_DAEMON:$(ALLOW_WRITE)) and below it COLLECTOR.ALLOW_DAEMON = $(COLL"
EXTENDED = "COLLECTOR.ALLOW_DAEMON = $(COLLECTOR.ALLOW_DAEMON:$(ALLOW_DAEMON)) "
BARE = {"DataLocalityAsOf": None, "DataLocalitySource": None, "Start": "true"}
BROKEN_SLOT = slot("slot2@a", Start="Owner", SlotBrokenReason="Not enough GPUs")
DENIES = "UK denies access (401): check --token-file"
UNREAD = "MARS, and their slots have no attributes: jobs with datasets may not read from elsewhere there"
STARVES = "58 or more of them are idle, the other jobs of their owner get no slot"
FULL = "70 jobs run, of MAX_JOBS_RUNNING = 60: none of the 9 idle jobs can start"


def holding(level: str) -> Pool:
    """Return a pool that gives the daemon a right that it does not need."""
    return Pool(too_much=frozenset({level}))


def queue_of(idle: int, running: int) -> Pool:
    return Pool(counts={"TotalIdleJobs": idle, "TotalRunningJobs": running, "MaxJobsRunning": 60})


def with_slots(*slots: dict) -> Pool:
    return Pool(slots_there=list(slots))


@pytest.mark.parametrize(
    ("pool", "level", "seen", "todo"),
    [
        (Pool(rank="My.Rank"), WARN, "has no locality term", RANKS),
        (Pool(rank=None), WARN, "has no locality term", RANKS),
        (Pool(transform="Other"), WARN, "no DataLocality transform", "--role schedd"),
        (Pool(limits="True"), WARN, "starve that user's other jobs", "--role schedd"),
        (Pool(ping_answer=DENIED), FAIL, "refuses site ads (DAEMON)", BELOW),
        (Pool(advertisers=f" {ALLOWED.identity}"), FAIL, "the ads of the pool's own daemons", EXTENDED),
        (Pool(ping_answer=NO_TOKEN), FAIL, "from a client without a valid token", "credentials.md#idtokens"),
        (Pool(ping_answer=PoolDenied("collector", "no token")), FAIL, "no token", "valid token"),
        (Pool(ping_answer=PoolError("collector", "it is down")), FAIL, "it is down", "runs"),
        (holding("ADVERTISE_STARTD"), WARN, "replace slot ads", NARROW),
        (holding("NEGOTIATOR"), WARN, "read the claim ids", NARROW),
        (holding("ADMINISTRATOR"), WARN, "stop and drain daemons", NARROW),
        (holding("WRITE"), WARN, "submit jobs (WRITE)", "DENY_WRITE"),
        (Pool(reads=False), FAIL, "refuses queries (READ)", "COLLECTOR.ALLOW_READ"),
        (Pool(unknown=TOKEN), FAIL, TOKEN, f"{VALID}.md#idtokens"),
        (with_slots(), WARN, "lists no slot", ""),
        (with_slots(slot(GLIDEIN_Site=None)), WARN, "1 of the slots name no site", "GLIDEIN_Site"),
        (
            with_slots(slot(site="MARS")), ADVICE, "MARS: they have slots and no storage",
            f"[sites.aliases], docs/operators/sites.md; no slot is at {CAM}",
        ),
        (with_slots(slot(site="MARS", **BARE)), ADVICE, UNREAD, "hook there: docs/operators/glideins.md"),
        (with_slots(slot(), BROKEN_SLOT), ADVICE, "1 slot broken, slot2@a: Not enough GPUs", "startd's"),
        (queue_of(58, 2), ADVICE, STARVES, "raise MAX_JOBS_RUNNING"),
        (queue_of(9, 70), ADVICE, FULL, "raise MAX_JOBS_RUNNING"),
        (with_slots(slot(DataLocalityAsOf=None)), WARN, "no DataLocality attributes", "hook"),
        (
            with_slots(slot(DataLocalityError=DENIES)), WARN, f"the hook fails at 1 slot, slot1@a: {DENIES}",
            "When nothing arrives",
        ),
        (with_slots(slot(Start="true")), WARN, "without DataLocalityHere", "--role startd"),
    ],
)  # fmt: skip
def test_check_names_each_problem_with_advice(pool, level, seen, todo):
    (finding,) = ill(findings(pool))
    assert finding.level is level
    assert seen in finding.message
    assert todo in finding.todo


def test_names_in_expressions_count_in_any_letter_case():
    slots = [slot(Start="TARGET.datalocalityhere =!= FALSE")]
    assert ill(findings(Pool(rank="1000 * MY.DATALOCALITYRANK", slots_there=slots))) == []


def test_slots_whose_hook_prints_another_site_are_named():
    """Their `require` jobs would start where their data is not."""
    slots = [slot(DataLocalitySite="RAL"), slot("slot1@b", DataLocalitySite=CAM), slot("slot1@c")]
    (finding,) = ill(findings(Pool(slots_there=slots)))
    assert finding.message == "at CAM the hook of 1 slot prints the ad of RAL: slot1@a"
    named = slot(site="CE-1.at.CAM", DataLocalitySite=CAM)
    assert not [one for one in findings(Pool(slots_there=[named])) if "prints the ad of" in one.message]
    assert "--site" in finding.todo


def test_unreachable_schedd_fails_and_the_others_are_checked():
    queues = MemoryPool({"ap1": Unseen("denied"), "ap2": ScheddDemand(NOON, ())})
    found = findings(Pool(), queues=queues)
    assert "check that the schedd runs" in ill(found)[0].todo, "it may be silent, and not only deny"
    assert [(f.subject, f.message) for f in ill(found)] == [("schedd ap1", "the query failed: denied")]
    assert any(f.subject == "schedd ap2" and f.level is Level.OK for f in found)


@pytest.mark.parametrize(
    ("version", "is_named"), [("23.9.6", True), ("25.13.1", True), ("25.13.2", False), ("25.14.1", False)]
)
def test_schedd_that_an_endless_attribute_stops_is_named_with_its_version(version, is_named):
    found = [f for f in findings(Pool(version=version)) if f"HTCondor {version}: an attribute" in f.message]
    assert [f.level for f in found] == [Level.ADVICE] * is_named


def test_schedd_with_room_for_one_more_job_is_not_named():
    counts = {"TotalIdleJobs": 57, "TotalRunningJobs": 2, "MaxJobsRunning": 60}
    assert ill(findings(Pool(counts=counts))) == []


def test_storage_elements_without_a_site_are_counted_and_named():
    class Unmapped(MemoryCatalogue):
        def read(self, dids):
            answer = super().read(dids)
            return Survey(
                answer.catalogue, answer.started_at, answer.sites, answer.readings, frozenset({"LOST_XRD"})
            )

    (finding,) = ill(findings(Pool(), catalogue=Unmapped("rucio", sites=[CAM], clock=lambda: NOON)))
    assert "1 storage elements have no site: LOST_XRD" in finding.message


def test_check_goes_on_after_a_bug_of_a_plugin():
    class Buggy(MemoryCatalogue):
        def read(self, dids):
            raise WorkerBug("KeyError at mine/plug.py:7", "", "the plugin mine")

    found = findings(Pool(), catalogue=Buggy("mine", clock=lambda: NOON))
    first = ill(found)[0]
    assert first.subject == "mine"
    assert first.message.startswith("bug: KeyError at mine/plug.py:7; please report it")
    assert first.message.endswith("to the maker of the plugin mine")
    assert any(finding.subject == "negotiator" for finding in found)


def test_check_reports_an_ad_folder_that_cannot_be_made(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    blocker.chmod(0o400)
    (finding,) = ill(findings(Pool(), folder=blocker / "ads"))
    assert finding.level is Level.FAIL
    assert "publish.file.directory" in finding.todo
    (finding,) = ill(findings(Pool(), sites_file=blocker / "out" / "sites.json"))
    assert (finding.level, finding.subject) == (Level.FAIL, "sites")
    assert "publish.sites_file" in finding.todo


def test_site_of_a_slot_is_its_first_site_attribute():
    both = {"GLIDEIN_Site": "B", "GLIDEIN_ResourceName": "A"}
    assert site_of(both, SLOT_ATTRIBUTES) == "A"
    assert site_of({"GLIDEIN_Site": "B", "GLIDEIN_ResourceName": None}, SLOT_ATTRIBUTES) == "B"
    assert site_of({}, SLOT_ATTRIBUTES) is None


def test_allowed_merge_is_advice_with_its_side_effect_at_each_collector():
    found = ill(findings(Pool(too_much=frozenset({"NEGOTIATOR"}), addresses=TWO), merges=True))
    assert [(finding.level, finding.subject) for finding in found] == [
        (Level.ADVICE, "collector cm1:9618"),
        (Level.ADVICE, "collector cm2:9618"),
    ]
    assert "read the claim ids of all slots, and so use any slot" in found[0].message
    assert "docs/operators/other-pools.md" in found[0].todo


def test_collector_that_denies_merges_is_a_failure_of_its_own():
    found = ill(findings(Pool(merging=frozenset({"cm1:9618"}), addresses=TWO), merges=True))
    assert [finding.subject for finding in found if finding.level is Level.FAIL] == ["collector cm2:9618"]
    (denied,) = (finding for finding in found if finding.level is Level.FAIL)
    assert "refuses slot merges (NEGOTIATOR) from hydrator@pool" in denied.message
    assert "COLLECTOR.ALLOW_NEGOTIATOR" in denied.todo


def test_merge_permission_is_not_checked_if_merging_is_off():
    assert ill(findings(Pool(merging=frozenset()))) == []


BROKEN = {"catalogue": MemoryCatalogue("rucio", sites=[CAM], clock=lambda: NOON, is_broken=True)}
"""A catalogue that does not answer."""


def of_daemon(part: str) -> dict:
    """Return the finding of the daemon's last cycle about the same part."""
    return {
        "daemon_findings": [
            Finding(Level.FAIL, "daemon", f"{part} failed for the daemon too", failed_part=part)
        ]
    }


def test_a_catalogue_that_does_not_answer_is_one_finding_and_the_check_goes_on():
    pool = Pool(slots_there=[slot(), slot("slot1@b", site=RAL)])
    found = findings(pool, **BROKEN, **of_daemon("rucio"))
    assert [(one.level, one.subject) for one in ill(found)] == [(Level.FAIL, "rucio")]
    assert any(one.subject == "negotiator" for one in found)


def test_a_catalogue_that_fails_for_the_daemon_alone_is_a_finding_of_the_daemon():
    (found,) = ill(findings(Pool(), **of_daemon("rucio")))
    assert found.subject == "daemon"


def test_each_collector_is_checked_for_site_ads_and_one_that_denies_them_is_one_finding():
    pool = Pool(addresses=TWO, merging=frozenset(), denying=frozenset({"cm2:9618"}))
    found = findings(pool, **of_daemon("collector cm2:9618"))
    asked = [(one.level, one.subject) for one in found if one.subject.startswith("collector")]
    assert asked == [(Level.OK, "collector cm1:9618"), (Level.FAIL, "collector cm2:9618")]
    assert len(ill(found)) == 1


def test_unreachable_collector_is_one_finding_and_the_others_are_checked():
    class Deaf(Pool):
        def ping(self, daemon, level, name=None):
            if name == "cm2:9618":
                raise PoolError(f"collector {name}", "no answer within 3 s")
            return super().ping(daemon, level, name)

    found = findings(Deaf(addresses=TWO), merges=True, **of_daemon("collector cm2:9618"))
    bad = [(one.level, one.subject) for one in ill(found)]
    assert bad == [(Level.FAIL, "collector cm2:9618"), (Level.ADVICE, "collector cm1:9618")]
    assert any(one.subject == "slots" and one.level is Level.OK for one in found)


@pytest.mark.parametrize("site", [CAM, None])
def test_a_hook_that_fails_is_one_finding(site):
    trouble = {"DataLocalityError": "CAM denies access (401)", "DataLocalityAsOf": None}
    (found,) = ill(findings(Pool(slots_there=[slot(site=site, **trouble)])))
    assert "the hook fails at 1 slot, slot1@a: CAM denies access (401)" in found.message


def test_slots_are_not_called_unmerged_if_collectors_refuse_merges():
    bare = slot(DataLocalityAsOf=None, DataLocalitySource=None, Start="true")
    (found,) = ill(findings(Pool(slots_there=[bare], merging=frozenset()), merges=True))
    assert (found.level, found.subject) == (Level.FAIL, "collector cm1:9618")


def test_a_token_that_is_limited_to_read_is_not_called_a_missing_allow_entry():
    limited = "its token allows only READ: create a token that also allows DAEMON"
    (found,) = ill(findings(Pool(ping_answer=replace(DENIED, token_limit_advice=limited))))
    assert (found.level, found.todo) == (Level.FAIL, limited)


# the permissions for requests of data


def check_staging(
    permissions: StagingPermissions, *, mode="request", is_broken=False, **more
) -> list[Finding]:
    stager = MemoryStager(lambda: NOON, name="rucio")
    stager.permissions, stager.is_broken = permissions, is_broken
    asking = frozenset({"rucio"}) if mode == "request" else frozenset()
    found = findings(stagers=[stager], asking_catalogues=asking, **more)
    assert set(stager.calls) == {"probe_permissions"}
    return [one for one in found if one.subject.startswith("staging")]


def test_account_with_all_permissions_is_fine():
    (found,) = check_staging(StagingPermissions(True, True, True))
    assert (found.level, found.subject) == (Level.OK, "staging rucio")
    assert found.message == "this account may request: yes, renew: yes, cancel: yes"


@pytest.mark.parametrize(("mode", "level"), [("request", Level.FAIL), ("propose", Level.WARN)])
def test_account_that_may_not_request_is_a_failure_in_the_mode_request(mode, level):
    (found,) = check_staging(StagingPermissions(False, True, True), mode=mode)
    assert found.level is level
    assert "request: no" in found.message
    assert "pins and stages nothing here" in found.message
    assert "permissions" in found.todo


@pytest.mark.parametrize(
    ("permissions", "consequence"),
    [
        (StagingPermissions(True, False, True), "ends by its lifetime even if jobs still need the data"),
        (StagingPermissions(True, True, False), "stays until its lifetime ends"),
    ],
)
def test_missing_renewal_or_cancelling_is_a_warning_with_its_consequence(permissions, consequence):
    (found,) = check_staging(permissions)
    assert found.level is Level.WARN
    assert consequence in found.message


def test_unknown_permission_is_advice():
    (found,) = check_staging(StagingPermissions(None, True, True))
    assert found.level is Level.ADVICE
    assert "request: not known" in found.message
    assert "before it is used" in found.message


def test_notes_of_the_catalogue_are_in_the_finding():
    (found,) = check_staging(
        StagingPermissions(False, True, True, ("account bob needs the attribute add_rule",))
    )
    assert "account bob needs the attribute add_rule" in found.message


def test_catalogue_without_an_answer_is_a_failure_and_the_check_goes_on():
    (found,) = check_staging(StagingPermissions(), is_broken=True)
    assert (found.level, found.subject) == (Level.FAIL, "staging rucio")
