# mypy: ignore-errors
# ruff: noqa: ANN001, ANN003, ANN201, ANN202, BLE001, I001, E501
"""The WSGI application of the test server: Rucio's own, plus ``POST /testbed/seed``.

It runs inside the server's virtual environment, never in the project's. Seeding happens in the one thread
that also answers clients, because SQLite rejects a second writer at the same time: seeding can never
collide with a login.

A request is a JSON list of ``[command, {argument: value}]``; the commands are
the functions below marked ``@command``. The answer is ``{"ok": [results]}`` or
``{"error": text}``. ``python rucio_seed.py bootstrap`` makes the database.
"""

import json
import os
import sys
import time
import traceback

COMMANDS = {}


def command(function):
    """Make *function* callable by its name over HTTP."""
    COMMANDS[function.__name__] = function
    return function


def bootstrap():
    """Make an empty database with the root account."""
    from rucio.db.sqla.session import get_engine
    from rucio.db.sqla.util import build_database, create_base_vo, create_root_account
    from sqlalchemy import text

    build_database()
    create_base_vo()
    create_root_account()
    if get_engine().dialect.name == "sqlite":
        with get_engine().connect() as connection:
            connection.execute(text("PRAGMA journal_mode=WAL"))


VO = "def"
"""The virtual organisation of a server that has only one."""


def _account(name):
    from rucio.common.types import InternalAccount

    return InternalAccount(name, vo=VO)


def _root():
    return _account("root")


def _scope(name):
    from rucio.common.types import InternalScope

    return InternalScope(name, vo=VO)


def _split(did):
    scope, name = did.split(":", 1)
    return {"scope": _scope(scope), "name": name}


def _rse_id(session, rse):
    from rucio.core.rse import get_rse_id

    return get_rse_id(rse=rse, vo=VO, session=session)


def _files(session, did):
    from rucio.core.did import list_files

    return [
        {"scope": row["scope"], "name": row["name"], "bytes": row["bytes"], "adler32": row["adler32"]}
        for row in list_files(**_split(did), session=session)
    ]


def _rules(session, did, rse):
    from rucio.core.rule import list_rules

    rules = list_rules(filters=_split(did), session=session)
    return [rule["id"] for rule in rules if rule["rse_expression"] == rse]


@command
def add_scope(session, scope):
    from rucio.core.scope import add_scope as add

    add(scope=_scope(scope), account=_root(), session=session)


@command
def add_rse(
    session,
    rse,
    rse_type="DISK",
    staging_area=False,
    volatile=False,
    attributes=None,
    folder=None,
    deterministic=True,
):
    """Add a storage element with the mock protocol, which can send to and receive from every other one.

    One with a *folder* has its files there, with Rucio's own posix protocol; it is *deterministic* or not.
    """
    from rucio.core import distance
    from rucio.core import rse as rses
    from rucio.core.account_limit import set_local_account_limit
    from rucio.db.sqla.constants import RSEType

    kind = {
        "rse_type": RSEType[rse_type], "staging_area": staging_area, "volatile": volatile,
        "deterministic": deterministic,
    }  # fmt: skip
    rse_id = rses.add_rse(rse, vo=VO, **kind, session=session)
    for key, value in (attributes or {}).items():
        rses.add_rse_attribute(rse_id=rse_id, key=key, value=value, session=session)
    one = {"read": 1, "write": 1, "delete": 1}
    away = {**one, "third_party_copy_read": 1, "third_party_copy_write": 1}
    parameter = {
        "scheme": "mock", "hostname": f"{rse.lower()}.invalid", "port": 1, "prefix": "/data/",
        "impl": "rucio.rse.protocols.mock.Default", "domains": {"lan": one, "wan": away},
    }  # fmt: skip
    if folder:
        posix = {"scheme": "file", "hostname": "localhost", "port": 0, "prefix": folder}
        parameter |= {**posix, "impl": "rucio.rse.protocols.posix.Default"}
    rses.add_protocol(rse_id=rse_id, parameter=parameter, session=session)
    set_local_account_limit(account=_root(), rse_id=rse_id, bytes_=10**18, session=session)
    for other in rses.list_rses(filters={"vo": VO}, session=session):
        if other["id"] != rse_id:
            distance.add_distance(rse_id, other["id"], distance=1, bidirectional=True, session=session)


