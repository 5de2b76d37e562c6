"""`--json`: every command prints the keys of hydrator/cli/output/json_models/, all of them and no others.

Each command has an example with every key. All other tests that run a command with `--json`, on real
pools too, compare its output with the same schemas (testbed/shaped.py).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

import jsonschema
import pytest
import typer

from hydrator.cli.app import app
from hydrator.cli.commands.outcomes.job_report import report_json
from hydrator.cli.commands.submit.rapthor.outlook import outlook_rows
from hydrator.cli.commands.why_answers import result_json as why_rows
from hydrator.cli.output.json_schema import SCHEMAS, JsonSchema, find_schema, walk_keys
from hydrator.cli.output.network import network_rows
from hydrator.cli.output.rows import (
    StateView,
    dataset_rows,
    finding_rows,
    plan_rows,
    site_change_rows,
    site_rows,
    status_rows,
)
from hydrator.cli.output.staging import staging_rows
from hydrator.diagnostics.check.findings import Finding, Level
from hydrator.diagnostics.credential_expiry import Credential, Renewer
from hydrator.diagnostics.outcomes import LostAds
from hydrator.diagnostics.prediction_errors import ErrorSummary
from hydrator.diagnostics.why.explanation import (
    JobExplanation,
    MismatchCause,
    Reason,
    Remedy,
    SiteMatch,
)
from hydrator.diagnostics.why.missing_data import DatasetCounts, MissingDataset, MissingReason
from hydrator.diagnostics.why.pool_facts import JobFacts, JobStatus
from hydrator.diagnostics.why.query import WhyResult
from hydrator.diagnostics.why.sets.facts import SlotSetFacts
from hydrator.diagnostics.why.sets.start_record import StartRecord
from hydrator.diagnostics.why.summary import JobSummary
from hydrator.domain.ads.estimates import TransferOrigin, TransferSample
from hydrator.domain.model import (
    DatasetState,
    Fact,
    Provenance,
    PublishedAd,
    QueuedJobs,
    ScheddDemand,
    SiteFacts,
    Snapshot,
    Unseen,
    to_unix,
)
from hydrator.domain.pool_ports import EndedJobs
from hydrator.domain.ports.staging import StagingKind
from hydrator.reconcile.ads.site_ads import Budget
from hydrator.reconcile.audit.ledger import Audit, AuditTally, Claim, Correction, VerificationMethod
from hydrator.reconcile.audit.misses import Miss
from hydrator.reconcile.estimates.predictions import EstimateKind
from hydrator.reconcile.estimates.rates import RateTable
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.history import DatasetChange
from hydrator.reconcile.publish.experiment import Experiment
from hydrator.reconcile.result import summary
from hydrator.reconcile.snapshot.breaker import HeldLoss
from hydrator.reconcile.snapshot.breaker import HoldCause as Why
from hydrator.reconcile.snapshot.provenance_rows import provenance_rows
from hydrator.reconcile.snapshot.update import CatalogueMemory, DatasetRecord
from hydrator.staging.ledger import EndedEntry
from hydrator.staging.overview import StagingOverview
from hydrator.state.network_rows import SourceStatus
from hydrator.submit.rapthor.outlook import SiteOutlook
from testbed.shaped import COMMANDS, conforms, problems
from tests.command_tree import walk_commands
from tests.factories import CAM, HOUR, L1, L2, L3, NOON, RAL, ad, demand, replica, want
from tests.staging_world import StagingWorld, need
from tests.unit.diagnostics.test_outcomes import found as tallied
from tests.unit.diagnostics.test_outcomes import row as ended
from tests.unit.reconcile.test_reconciler import World

TOLD = Provenance(
    "list_locks", "CAM-DISK", "stuck", "5f3a", "ops", NOON + HOUR, NOON + HOUR, timedelta(minutes=5)
)
HELD = HeldLoss(NOON, NOON, {L1: 1, L2: 1}, 6, Why.SITE)
LISTED = {"datasets": 3, "first": L1, "jobs": 4}


def known() -> StateView:
    """Return a state with some values of every kind."""
    half = Fact(DatasetState.PARTIAL, NOON, 0.5, TOLD)
    last = {
        "at": 1_700_000_000, "complete": False, "left_out": {CAM: [LISTED]},
        "wrong_keys": [LISTED],
        "publishers": {"file": {"error": "disk full", "not_read_back": [CAM], "ads": 1}},
    }  # fmt: skip
    wrong = {(Claim("rucio", L1, CAM), VerificationMethod.PROBE): Correction(NOON, NOON)}
    return StateView(
        now=NOON,
        default_scope=None,
        memories={
            "rucio": CatalogueMemory(NOON, frozenset({CAM}), {L1: DatasetRecord(NOON, {CAM: half}),
                             L3: DatasetRecord(NOON, {})},
                            {L2: "timeout"}, frozenset({"X-DISK"}), "it failed"),
        },
        demand=replace(demand(want(L1, jobs=3), want(L2)), rejected_texts={"no scope": "no colon"}),
        snapshot=Snapshot(
            {CAM: SiteFacts(NOON, {L1: half})},
            unseen_reasons={L2: "timeout"},
            bytes_total={L1: 10**9},
            case_collisions=((L2, L3),),
        ),
        ads={CAM: ad(L1), RAL: ad(site=RAL)},
        readback={"file": {CAM: PublishedAd(CAM, 1, NOON, NOON)}},
        last_cycle=last,
        held_losses={CAM: HELD},
        policy=ReconcilePolicy(),
        audit=Audit({CAM: AuditTally({0: (9, 1)}, 0.9, NOON)}, wrong),
        credentials=[Credential("tls", "tls", Renewer.OPERATOR, NOON + HOUR, NOON)],
        failed_reload={"at": to_unix(NOON), "problems": ["sites.retired: not a list"]},
        experiment=Experiment(7, NOON - HOUR, 6 * HOUR, 4, HOUR),
        staging=StagingOverview(NOON, "propose"),
    )  # fmt: skip


def cycle() -> dict:
    """Return the JSON value of `once` after a cycle with many problems."""
    world = World(replica(L1, CAM), replica(L2, CAM), replica("lofar:X", CAM), replica("lofar:x", CAM))
    pins = frozenset({L1, "lofar:X", "lofar:x"})
    running = world.restarted(rules=ReconcilePolicy(pins=pins, budget=Budget(line_bytes=45)))
    jobs = (QueuedJobs(("no scope",), 1), QueuedJobs((L2,), 4, "wrong key"))
    world.queues.queues = {"ap1": ScheddDemand(NOON, jobs)}
    running.refresh_demand()
    world.other.is_broken = True
    report = replace(running.run(), held_reasons={CAM: HELD.text(20)})
    return summary(report) | {"plan": plan_rows(report)}


def answers() -> dict:
    lacks = MissingDataset(
        L1, MissingReason.STATE, "it is PARTIAL", "PARTIAL", 0.5, 1_700_000_000, "5f3a", "a rule is stuck"
    )
    entries = SlotSetFacts(False, True, False, 0.5, 256, 1024, RAL, 64)
    reason = Reason(MismatchCause.DATA, True, 3, "its data is not there", ("TARGET.x",), (lacks,), entries)
    job = JobFacts(
        "7.0", "ap1", 2, JobStatus.IDLE, (L1,), {"x": "no colon"}, (L2,), "wait", 1_800_000_000, 20_700, True,
        requests={"cpus": 1.0}, status_attributes={"HoldReason": None}, misses=(Miss(CAM, L1, NOON),),
        start=StartRecord(False, 256, 1024, RAL),
    )  # fmt: skip
    counts = DatasetCounts(1, {"partial": 1}, 5, True, 1_700_000_000)
    where = SiteMatch(CAM, 3, 0, (reason,), Remedy(1, "wait"), counts, "5 of 6 datasets would leave", "cm2")
    answer = JobExplanation(
        job, "it waits", (RAL,), False, ("a note",), "until noon", "3 of 3", "wait", (where,)
    )
    crowd = JobSummary(2, 9, {"idle": 9}, {CAM: 4}, 5, 0, "7.9")
    answer = replace(answer, staging=("lofar:L1: asked 14:02 UTC",))
    return why_rows(WhyResult((answer,), {"ap2": "timeout"}, crowd))


def report() -> dict:
    told = {"s1": EndedJobs((ended(L1), ended()), is_complete=False), "s2": Unseen("no answer")}
    outcomes = replace(tallied(ended(L1, L2), ended(waits=HOUR)), lost_ads={CAM: LostAds(3, NOON)})
    errors = {EstimateKind.QUEUE: ErrorSummary(3, 1.5, 4.0), EstimateKind.READ: ErrorSummary(2, 1.0, 2.0)}
    return report_json(outcomes, errors, told, NOON - HOUR, NOON)


def staging() -> dict:
    """Return the JSON value of `staging list` with one row of every kind."""
    world = StagingWorld(a=1, b=3, c=9)
    world.queue(*(need(f"lofar:{name}") for name in "abc"))
    world.step()
    ended = EndedEntry("t", "rucio", StagingKind.PIN, CAM, L1, 5, NOON, NOON, True, True, "it ended")
    joined = {f"{L1} at {CAM}": "the rule 77 of ops"}
    overview = replace(world.overview, ended=(ended,), problems={"rucio": "no answer"}, joined=joined)
    return staging_rows(overview, "stopped")


CHANGE = DatasetChange(L1, None, "AVAILABLE", "its catalogue says so")
EXAMPLES = {
    "once": cycle,
    "plan": lambda: cycle()["plan"],
    "status": lambda: status_rows(known()),
    "sites": lambda: [
        *site_rows(known()),
        {**site_rows(known())[0], "changes": site_change_rows([(NOON, CHANGE)])},
    ],
    "datasets": lambda: dataset_rows(known(), None),
    "datasets --why": lambda: provenance_rows(known().memories, [L1, L2, L3], now=NOON),
    "network": lambda: network_rows(
        RateTable(
            [
                TransferSample(CAM, RAL, 10**9, n, NOON, TransferOrigin.SCHEDD, "", f"{n}")
                for n in (1.0, 2.0, 3.0)
            ],
            now=NOON,
        ),
        {CAM, RAL},
        [SourceStatus("rucio", NOON, {"requests": "denied"})],
    ),
    "approve": lambda: {CAM: 2},
    "check": lambda: finding_rows([Finding(Level.WARN, "slots", "none", "see why")]),
    "why": answers,
    "report": report,
    "run-anywhere": lambda: {"ap1": 3},
    "submit rapthor --dry-run": lambda: {
        "run": "run1", "datasets": 2, "answers": {"list": "answered"},
        "sites": outlook_rows([SiteOutlook(CAM, 1, {L2: "PARTIAL"}, 100, 60, True)]),
    },
    "submit rapthor --as ad": lambda: {
        "RequiredDatasets": [L1], "RequiredBytes": {L1: 5}, "DataLocality": "wait", "DataLocalityMaxWait": 60,
        "DataLocalityKey": "lofar:@L1",
        "DataLocalityExpectedSeconds": 3600,
        "RapthorRun": "run1",
    },
    "staging list": staging,
    **{f"staging {name}": (lambda name=name: {"command": name, "target": "4f1c", "text": "a sentence"})
       for name in ("approve", "reject", "cancel", "stop", "resume")},
    "token list": lambda: [{"key": "ab12", "made": "2026-11-21", "role": "site:CAM"}],
}  # fmt: skip


def shown(shape: JsonSchema, value: object, path: str = "") -> Iterator[str]:
    """Yield every key of *shape* that *value* has, named as in ``json_schema.walk_keys``."""
    inner = next((one for one in shape.get("anyOf", [shape]) if one.get("type") != "null"), shape)
    if isinstance(value, list):
        for one in value:
            yield from shown(inner["items"], one, f"{path}[]")
    elif isinstance(value, Mapping) and "properties" in inner:
        for key, one in value.items():
            here = f"{path}.{key}" if path else key
            yield here
            yield from shown(inner["properties"][key], one, here)
    elif isinstance(value, Mapping) and "additionalProperties" in inner:
        named = f"{path}.{inner['title']}" if path else inner["title"]
        for one in value.values():
            yield from shown(inner["additionalProperties"], one, named)


def test_every_command_with_json_has_a_schema():
    tree = dict(walk_commands(typer.main.get_command(app)))
    options = {
        path: {name for each in command.params for name in each.opts} for path, command in tree.items()
    }
    printing = {path for path, names in options.items() if "--json" in names}
    assert printing == COMMANDS
    for name in SCHEMAS:
        path, _, option = name.partition(" --")
        assert not option or f"--{option.split()[0]}" in options[path]


@pytest.mark.parametrize("name", SCHEMAS)
def test_json_output_matches_its_schema_and_has_every_key(name):
    value = json.loads(json.dumps(EXAMPLES[name]()))
    assert list(problems(SCHEMAS[name], value)) == []
    promised = {path for path, _, _ in walk_keys(SCHEMAS[name])}
    assert promised - set(shown(SCHEMAS[name], value)) == set()


@pytest.mark.parametrize("name", SCHEMAS)
def test_json_schema_is_valid_and_describes_every_key(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    assert [path for path, kind, meaning in walk_keys(SCHEMAS[name]) if not (kind and meaning)] == []


def test_missing_key_and_additional_key_are_both_reported():
    rows = EXAMPLES["check"]()
    less, more = [{**rows[0]}], [{**rows[0], "new": 1}]
    del less[0]["todo"]
    assert "'todo' is a required property" in next(problems(SCHEMAS["check"], less))
    assert "'new' was unexpected" in next(problems(SCHEMAS["check"], more))
    with pytest.raises(AssertionError, match="hydrator check --json"):
        conforms(["check", "--json"], json.dumps(less))


def test_options_choose_the_json_schema():
    assert find_schema("datasets", ["datasets", L1, "--why", "--json"]) is SCHEMAS["datasets --why"]
    assert find_schema("datasets", ["datasets", "--json"]) is SCHEMAS["datasets"]
    assert find_schema("submit rapthor", ["--as", "ad", "--json"]) is SCHEMAS["submit rapthor --as ad"]
    assert conforms(["check", "--json"], "") is None
