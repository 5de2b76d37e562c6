"""Odd answers of Rucio to a stager: each affects only its dataset, rule or site (on a client in memory)."""

import pytest
from rucio.common import exception as rucio_errors

from adapters.rucio.session.settings import RucioSettings
from adapters.rucio.session.transport import (
    Forbidden,
    InvalidRequest,
    NotFound,
    ServerFault,
    WriteRefused,
)
from adapters.rucio.staging import RucioStager, RuleOptions
from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueUnreachable
from hydrator.domain.model import Did
from hydrator.domain.staging_ports import (
    RefusalKind,
    StagingKind,
    StagingOrder,
    StagingPermissions,
    StagingQuery,
    StagingRefused,
)
from tests.factories import CAM, HOUR, L1, L2, NOON, RAL

SITES = frozenset({CAM, RAL})
STORAGES = {"CAM-DISK": CAM, "RAL-DISK": RAL}


ODD = [ServerFault("rucio", "HTTP 500"), Forbidden("rucio", "HTTP 403"), rucio_errors.RucioException("odd")]
odd = pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)


OUR_COMMENT = "classad-hydrator stage for jobs at CAM [hydrator:pool:1]"


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


class Client:
    """The calls of Rucio's client that a stager uses; a test changes the rows, or replaces a call."""

    def __init__(self):
        self.locks, self.rules, self.on = [], {}, {}
        self.usage = dict.fromkeys(STORAGES, 10**14)

    def add_rule(self, rule, did, *, locks_at=None, account="carl", **changes):
        scope, name = did.split(":")
        row = {"id": rule, "scope": scope, "name": name, "account": account, "state": "REPLICATING",
               "rse_expression": "CAM-DISK", "comments": "", "locks_ok_cnt": 0, "locks_replicating_cnt": 4,
               "locks_stuck_cnt": 0, "bytes": 4000, "expires_at": None,
               "created_at": "Sat, 21 Nov 2026 12:00:00 UTC"}  # fmt: skip
        self.rules[rule] = row | changes
        self.on.setdefault(did, []).append(rule)
        if locks_at:
            self.locks.append(
                {"scope": scope, "name": name, "rse": locks_at, "rule_id": rule, "state": "REPLICATING"}
            )

    def list_rses(self, rse_expression=None):
        if rse_expression == "empty":
            raise InvalidRequest("rucio", "HTTP 400 InvalidRSEExpression")
        return [{"rse": each, "rse_type": "DISK", "deleted": False} for each in STORAGES]

    def list_rse_attributes(self, storage):
        return {"site": STORAGES[storage]}

    def get_rse_usage(self, storage):
        return [{"source": "storage", "free": self.usage[storage], "used": 0}]

    def get_rse_limits(self, storage):
        return {}

    def get_metadata_bulk(self, dids):
        return [{**did, "did_type": "DATASET", "bytes": 4000, "is_open": False} for did in dids]

    def get_locks_for_dids(self, dids):
        wanted = {(did["scope"], did["name"]) for did in dids}
        return [lock for lock in self.locks if (lock["scope"], lock["name"]) in wanted]

    def get_replication_rule(self, rule):
        if rule not in self.rules:
            raise NotFound("rucio", "HTTP 404 RuleNotFound")
        return self.rules[rule]

    def list_replication_rules(self, filters):
        keys = {"scope", "account", "rse_expression"} & filters.keys()
        return [row for row in self.rules.values() if all(row[key] == filters[key] for key in keys)]

    def list_did_rules(self, scope, name):
        return [self.rules[rule] for rule in self.on.get(f"{scope}:{name}", ())]

    def list_parent_dids(self, scope, name):
        return []

    def list_dataset_replicas(self, scope, name, deep):
        return []

    def list_replica_locks(self, rule):
        return []


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def stager(client, tmp_path):
    settings = RucioSettings(
        "rucio", "https://rucio.example.org", "hydrator", tmp_path, calls_per_second=1000
    )
    made = RucioStager(settings, RuleOptions(), lambda: NOON)
    made._queries.connection._client = client
    return made


def ask(stager, *dids, rules=(), **more):
    return stager.list(StagingQuery(frozenset(dids), SITES, rules=frozenset(rules), **more))


def files_at_cam(count):
    """Return a call that finds *count* of the 4 files of each dataset at CAM."""
    return lambda scope, name, deep: [
        {"scope": scope, "name": name, "rse": "CAM-DISK", "length": 4, "available_length": count,
         "bytes": 4000, "available_bytes": 1000 * count, "state": "UNAVAILABLE", "updated_at": None}
    ]  # fmt: skip


def fail_for_the_first(client, call, error):
    """Let *call* fail for L1, or its rule r1, alone."""
    real = getattr(client, call)
    setattr(
        client,
        call,
        lambda *args, **more: (raising(error) if {"L1", "r1"} & {*args} else real)(*args, **more),
    )