@command
def set_rse_attribute(session, rse, key, value):
    from rucio.core.rse import add_rse_attribute

    add_rse_attribute(rse_id=_rse_id(session, rse), key=key, value=value, session=session)


@command
def set_rse(session, rse, **properties):
    """Change properties of a storage element, such as availability_read."""
    from rucio.core.rse import update_rse

    update_rse(rse_id=_rse_id(session, rse), parameters=properties, session=session)


@command
def delete_rse(session, rse):
    from rucio.core.rse import del_rse

    del_rse(rse_id=_rse_id(session, rse), session=session)


@command
def add_dataset(session, did, rse=None, files=4, bytes_each=1_000_000_000):
    """Add a dataset; its *files* exist at *rse* only (without a rule), which must be given when there are any."""
    from rucio.core.did import add_did
    from rucio.db.sqla.constants import DIDType

    add_did(**_split(did), did_type=DIDType.DATASET, account=_root(), session=session)
    names = [f"{_split(did)['name']}.{n:05}" for n in range(files)]
    if names:
        add_files(session, did, rse, names, bytes_each)


@command
def add_container(session, did, children):
    """Add a container of *children*: all datasets, or all containers."""
    from rucio.core.did import add_did, attach_dids
    from rucio.db.sqla.constants import DIDType

    add_did(**_split(did), did_type=DIDType.CONTAINER, account=_root(), session=session)
    if children:
        attach_dids(**_split(did), dids=[_split(c) for c in children], account=_root(), session=session)


@command
def place(session, did, rse, files=None, after=0):
    """Make *files* files (all by default) of a dataset, *after* so many others, exist at *rse*, without a rule."""
    from rucio.core.replica import add_replicas
    from rucio.core.rse import get_rse
    from rucio.core.volatile_replica import add_volatile_replicas

    rse_id, placed = _rse_id(session, rse), _files(session, did)[after:][:files]
    if get_rse(rse_id, session=session)["volatile"]:
        add_volatile_replicas(rse_id=rse_id, replicas=placed, session=session)
    else:
        add_replicas(rse_id=rse_id, files=placed, account=_root(), session=session)


@command
def replicate(session, did, rse, grouping="DATASET", lifetime=None, account="root", **more):
    """Add a rule that wants the dataset at *rse* for *lifetime* seconds: OK where its files are, else REPLICATING.

    *more*: asynchronous leaves it to the judge injector, ask_approval to a person.
    """
    from rucio.core.rule import add_rule

    return add_rule(
        dids=[_split(did)], account=_account(account), copies=1, rse_expression=rse, grouping=grouping,
        weight=None, lifetime=lifetime, locked=False, subscription_id=None, ignore_account_limit=True,
        ignore_availability=True, **more, session=session,
    )  # fmt: skip


@command
def change_rules(session, did, rse, **options):
    """Change *options* of the rules for *rse*: lifetime (in seconds; None: no end) or state (locks stay)."""
    for rule_id in _rules(session, did, rse):
        change_rule(session, rule_id, **options)


@command
def change_rule(session, rule, **options):
    """Change *options* of one rule; one with a lifetime of -1 has ended, and Rucio deletes it when it cleans up."""
    from rucio.core.rule import update_rule

    update_rule(rule, options, session=session)


@command
def end_rules(session, did, rse):
    """Remove the rules for *rse*, as the judge cleaner does; the files stay until they are reaped."""
    from rucio.core.rule import delete_rule

    for rule_id in _rules(session, did, rse):
        delete_rule(rule_id=rule_id, session=session)


@command
def end_in(session, did, seconds):
    """Let the DID itself end in so many *seconds*, as ``lifetime`` of ``rucio add-dataset`` does; None: never."""
    from rucio.core.did import set_metadata

    set_metadata(**_split(did), key="lifetime", value=seconds, session=session)


