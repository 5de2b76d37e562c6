"""The HTCondor child process on real pools: queries, updates, denials, and daemons that do not answer."""

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.bindings.process import CondorSettings
from hydrator.domain.errors import ConfigError, PoolDenied, PoolError
from hydrator.domain.model import to_unix
from tests.contracts.publisher import site_ad

if TYPE_CHECKING:
    from testbed.pool import Pool

pytestmark = pytest.mark.pool

LIFETIME = timedelta(minutes=15)
NEVER_RUNS = """
executable = /bin/sleep
arguments = 600
request_cpus = 1
request_memory = 16
request_disk = 16
requirements = TARGET.NoSlotHasThis =?= true
"""

Connect = Callable[..., CondorClient]


@pytest.fixture
def connect(pool: "Pool") -> Iterator[Connect]:
    """Return a maker of clients of the pool, with some identity; closes them."""
    made: list[CondorClient] = []

    def client(
        identity: str = "hydrator", *, collector: str = "", seconds: float = 30, **more
    ) -> CondorClient:
        more.setdefault("token_directory", pool.token(identity))
        settings = CondorSettings(collector or pool.collector, timeout=timedelta(seconds=seconds), **more)
        made.append(CondorClient(settings))
        return made[-1]

    yield client
    for each in made:
        each.close()


@pytest.fixture
def unique() -> str:
    """Return a part of names, so that jobs of other tests do not count."""
    return uuid4().hex[:8]


@contextmanager
def queued(pool: "Pool", *descriptions: str) -> Iterator[list[int]]:
    clusters: list[int] = []
    try:
        clusters.extend(pool.submit(description, user="alice") for description in descriptions)
        yield clusters
    finally:
        for cluster in clusters:
            pool.run("condor_rm", str(cluster), user="alice", check=False)


@contextmanager
def deaf_port() -> Iterator[int]:
    """Return a port that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield int(listener.getsockname()[1])


def the_schedd(client: CondorClient) -> str:
    return client.schedds()[0]["Name"]


def read_queued(client: CondorClient) -> list[tuple[tuple[str, ...], int, str | None]]:
    rows = client.read_queue(the_schedd(client), [])["queued"]
    return [(tuple(datasets), jobs, key) for datasets, jobs, key, _ in rows]


def count(client: CondorClient, unique: str, place: int) -> dict[Any, int]:
    """Count the jobs with *unique* in their datasets by these (place 0) or by their key (place 2)."""
    counts: Counter[Any] = Counter()
    for row in read_queued(client):
        if unique in "".join(row[0]):
            counts[row[place]] += row[1]
    return counts


def wanted(client: CondorClient, unique: str) -> dict[tuple[str, ...], int]:
    return count(client, unique, 0)


# demand


@pytest.mark.older
def test_items_of_a_factory_that_are_not_jobs_yet_count_as_one(pool: "Pool", connect: Connect, unique: str):
    description = f'{NEVER_RUNS}\nmax_idle = 2\n+RequiredDatasets = {{"ska:{unique}"}}\nqueue 500'
    client = connect()
    with queued(pool, description):
        pool.wait(lambda: wanted(client, unique) == {(f"ska:{unique}",): 3}, "two jobs and their factory")


@pytest.mark.older
def test_misses_of_jobs_are_read_from_the_queue_and_from_the_history(
    pool: "Pool", connect: Connect, unique: str
):
    """The schedd of 23.9 hangs if a query evaluates what the third job's owner wrote."""
    waits, ended = (f"1795000000 ska:{unique}{name} UK" for name in ("queued", "ended"))
    client, now = connect(), datetime.now(UTC)  # noqa: TID251
    schedd = the_schedd(client)

    def misses(rows: Sequence[Mapping[str, Any]]) -> list[str]:
        return sorted(text for row in rows for text in row["misses"] if unique in text)

    def ended_jobs(since: datetime) -> list[str]:
        return misses(client.outcomes(schedd, to_unix(since), [], max_jobs=1000))

    def job(misses: str) -> str:
        return f"{NEVER_RUNS}\n+ChirpDataLocalityMisses = {misses}\nqueue"

    endless = job("false ? {} : ChirpDataLocalityMisses")
    with queued(pool, job(f'{{"{waits}"}}'), job(f'{{"{ended}"}}'), endless) as (_, leaves, _):
        assert misses(client.read_queue(schedd, [])["reports"]) == sorted([waits, ended])
        pool.run("condor_rm", str(leaves), user="alice")
        pool.wait(lambda: pool.history(f"ClusterId == {leaves}"), "the removed job in the history")
        assert misses(client.read_queue(schedd, [])["reports"]) == [waits]
        assert ended_jobs(now - timedelta(hours=1)) == [ended]
        assert ended_jobs(now + timedelta(hours=1)) == [], "an old entry of the history was read again"