@odd
@pytest.mark.parametrize(
    ("call", "rules"),
    [
        *((call, {"r2": L2}) for call in ("list_parent_dids", "list_did_rules")),
        *((call, {"r1": L1, "r2": L2}) for call in ("get_replication_rule", "list_dataset_replicas")),
    ],
)
def test_query_that_fails_for_one_dataset_or_its_rule_leaves_the_others(stager, client, call, rules, error):
    for rule, did in rules.items():
        client.add_rule(rule, did, locks_at="CAM-DISK")
    fail_for_the_first(client, call, error)
    answer = ask(stager, L1, L2)
    assert set(answer.unread) == {L1}
    assert [(one.id, one.did, one.site) for one in answer.rules] == [("r2", L2, CAM)]
    assert answer.sizes[L2] == 4000


@odd
def test_the_only_dataset_that_fails_leaves_the_rules_of_ours(stager, client, error):
    """Else a job with a dataset of a forbidden scope keeps all rules of ours from being renewed."""
    client.add_rule("r2", L2, account="hydrator", comments=OUR_COMMENT)
    fail_for_the_first(client, "list_did_rules", error)
    answer = ask(stager, L1, rules=["r2"])
    assert [one.id for one in answer.rules] == ["r2"]
    assert set(answer.unread) == {L1}


@pytest.mark.parametrize(
    "change",
    [
        {"state": "FROZEN"},
        {"locks_ok_cnt": None},
        {"locks_ok_cnt": float("nan")},
        {"bytes": "4000"},
        {"bytes": -1},
        {"expires_at": "soon"},
    ],
    ids=str,
)
@pytest.mark.parametrize("others", [1, 30])
def test_odd_rule_of_one_dataset_leaves_the_others_however_many_are_read_together(
    stager, client, change, others
):
    client.add_rule("r1", L1, locks_at="CAM-DISK", **change)
    dids = [Did(f"lofar:D{n}") for n in range(others)]
    for n, did in enumerate(dids):
        client.add_rule(f"x{n}", did, locks_at="CAM-DISK")
    answer = ask(stager, L1, *dids)
    assert set(answer.unread) == {L1}
    assert len(answer.rules) == others


@pytest.mark.parametrize("comments", ["made by hand", OUR_COMMENT])
def test_odd_rules_that_nobody_asked_about_are_no_error(stager, client, comments):
    client.add_rule("r1", L1, account="hydrator", state="FROZEN", comments=comments)
    dids = [Did(f"lofar:D{n}") for n in range(30)]
    for n, did in enumerate(dids):
        client.add_rule(f"x{n}", did, locks_at="CAM-DISK")
    assert len(ask(stager, *dids, lists_all=True).rules) == 30


@pytest.mark.parametrize("vanishes", [False, True], ids=["matches nothing", "vanishes between two reads"])
def test_rule_whose_expression_matches_nothing_or_that_vanishes_is_nowhere(stager, client, vanishes):
    client.add_rule("r1", L1, rse_expression="CAM-DISK" if vanishes else "empty")
    client.add_rule("r2", L2, locks_at="CAM-DISK")
    if vanishes:
        client.locks.append({**client.locks[0], "name": "L1", "rule_id": "r1"})
        del client.rules["r1"], client.on[L1]
    answer = ask(stager, L1, L2)
    assert answer.unread == {}
    assert [one.id for one in answer.rules] == ["r2"]
    assert set(answer.sizes) == {L1, L2}


def test_rule_on_a_container_is_found_where_containers_contain_each_other(stager, client):
    boxes = {"L1": "box", "box": "crate", "crate": "box"}
    client.list_parent_dids = lambda scope, name: [{"scope": scope, "name": boxes[name]}]
    client.add_rule("r1", Did("lofar:crate"))
    assert [(one.id, one.did) for one in ask(stager, L1).rules] == [("r1", L1)]


@pytest.mark.parametrize(
    "usage",
    [
        *map(raising, ODD),
        lambda *_, **__: ["x"],
        *(
            lambda *_, row=row, **__: [{"source": "storage", "free": 10**14, **row}]
            for row in (
                {"free": float("nan")},
                {"free": "\x1b[31m" * 99},
                {"free": 2**70},
                {"free": -1},
                {"used": -5},
            )
        ),
    ],
)
def test_space_that_cannot_be_read_closes_its_site_only(stager, client, usage):
    """R11: free = -1, or used < 0."""
    real = client.get_rse_usage
    client.get_rse_usage = lambda storage, **more: (usage if storage == "CAM-DISK" else real)(storage, **more)
    spaces = stager.list(StagingQuery(spaces=SITES)).spaces
    assert spaces[RAL] == 10**14
    assert str(spaces[CAM]).startswith("CAM-DISK")
    assert str(spaces[CAM]).isprintable()