@command
def add_files(session, did, rse, names, bytes_each=1_000_000_000):
    """Attach new files, which exist at *rse* only, to an open dataset."""
    from rucio.core.did import attach_dids
    from rucio.core.replica import add_replicas

    where = _split(did)
    new = [
        {"scope": where["scope"], "name": name, "bytes": bytes_each, "adler32": f"{n:08x}"}
        for n, name in enumerate(names)
    ]
    add_replicas(rse_id=_rse_id(session, rse), files=new, account=_root(), session=session)
    attach_dids(**where, dids=new, account=_root(), session=session)


def _set_states(session, did, rse, files, state, only_missing, message="testbed"):
    from rucio.core.replica import get_replica, update_replicas_states
    from rucio.db.sqla import models
    from rucio.db.sqla.constants import ReplicaState
    from sqlalchemy import delete

    rse_id = _rse_id(session, rse)
    request = models.Request
    for file in _files(session, did)[:files]:
        where = {"scope": file["scope"], "name": file["name"]}
        if (
            only_missing
            and get_replica(**where, rse_id=rse_id, session=session)["state"] == ReplicaState.AVAILABLE
        ):
            continue
        mine = (request.scope == where["scope"], request.name == where["name"], request.dest_rse_id == rse_id)
        session.execute(delete(request).where(*mine))
        replica = {**where, "rse_id": rse_id, "state": state, "error_message": message}
        update_replicas_states([replica], session=session)


@command
def transferred(session, did, rse, files=None):
    """Let the transfer of the first *files* files (all by default) to *rse* succeed."""
    from rucio.db.sqla.constants import ReplicaState

    _set_states(session, did, rse, files, ReplicaState.AVAILABLE, only_missing=True)


@command
def convey(session, rse, most=1000):
    """Let Rucio's own conveyor bring *most* of the files that rules want at *rse*: the mock transfer runs.

    What it does for each is real: submitted, polled, finished, locks and rule counted, the request archived.
    """
    from rucio.daemons.conveyor import finisher, poller, submitter

    only = [{"id": _rse_id(session, rse)}]
    session.rollback()  # the daemons have sessions of their own
    at_once = {"once": True, "partition_wait_time": 0}
    submitter.submitter(**at_once, rses=only, bulk=most)
    poller.poller(**at_once, older_than=0)
    finisher.finisher(**at_once)


@command
def add_user(session, account, password):
    """Add an account without rights of an administrator; it logs in under its own name."""
    from rucio.common.types import InternalAccount
    from rucio.core.account import add_account
    from rucio.core.identity import add_account_identity
    from rucio.core.identity import add_identity as add
    from rucio.db.sqla.constants import AccountType, IdentityType

    name, address = InternalAccount(account, vo=VO), f"{account}@localhost"
    add_account(name, AccountType.USER, address, session=session)
    add(account, IdentityType.USERPASS, address, password=password, session=session)
    add_account_identity(
        identity=account, type_=IdentityType.USERPASS, account=name, email=address, session=session
    )


@command
def close(session, did):
    """Close a dataset or a container: it has its final size then."""
    from rucio.core.did import set_status

    set_status(**_split(did), open=False, session=session)


@command
def pass_time(session, did, seconds):
    """Let the rules on *did* end *seconds* earlier, as if that much time had passed."""
    from datetime import timedelta

    from rucio.db.sqla.models import ReplicationRule
    from sqlalchemy import select

    where = _split(did)
    chosen = select(ReplicationRule).filter_by(scope=where["scope"], name=where["name"])
    for rule in session.execute(chosen).scalars():
        if rule.expires_at is not None:
            rule.expires_at -= timedelta(seconds=seconds)


@command
def deny_rule(session, rule):
    """Deny a rule that waits for approval: Rucio deletes it."""
    from rucio.core.rule import deny_rule as deny

    deny(rule, approver=_root(), reason=None, session=session)