# what we are denied


def test_token_of_another_pool_is_rejected_in_one_sentence(connect: Connect, tmp_path: Path, pool: "Pool"):
    directory = tmp_path / "tokens"
    directory.mkdir(mode=0o700)
    (forged,) = [file.read_text().strip() for file in pool.token("hydrator").iterdir()]
    head, body, signature = forged.split(".")
    token = directory / "token"
    token.write_text(f"{head}.{body}.{signature[::-1]}\n")
    token.chmod(0o600)
    with pytest.raises(PoolDenied) as caught:
        connect(token_directory=directory).site_ads()
    assert "none of the credentials" in caught.value.reason
    assert "condor_token_create" in caught.value.reason
    assert "\n" not in str(caught.value)
    assert signature not in str(caught.value)


@pytest.mark.older
def test_user_may_not_publish_site_ads_and_the_error_names_the_missing_level(connect: Connect, pool: "Pool"):
    client = connect("alice")
    with pytest.raises(PoolDenied, match=r"alice@.*IDTOKENS.*COLLECTOR\.ALLOW_DAEMON") as caught:
        client.advertise([("CAM", site_ad("CAM").text)], LIFETIME)
    assert caught.value.daemon == f"collector {pool.collector}"
    with pytest.raises(PoolDenied, match=r"COLLECTOR\.ALLOW_DAEMON"):
        client.invalidate(["CAM"])
    assert client.restart_count == 0


def test_ping_returns_the_identity_and_what_it_may_do(connect: Connect):
    client = connect()
    allowed = client.ping("collector", "DAEMON")
    assert allowed.is_allowed
    assert allowed.method == "IDTOKENS"
    assert allowed.identity is not None
    assert allowed.identity.startswith("hydrator@")
    denied = client.ping("collector", "ADMINISTRATOR")
    assert not denied.is_allowed
    assert denied.identity == allowed.identity
    assert client.ping("schedd", "READ").is_allowed
    assert not client.ping("schedd", "DAEMON").is_allowed


# what is not there


def test_a_collector_that_never_answers_is_an_error_in_time_and_the_next_call_works(connect: Connect):
    with deaf_port() as port:
        client = connect(collector=f"127.0.0.1:{port}", seconds=2)
        began = time.monotonic()
        for expected_restarts in (0, 1):
            with pytest.raises(PoolError, match="no answer within 2 s"):
                client.site_ads()
            assert client.restart_count == expected_restarts
        assert time.monotonic() - began < 100