def test_odd_reserve_of_a_site_closes_this_site_only(stager, client):
    """R11: MinFreeSpace = -1."""
    client.get_rse_limits = lambda storage: {"MinFreeSpace": -1 if storage == "CAM-DISK" else 10**12}
    spaces = stager.list(StagingQuery(spaces=SITES)).spaces
    assert str(spaces.pop(CAM)).startswith("CAM-DISK: expected a number of 0 or more as 'MinFreeSpace'")
    assert spaces == {RAL: 99 * 10**12}


def test_site_with_two_disks_has_the_reason_in_the_place_of_its_space(stager, monkeypatch):
    monkeypatch.setitem(STORAGES, "CAM-DISK2", CAM)
    answer = stager.list(StagingQuery(spaces=SITES))
    why = "set storage for the site CAM: it has the disks CAM-DISK, CAM-DISK2"
    assert answer.spaces == {RAL: 10**14, CAM: why}
    assert answer.storages == {RAL: "RAL-DISK"}


@pytest.mark.parametrize(("at_cam", "is_whole"), [(4, True), (3, False)])
@pytest.mark.parametrize("state", ["REPLICATING", "STUCK"])
def test_files_say_whether_a_dataset_is_whole_under_a_moving_rule_of_its_container(
    stager, client, state, at_cam, is_whole
):
    """R13: all locks of a container's rule have the state of the rule."""
    client.add_rule("r1", Did("lofar:box"), state=state)
    client.locks = [
        {"scope": "lofar", "name": "L1", "rse": "CAM-DISK", "rule_id": "r1", "state": "REPLICATING"}
    ]
    client.list_dataset_replicas = files_at_cam(at_cam)
    [rule] = ask(stager, L1).rules
    assert (rule.did, rule.site, rule.is_whole) == (L1, CAM, is_whole)


def make_container(client, sizes):
    """Let lofar:box be a container of the datasets in *sizes*; one that is deleted from it has no answer."""
    kinds = {"box": "CONTAINER"} | dict.fromkeys(sizes, "DATASET")
    client.get_metadata_bulk = lambda dids: [
        {**did, "did_type": kinds[did["name"]], "is_open": False, "bytes": sizes.get(did["name"])}
        for did in dids
        if did["name"] in {"box", *sizes}
    ]
    client.list_content = lambda scope, name: [
        {"scope": scope, "name": each, "type": "DATASET"} for each in kinds if each != "box"
    ]
    return Did("lofar:box")


@pytest.mark.parametrize("account", ["carl", "hydrator"])
def test_rules_on_all_datasets_of_a_container_keep_it_until_the_first_of_them_ends(stager, client, account):
    box, soon = make_container(client, {"L1": 4000, "L2": 5000}), "Sat, 21 Nov 2026 13:00:00 UTC"
    for rule, did, ends in (("r1", L1, soon), ("r2", L2, None), ("r3", L2, soon)):
        client.add_rule(rule, did, locks_at="CAM-DISK", expires_at=ends, account=account)
        client.rules[rule]["comments"] = OUR_COMMENT
    assert ask(stager, box).rules == (), "nothing says that the files are there"
    for lock in client.locks:
        lock["state"] = "OK"
    [kept] = [one for one in ask(stager, box, rules=client.rules).rules if one.did == box]
    assert (kept.id, kept.site, kept.is_whole, kept.is_ours) == ("r1", CAM, True, False)
    assert kept.expires_at == NOON + HOUR
    client.locks = client.locks[:1]
    assert ask(stager, box).rules == (), "a part of it is kept"


def test_rule_of_ours_on_a_container_counts_for_its_dataset_as_a_rule_of_others(stager, client):
    client.add_rule("r1", Did("lofar:box"), account="hydrator", comments=OUR_COMMENT)
    client.locks = [{"scope": "lofar", "name": "L1", "rse": "CAM-DISK", "rule_id": "r1", "state": "OK"}]
    rules = ask(stager, L1, rules=["r1"]).rules
    assert {(one.did, one.is_ours) for one in rules} == {(Did("lofar:box"), True), (L1, False)}


@odd
def test_container_with_a_dataset_whose_rule_cannot_be_read_is_unread(stager, client, error):
    box = make_container(client, {"L1": 4000, "L2": 5000})
    for rule, did in (("r1", L1), ("r2", L2)):
        client.add_rule(rule, did, locks_at="CAM-DISK")
    fail_for_the_first(client, "get_replication_rule", error)
    answer = ask(stager, box, L2)
    assert set(answer.unread) == {box}
    assert [one.did for one in answer.rules] == [L2]