@command
def delete_rule(session, rule):
    """Delete one rule as a client does: it ends in an hour at the latest."""
    from rucio.core.rule import delete_rule as delete

    delete(rule_id=rule, soft=True, session=session)


@command
def archive(session, did, rse):
    """Add a file *did* that exists only inside an archive at *rse*; return the DID of the archive."""
    from rucio.core.did import attach_dids
    from rucio.core.replica import add_replicas

    inside = {**_split(did), "bytes": 1_000_000_000, "adler32": "0cc737eb"}
    name = f"{inside['name']}.zip"
    zipped = {**inside, "name": name}
    add_replicas(rse_id=_rse_id(session, rse), files=[zipped], account=_root(), session=session)
    attach_dids(scope=inside["scope"], name=name, dids=[inside], account=_root(), session=session)
    return f"{did}.zip"


@command
def cut_lifetimes(session, account, seconds):  # noqa: ARG001 - every command has one
    """Let the policy of this server give rules of *account* at most *seconds*; None: what they ask for."""
    from rucio.core import rule

    def cut(owner, rses, lifetime, *, session):  # noqa: ARG001 - Rucio calls it so
        is_cut = seconds is not None and owner.external == account
        return min(lifetime or seconds, seconds) if is_cut else lifetime

    rule.get_scratch_policy = cut


@command
def clean(session):
    """Let Rucio's own judge cleaner delete the rules that have ended."""
    from rucio.daemons.common import HeartbeatHandler
    from rucio.daemons.judge import cleaner

    session.rollback()  # the daemon has a session of its own
    with HeartbeatHandler(cleaner.DAEMON_NAME, renewal_interval=-1) as heartbeat:
        cleaner.run_once(paused_rules={}, heartbeat_handler=heartbeat)


@command
def reap(session, rse):
    """Let Rucio's own reaper delete all files at *rse* that no rule keeps."""
    from rucio.daemons.common import HeartbeatHandler
    from rucio.daemons.reaper import reaper

    session.rollback()  # the daemon has a session of its own
    with HeartbeatHandler(reaper.DAEMON_NAME, renewal_interval=60) as heartbeat:
        reaper.run_once(
            rses=[rse], include_rses=rse, exclude_rses=None, vos=None, chunk_size=1000, greedy=True,
            scheme=None, delay_seconds=0, auto_exclude_threshold=100, auto_exclude_timeout=600,
            heartbeat_handler=heartbeat,
        )  # fmt: skip


@command
def report_space(session, rse, free, used):
    """Report the space of a storage element, as its operator does."""
    from rucio.core.rse import set_rse_usage

    rse_id = _rse_id(session, rse)
    set_rse_usage(rse_id=rse_id, source="storage", used=used, free=free, session=session)


@command
def set_rse_limit(session, rse, name, value):
    from rucio.core.rse import set_rse_limits

    set_rse_limits(rse_id=_rse_id(session, rse), name=name, value=value, session=session)


@command
def set_account_limit(session, account, rse, limit):
    """Let *account* have *limit* bytes at *rse*."""
    from rucio.core.account_limit import set_local_account_limit

    rse_id = _rse_id(session, rse)
    set_local_account_limit(account=_account(account), rse_id=rse_id, bytes_=limit, session=session)


@command
def rules_on(session, did):
    """Return the rules on *did*: account, storage element, state, comment and more of each."""
    from rucio.core.rule import list_rules

    return [
        {
            "id": rule["id"],
            "account": str(rule["account"]),
            "rse": rule["rse_expression"],
            "state": rule["state"].name,
            "comment": rule["comments"],
            "activity": rule["activity"],
            "sources": rule["source_replica_expression"],
            "notification": rule["notification"].name,
            "locked": rule["locked"],
            "purge": rule["purge_replicas"],
            "copies": rule["copies"],
        }
        for rule in list_rules(filters=_split(did), session=session)
    ]