def test_missing_collector_setting_is_an_error(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("_CONDOR_COLLECTOR_HOST", "")
    client = CondorClient(CondorSettings(token_directory=tmp_path))
    with client, pytest.raises(PoolError, match="no collector is configured"):
        client.advertise([("CAM", site_ad("CAM").text)], LIFETIME)


def test_an_unknown_schedd_is_an_error(connect: Connect):
    with pytest.raises(PoolError, match="schedd nowhere: the collector has no ad of this daemon"):
        connect().read_queue("nowhere", [])


# daemons


def test_negotiator_returns_its_own_configuration(connect: Connect, pool: "Pool"):
    found = connect().config_of(
        "negotiator", ["NEGOTIATOR_PRE_JOB_RANK", "negotiator_interval", "NO_SUCH_KNOB"]
    )
    assert "RemoteOwner" in (found["NEGOTIATOR_PRE_JOB_RANK"] or "")
    assert (found["negotiator_interval"] or "").isdigit()
    assert found["NO_SUCH_KNOB"] is None


def test_a_setting_without_a_value_is_none(connect: Connect):
    """A schedd sends the text "Not defined" for such a setting, which was once read as two names of pools."""
    assert connect().config_of("schedd", ["FLOCK_COLLECTOR_HOSTS"]) == {"FLOCK_COLLECTOR_HOSTS": None}


def test_bad_constraint_is_rejected_with_its_text(connect: Connect):
    with pytest.raises(ConfigError, match=r"not a ClassAd expression: Cpus >"):
        connect().slots(["Name"], "Cpus >")


# run anywhere


def tied(unique: str, jobs: int) -> str:
    """Return jobs as the transform leaves them, as far as run_anywhere reads them."""
    return (
        f'{NEVER_RUNS}\n+RequiredDatasets = {{"ska:{unique}"}}\n+DataLocalityTransformed = true\n'
        f"+DataLocalityHere = TARGET.NoSlotHasThis =?= true\nqueue {jobs}"
    )


def held_back(pool: "Pool", cluster: int) -> list[str]:
    out = pool.run("condor_q", "-all", str(cluster), "-af:r", "DataLocalityHere", user="alice").stdout
    return out.splitlines()


@pytest.mark.older
def test_protected_clause_needs_a_queue_super_user_and_an_immutable_one_stays(
    pool: "Pool", connect: Connect, unique: str
):
    pool.submit(f"{NEVER_RUNS}\nqueue", user="bob")  # gives bob a user record
    alice, bob = connect("alice"), connect("bob")
    bob_is_super = "QUEUE_SUPER_USERS = $(QUEUE_SUPER_USERS), bob\n"
    try:
        with queued(pool, tied(unique, 2), f"{NEVER_RUNS}\nqueue") as (cluster, plain):
            mine = f"ClusterId == {cluster} || ClusterId == {plain}"
            pool.reconfig(
                schedd=f"{bob_is_super}IMMUTABLE_JOB_ATTRS = $(IMMUTABLE_JOB_ATTRS) DataLocalityHere"
            )
            wait_for_config(pool, bob, "IMMUTABLE_JOB_ATTRS")
            for client in (alice, bob):
                with pytest.raises(PoolDenied, match="no user may edit those in IMMUTABLE_JOB_ATTRS"):
                    client.run_anywhere(the_schedd(client), mine)
            pool.reconfig(
                schedd=f"{bob_is_super}PROTECTED_JOB_ATTRS = $(PROTECTED_JOB_ATTRS) DataLocalityHere"
            )
            wait_for_config(pool, bob, "PROTECTED_JOB_ATTRS")
            with pytest.raises(PoolDenied, match="queue super user"):
                alice.run_anywhere(the_schedd(alice), mine)
            assert held_back(pool, cluster) == ["TARGET.NoSlotHasThis =?= true"] * 2
            assert bob.run_anywhere(the_schedd(bob), mine) == 2
            assert held_back(pool, cluster) == ["true"] * 2
            assert held_back(pool, plain) == ["undefined"]
            assert bob.run_anywhere(the_schedd(bob), mine) == 0
    finally:
        pool.reconfig(schedd="")
        pool.run("condor_rm", "bob", user="bob", check=False)


def wait_for_config(pool: "Pool", client: CondorClient, knob: str) -> None:
    def known() -> bool:
        return "DataLocalityHere" in (client.config_of("schedd", [knob])[knob] or "")

    pool.wait(known, f"the schedd to know {knob}")