def test_rule_with_copies_on_two_disks_of_a_site_is_whole_if_one_is(stager, client, monkeypatch):
    monkeypatch.setitem(STORAGES, "CAM-DISK2", CAM)
    client.add_rule("r1", L1, locks_at="CAM-DISK")
    client.locks += [{**client.locks[0], "rse": "CAM-DISK2"}]
    client.locks[0]["state"] = "OK"
    assert {(one.storage, one.is_whole) for one in ask(stager, L1).rules} == {
        ("CAM-DISK", True), ("CAM-DISK2", False)
    }  # fmt: skip


def make_file(client):
    """Let L1 be a single file at CAM-DISK: Rucio has neither dataset locks nor counts of it."""
    client.get_metadata_bulk = lambda dids: [{**did, "did_type": "FILE", "bytes": 4000} for did in dids]
    client.get_locks_for_dids = raising(InvalidRequest("rucio", "HTTP 400"))
    client.list_replicas = lambda dids, **_: [{**did, "states": {"CAM-DISK": "AVAILABLE"}} for did in dids]
    client.list_parent_dids = lambda scope, name: (
        [{"scope": scope, "name": "box", "type": "DATASET"}] if name == "L1" else []
    )
    return L1


@pytest.mark.parametrize("kind", ["DATASET", "CONTAINER", "FILE"])
def test_files_that_no_rule_ever_kept_refuse_the_request_at_their_storage(stager, client, kind):
    asked = make_container(client, {"L1": 4000}) if kind == "CONTAINER" else L1
    client.list_dataset_replicas = files_at_cam(1)
    if kind == "FILE":
        make_file(client)
        client.list_dataset_replicas = lambda *_, **__: []
    client.list_replication_rule_full_history = lambda scope, name: []
    with pytest.raises(StagingRefused) as caught:
        stager.request(StagingOrder(StagingKind.STAGE, CAM, asked, 4000, HOUR))
    assert caught.value.kind is RefusalKind.NOT_OURS
    assert "files of" in caught.value.reason


@pytest.mark.parametrize("owner", ["L1", "box"])
def test_file_that_a_rule_keeps_or_kept_gets_a_rule_of_ours(stager, client, monkeypatch, owner):
    make_file(client)
    client.list_replication_rule_full_history = lambda scope, name: (
        [{"rule_id": "r1", "rse_expression": "CAM-DISK"}] if name == owner else []
    )
    monkeypatch.setattr(stager._queries, "write", lambda *_, **__: "r2")
    assert stager.request(StagingOrder(StagingKind.STAGE, CAM, L1, 4000, HOUR)) == "r2"


def test_container_with_a_dataset_of_unknown_size_has_no_size(stager, client):
    """R18: the bytes of many containers are null; the sum of its datasets counts if all are known."""
    sizes = {"L1": 4000, "L2": 5000}
    box = make_container(client, sizes)
    assert ask(stager, box).sizes == {box: 9000}
    sizes["L2"] = 0  # closed without a file
    assert ask(stager, box).sizes == {box: 4000}
    sizes["L2"] = None
    assert ask(stager, box).sizes == {}
    del sizes["L2"]  # and no answer to the query for it alone
    client.get_did = raising(ServerFault("rucio", "HTTP 500"))
    assert ask(stager, box).sizes == {}


@odd
def test_rule_of_ours_that_cannot_be_read_is_unread_and_not_gone(stager, client, error):
    ours = {"account": "hydrator", "comments": OUR_COMMENT}
    for rule, did in (("r1", L1), ("r2", L2)):
        client.add_rule(rule, did, **ours)
    fail_for_the_first(client, "get_replication_rule", error)
    answer = ask(stager, rules=["r1", "r2", "r3"])
    assert [one.id for one in answer.rules] == ["r2"]
    assert set(answer.unread) == {"r1"}
    with pytest.raises(CatalogueError):
        ask(stager, rules=["r1"])


@pytest.mark.parametrize(
    "error", [*ODD, CatalogueUnreachable("rucio", "timeout"), CatalogueDenied("rucio", "401")], ids=str
)
def test_server_that_answers_about_no_dataset_is_an_error(stager, client, error):
    client.list_did_rules = raising(error)
    with pytest.raises(CatalogueError):
        ask(stager, L1, L2)


def test_the_permission_to_ask_is_probed_where_the_operator_lets_data_come_to(stager, monkeypatch):
    """Rucio checks the quota before the dataset, and the account has one at these sites only."""

    def write(call, *_, rse_expression="", **__):
        missing = "DataIdentifierNotFound" if rse_expression else "RuleNotFound"
        kind = "InsufficientAccountLimit" if rse_expression == "CAM-DISK" else missing
        raise WriteRefused("rucio", kind, "no")

    monkeypatch.setattr(stager._queries, "write", write)
    stager.options.storages[RAL] = ""
    assert stager.probe_permissions() == StagingPermissions(True, True, True)