@command
def files_at(session, did, rse):
    """Return how many files of *did* are available at *rse*."""
    from rucio.core.replica import get_replica
    from rucio.common.exception import ReplicaNotFound
    from rucio.db.sqla.constants import ReplicaState

    rse_id, count = _rse_id(session, rse), 0
    for file in _files(session, did):
        try:
            row = get_replica(scope=file["scope"], name=file["name"], rse_id=rse_id, session=session)
        except ReplicaNotFound:
            continue
        count += row["state"] == ReplicaState.AVAILABLE
    return count


@command
def count_requests(session, rse):
    """Return the number of transfers to *rse* that wait or run."""
    from rucio.db.sqla.models import Request
    from sqlalchemy import func, select

    chosen = select(func.count()).select_from(Request).filter_by(dest_rse_id=_rse_id(session, rse))
    return session.execute(chosen).scalar()


@command
def fail(session, did, rse, error="testbed"):
    """Let the transfers to *rse* that are still to come fail with *error*: the rule becomes STUCK."""
    from rucio.db.sqla.constants import ReplicaState

    _set_states(session, did, rse, None, ReplicaState.UNAVAILABLE, only_missing=True, message=error)


@command
def go_bad(session, did, rse, files=1, state="TEMPORARY_UNAVAILABLE"):
    """Make the first *files* files at *rse* BAD or unavailable; Rucio does not recount the dataset then."""
    from rucio.db.sqla.constants import ReplicaState

    _set_states(session, did, rse, files, ReplicaState[state], only_missing=False)


@command
def remove(session, did, rse):
    """Remove a dataset from *rse*, rules and files, as the judge cleaner and the reaper would in the end."""
    from rucio.core.replica import delete_replicas, get_replica, update_replicas_states
    from rucio.core.rule import delete_rule
    from rucio.common.exception import ReplicaNotFound
    from rucio.db.sqla.constants import ReplicaState

    for rule_id in _rules(session, did, rse):
        delete_rule(rule_id=rule_id, purge_replicas=True, nowait=False, session=session)
    rse_id = _rse_id(session, rse)
    there = []
    for file in _files(session, did):
        where = {"scope": file["scope"], "name": file["name"]}
        try:
            get_replica(**where, rse_id=rse_id, session=session)
        except ReplicaNotFound:
            continue
        update_replicas_states(
            [{**where, "rse_id": rse_id, "state": ReplicaState.BEING_DELETED}], session=session
        )
        there.append(where)
    if there:
        delete_replicas(rse_id=rse_id, files=there, session=session)


@command
def erase(session, did):
    """Delete the dataset itself, with its rules, as the undertaker does."""
    from rucio.core.did import delete_dids
    from rucio.db.sqla.constants import DIDType

    gone = {**_split(did), "did_type": DIDType.DATASET, "purge_replicas": True}
    delete_dids([gone], account=_root(), session=session)


@command
def abacus(session):
    """Recount the collection replicas, as the abacus daemon does: the shallow calls return these counts."""
    from rucio.core.replica import get_cleaned_updated_collection_replicas, update_collection_replica

    todo = get_cleaned_updated_collection_replicas(total_workers=0, worker_number=0, session=session)
    for request in todo:
        update_collection_replica(request, session=session)
    return len(todo)


@command
def add_identity(session, dn):
    """Let a client with a certificate of the name *dn* log in as root."""
    from rucio.core.identity import add_account_identity
    from rucio.db.sqla.constants import IdentityType

    add_account_identity(
        identity=dn, type_=IdentityType.X509, account=_root(), email="hydrator@localhost", session=session
    )


@command
def expire_tokens(session):
    """Make every token invalid, as its expiry would."""
    from rucio.db.sqla import models
    from sqlalchemy import delete

    session.execute(delete(models.Token))


@command
def multiply(session, copies):
    """Copy every dataset whose name ends with -0, with all that belongs to it, until there are *copies* of it.

    All rules are an hour old then, so that no delta is about all of them.

    By SQL, in PostgreSQL: for measurements.
    """
    from rucio.db.sqla.session import get_engine
    from sqlalchemy import inspect, text

    renamed = {"name", "child_name"}
    tables = inspect(get_engine())
    for table in ("dids", "contents", "replicas", "rules", "locks", "dataset_locks", "collection_replicas"):
        columns = [column["name"] for column in tables.get_columns(table)]
        values = [
            f"regexp_replace({c}, '-0(\\.|$)', '-' || n || '\\1')" if c in renamed
            else f"md5({c}::text || n)::uuid" if c == "rule_id" or (table, c) == ("rules", "id")
            else c
            for c in columns
        ]  # fmt: skip
        session.execute(text(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {table}, "
            f"generate_series(1, {int(copies) - 1}) n WHERE name ~ '-0(\\.|$)'"
        ))  # fmt: skip
    session.execute(
        text(
            "UPDATE rules SET created_at = created_at - interval '1 hour', updated_at = created_at - interval '1 hour'"
        )
    )
    session.execute(text("ANALYZE"))


@command
def spoil(session, every):
    """Make one file bad at one element, and recount, of the copies of t00 that *every* divides."""
    from sqlalchemy import text

    chosen = f"name LIKE 't00-%' AND substring(name from '-([0-9]+)')::int % {int(every)} = 0"
    first = (
        f"SELECT DISTINCT ON (scope, name) scope, name, rse_id FROM collection_replicas WHERE {chosen} "
        "ORDER BY scope, name, rse_id"
    )
    session.execute(text(
        f"UPDATE replicas r SET state = 'B' FROM ({first}) f WHERE r.scope = f.scope "
        "AND r.name = f.name || '.00000' AND r.rse_id = f.rse_id"
    ))  # fmt: skip
    session.execute(text(
        f"UPDATE collection_replicas r SET available_replicas_cnt = length - 1, state = 'U', "
        f"available_bytes = bytes * 3 / 4, updated_at = now() FROM ({first}) f "
        "WHERE r.scope = f.scope AND r.name = f.name AND r.rse_id = f.rse_id"
    ))  # fmt: skip


_METER = [0, 0.0]


@command
def meter(session):  # noqa: ARG001 - every command has one
    """Return the requests answered since the last call, and the seconds spent on them."""
    spent = list(_METER)
    _METER[:] = [0, 0.0]
    return spent


def _meter(rucio, environ, start_response):
    """Return the answer of *rucio*, timed to its last byte."""
    begun = time.monotonic()
    body = rucio(environ, start_response)
    _METER[0] += 1
    _METER[1] += time.monotonic() - begun
    chunks = iter(body)
    try:
        while True:
            begun = time.monotonic()
            chunk = next(chunks, None)
            _METER[1] += time.monotonic() - begun
            if chunk is None:
                return
            yield chunk
    finally:
        if hasattr(body, "close"):
            body.close()


def _answer(body):
    from rucio.db.sqla.constants import DatabaseOperationType
    from rucio.db.sqla.session import db_session

    results = []
    for name, arguments in json.loads(body):
        with db_session(DatabaseOperationType.WRITE) as session:
            results.append(COMMANDS[name](session, **arguments))
    return {"ok": results}


def seeding(rucio, key):
    """Wrap the WSGI application *rucio*: requests that show *key* at /testbed/seed are commands."""

    def application(environ, start_response):
        known = environ.get("HTTP_X_TESTBED_KEY") == key
        if known and environ.get("HTTP_X_TESTBED_CLIENT"):
            environ["SSL_CLIENT_S_DN"] = environ["HTTP_X_TESTBED_CLIENT"]  # Apache saw this certificate
            known = False
        if environ["PATH_INFO"] != "/testbed/seed" or not known:
            return _meter(rucio, environ, start_response)
        try:
            answer = _answer(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        except Exception:  # the test that asked shows it
            answer = {"error": traceback.format_exc()}
        body = json.dumps(answer).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return application


if __name__ == "__main__":
    assert sys.argv[1:] == ["bootstrap"]
    bootstrap()
elif "TESTBED_RUCIO_KEY" in os.environ:
    from rucio.web.rest.flaskapi.v1.main import application as _rucio

    application = seeding(_rucio, os.environ["TESTBED_RUCIO_KEY"])
