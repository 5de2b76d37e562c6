"""The state survives: restarts, kill -9, full disks, damage; and has one owner."""

import fcntl
import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.errors import StateError, StateMissing
from hydrator.domain.model import DatasetState, Did, Fact, QueuedJobs, ScheddDemand, Site, Unseen, to_unix
from hydrator.reconcile.demand import DemandMemory, RememberedJobs
from hydrator.reconcile.demand import update_demand_memory as remember_demand
from hydrator.reconcile.snapshot.merge import CatalogueMemory, DatasetRecord, apply_survey
from hydrator.reconcile.snapshot.removal_guard import HeldLoss, HoldCause
from hydrator.reconcile.state import DatasetChange, HistoryEntry, ReconcileState
from hydrator.state.database import _SCHEMA, owner_of
from hydrator.state.reports import LocalityHour, add_hour, load_hours
from hydrator.state.store import Store
from testbed.files import umask
from testbed.processes import run_program
from tests.factories import (
    CAM,
    HOUR,
    L1,
    L2,
    L3,
    MINUTE,
    NOON,
    RAL,
    ad,
    holding,
    memory,
    replica,
    seen,
    survey,
)

FULL = ReconcileState(
    memories={
        "rucio": CatalogueMemory(
            NOON,
            frozenset({CAM, RAL}),
            {
                L1: DatasetRecord(
                    NOON, {CAM: Fact(DatasetState.AVAILABLE, NOON - HOUR)}, 2**60, frozenset({L3})
                ),
                L2: DatasetRecord(
                    NOON - MINUTE,
                    {RAL: Fact(DatasetState.PARTIAL, NOON - MINUTE, 1 / 3)},
                    previous_facts={RAL: Fact(DatasetState.AVAILABLE, NOON - HOUR)},
                ),
            },
            {L3: "HTTP 503: „später“ 'again'\n"},
            frozenset({"RSE_1"}),
            last_read_at={RAL: NOON - HOUR},
        ),
        "dmapi": CatalogueMemory(unseen_reasons={L1: "down"}, failure="down"),
    },
    demand=DemandMemory(
        (
            RememberedJobs("ap1", (L1,), 1, NOON, set_key((L1,))),
            RememberedJobs("ap1", (L1, L2), 7, NOON - HOUR, "wrong"),
        ),
        {"no scope": "it has no scope"},
    ),
    pattern_matches={"rucio": frozenset({L2, L3}), "dmapi": frozenset()},
    ads={
        CAM: replace(
            ad(L1, L2, generation=2**40), openings=(("DataLocalityBacklog", "3"),), open_until=NOON + MINUTE
        )
    },
    held_losses={CAM: HeldLoss(NOON - HOUR, NOON, {L1: 0, L2: 3}, 7, HoldCause.ALL)},
)


def reopened(folder: Path) -> ReconcileState:
    with Store.open_to_write(folder) as store:
        return store.load()


def changes(store: Store, state: ReconcileState) -> int:
    """How many rows of datasets a save writes, seen by sqlite itself."""
    statements: list[str] = []
    store._db.set_trace_callback(statements.append)
    store.save(state)
    store._db.set_trace_callback(None)
    return sum(
        statement.startswith(("insert or replace into record", "delete from record where"))
        for statement in statements
    )


def test_everything_comes_back(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        assert store.load() == ReconcileState()
        store.save(FULL)
        assert store.load() == FULL
    assert reopened(tmp_path) == FULL


def test_a_catalogue_that_comes_back_brings_none_of_its_forgotten_datasets(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.save(FULL)
        store.save(ReconcileState())
        store.save(ReconcileState(memories={"rucio": CatalogueMemory(NOON)}))
    assert reopened(tmp_path).memories["rucio"].records == {}


def test_a_poll_that_says_the_same_writes_no_dataset_again(tmp_path):
    first = memory(holding(replica(L1), replica(L2)))
    later = NOON + MINUTE
    second = apply_survey(first, holding(replica(L1), replica(L2), at=later), {L1, L2}, now=later)
    with Store.open_to_write(tmp_path) as store:
        assert changes(store, ReconcileState(memories={"rucio": first})) == 2
        assert changes(store, ReconcileState(memories={"rucio": second})) == 0
    assert reopened(tmp_path).memories == {"rucio": second}


def test_save_writes_only_changed_rows_also_after_a_restart(tmp_path):
    first = memory(holding(replica(L1), replica(L2), replica(L3)))
    later = NOON + MINUTE
    answer = survey((L1, seen(replica(L1), at=later)), (L2, seen(at=later)), (L3, Unseen("x")), at=later)
    second = apply_survey(first, answer, {L1, L2, L3}, now=later)
    with Store.open_to_write(tmp_path) as store:
        store.save(ReconcileState(memories={"rucio": first}))
    with Store.open_to_write(tmp_path) as store:
        store.load()
        assert changes(store, ReconcileState(memories={"rucio": second})) == 2
    assert reopened(tmp_path).memories == {"rucio": second}


def big(mark: str) -> ReconcileState:
    """A state whose every part says *mark*, large enough that writing it takes a while."""
    known = {
        Did(f"x:{n:05}"): DatasetRecord(NOON, {Site(mark): Fact(DatasetState.STUCK, NOON)})
        for n in range(2000)
    }
    return ReconcileState(
        memories={
            "rucio": CatalogueMemory(
                NOON, frozenset({Site(mark)}), known, {L1: mark}, frozenset({mark}), mark
            )
        },
        demand=DemandMemory((RememberedJobs(mark, (L1,), 1, NOON, set_key((L1,))),), {mark: mark}),
        pattern_matches={mark: frozenset({Did(f"{mark}:1")})},
        ads={Site(mark): replace(ad(L1), site=Site(mark))},
    )


def test_save_after_a_failed_save_writes_all_changes(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.save(big("old"))
        (pages,) = store._db.execute("pragma page_count").fetchone()
        store._db.execute(f"pragma max_page_count = {pages}")
        fat = replace(
            big("new"), pattern_matches={"rucio": frozenset(Did(f"x:{n:0400}") for n in range(9000))}
        )
        with pytest.raises(StateError, match="full"):
            store.save(fat)
        assert store.load() == big("old")
        store._db.execute("pragma max_page_count = 1000000")
        store.save(big("new"))
    assert reopened(tmp_path) == big("new")


@pytest.mark.parametrize("text", ["\udcff\ud800", "a\0b", "x" * 100_000, "'; drop table ads; --"])
def test_no_text_that_a_job_can_carry_stops_the_daemon(tmp_path, text):
    answers = {"ap1": ScheddDemand(NOON, (QueuedJobs((text,), 1),))}
    told = remember_demand(DemandMemory(), answers, default_scope=None, now=NOON)
    with Store.open_to_write(tmp_path) as store:
        store.save(ReconcileState(demand=told))
    assert reopened(tmp_path).demand == told
    assert len(told.rejected_texts) == 1


def test_text_that_cannot_be_stored_is_reported_and_nothing_is_half_saved(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.save(FULL)
        with pytest.raises(StateError, match="surrogates"):
            store.save(ReconcileState(memories={"rucio": CatalogueMemory(failure="\udcff")}))
        assert store.load() == FULL


def test_state_is_not_saved_without_its_changes(tmp_path):
    odd = DatasetChange(to_unix(NOON), L1, None, "AVAILABLE", "a reason that cannot be stored: \udcff")
    with Store.open_to_write(tmp_path) as store:
        store.save(FULL)
        with pytest.raises(StateError, match="surrogates"):
            store.save(ReconcileState(), [HistoryEntry(NOON, CAM, (odd,))])
        assert (store.load(), store.load_changes(CAM)) == (FULL, ())


# ---- one owner


@pytest.mark.outside
def test_a_second_owner_is_refused_with_a_sentence_that_names_the_first(tmp_path):
    with Store.open_to_write(tmp_path):
        with pytest.raises(StateError) as refused:
            Store.open_to_write(tmp_path)
        assert str(refused.value) == (
            f"state_dir {tmp_path} is in use by another hydrator (process {os.getpid()}); "
            "stop it first, or use plan, status, sites or datasets, which only read the state"
        )
    Store.open_to_write(tmp_path).close()


@pytest.mark.outside
def test_second_close_is_not_an_error_and_frees_no_other_lock(tmp_path):
    first = Store.open_to_write(tmp_path)
    first.close()
    with Store.open_to_write(tmp_path):
        first.close()
        with pytest.raises(StateError):
            Store.open_to_write(tmp_path)


def test_lock_shows_that_a_daemon_runs(tmp_path):
    assert owner_of(tmp_path) is None
    with Store.open_to_write(tmp_path):
        assert owner_of(tmp_path) == str(os.getpid())
    assert owner_of(tmp_path) is None


@pytest.mark.outside
def test_daemon_starts_while_a_command_reads_its_lock(tmp_path):
    with Store.open_to_write(tmp_path):
        pass
    looking = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.1, os.close, [looking]).start()
    with Store.open_to_write(tmp_path):
        assert owner_of(tmp_path) == str(os.getpid())


def test_a_look_sees_one_state_even_when_another_is_saved_meanwhile(tmp_path):
    with Store.open_to_write(tmp_path) as store, Store.open_to_read(tmp_path) as looking:
        store.save(big("old"))

        def save_before(statement: str) -> None:
            if "from record" in statement:  # after the first table, which was read before
                store.save(big("new"))

        looking._db.set_trace_callback(save_before)
        assert looking.load() == big("old")
        looking._db.set_trace_callback(None)
        assert looking.load() == big("new")


def test_read_only_store_cannot_write(tmp_path):
    Store.open_to_write(tmp_path).close()
    with Store.open_to_read(tmp_path) as looking, pytest.raises(StateError, match="readonly"):
        looking.save(FULL)


# ---- folders and files that are not as they should be


def test_a_first_start_that_was_killed_left_no_state_and_the_next_one_begins_it(tmp_path):
    database = sqlite3.connect(tmp_path / "state.sqlite")
    with pytest.raises(sqlite3.OperationalError):
        database.executescript(_SCHEMA.replace("commit;", "select none;"))
    database.close()
    with pytest.raises(StateMissing):
        Store.open_to_read(tmp_path)
    Store.open_to_write(tmp_path).close()
    Store.open_to_read(tmp_path).close()


def test_missing_state_is_reported_in_a_sentence(tmp_path):
    with pytest.raises(StateError, match="no daemon has run with this state_dir yet"):
        Store.open_to_read(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.outside
def test_unreadable_state_is_reported_with_who_may_read_it(open_folder):
    state = open_folder / "state"
    Store.open_to_write(state).close()
    for folder, mode in ((state, 0o700), (state / "state.sqlite", 0o600)):
        state.chmod(0o755)
        folder.chmod(mode if os.geteuid() == 0 else 0)
        done = as_nobody("Store.open_to_read(Path(sys.argv[1]))", state)
        state.chmod(0o755)
        assert "StateUnreadable" in done.stderr
        assert "Permission denied; run this command as the daemon's user or as root" in done.stderr


def test_a_folder_that_cannot_be_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="must be a folder that can be written"):
        Store.open_to_write(tmp_path / "file" / "state")


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b=c", "100%25", "ü"])
def test_a_folder_may_have_any_name(tmp_path, name):
    with Store.open_to_write(tmp_path / name) as store:
        store.save(FULL)
    with Store.open_to_read(tmp_path / name) as looking:
        assert looking.load() == FULL


def overwritten(path: Path, start: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xa5" * size)


@pytest.mark.parametrize(("start", "size"), [(0, 100), (100, 4000), (4096, 40_000)])
def test_damaged_file_is_renamed_and_reported(tmp_path, start, size):
    with Store.open_to_write(tmp_path) as store:
        store.save(big("old"))
    overwritten(tmp_path / "state.sqlite", start, size)
    (tmp_path / "state.sqlite").chmod(0o644)
    with Store.open_to_write(tmp_path) as store:
        assert "state.sqlite.damaged-1" in store.damage_report
        assert set(modes(tmp_path).values()) == {"0o600"}
        assert store.load() == ReconcileState()
        store.save(FULL)
    assert (tmp_path / "state.sqlite.damaged-1").exists()
    with Store.open_to_write(tmp_path) as store:
        assert store.damage_report is None
        assert store.load() == FULL


def test_a_second_damage_keeps_the_first_evidence(tmp_path):
    for number in (1, 2):
        (tmp_path / "state.sqlite").write_bytes(b"no database, but long enough to be looked at" * number)
        with Store.open_to_write(tmp_path) as store:
            assert f"damaged-{number}" in store.damage_report
    assert len((tmp_path / "state.sqlite.damaged-1").read_bytes()) == 44


def test_damaged_file_is_only_reported_to_readers(tmp_path):
    (tmp_path / "state.sqlite").write_bytes(b"no database, but long enough to be looked at")
    with pytest.raises(StateError, match="not a database"):
        Store.open_to_read(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["state.sqlite"]


# ---- rows that cannot be decoded


def spoil(store: Store, statement: str) -> None:
    """Save FULL, and run *statement* as another program would."""
    store.save(FULL)
    with store._db:
        store._db.execute(statement)


SPOILT_ROWS = [
    *(("record", body) for body in ("'[broken'", "'[]'", "7", "null", "cast(x'ff' as text)", "'{\"a\": 1}'")),
    ("record", "replace(body, 'PARTIAL', 'partial')"),
    ("part", "replace(body, 'last_demanded_at\":\"', 'last_demanded_at\":\"x')"),
    ("part", "replace(body, '2026-', '99999-')"),
    ("part", "replace(body, 'Z\"', '\"')"),
    ("record", "replace(body, 'Z\"', '\"')"),
    ("part", 'replace(body, \'generation":\', \'generation":"x","y":\')'),
    ("part", "cast(x'c328' as text)"),
]


@pytest.mark.parametrize(("table", "spoilt"), SPOILT_ROWS)
def test_a_state_with_a_row_that_cannot_be_decoded_is_renamed_and_the_daemon_starts_empty(
    tmp_path, table, spoilt
):
    with Store.open_to_write(tmp_path) as store:
        spoil(store, f"update {table} set body = {spoilt}")
    with Store.open_to_write(tmp_path) as store:
        assert store.load() == ReconcileState()
        assert "state.sqlite was damaged" in store.damage_report
        assert "it was renamed to state.sqlite.damaged-1" in store.damage_report
        store.save(FULL)
        add_hour(store, LocalityHour(NOON, 1))
        assert set(modes(tmp_path).values()) == {"0o600"}
    assert b"lofar:L1" in (tmp_path / "state.sqlite.damaged-1").read_bytes()
    with Store.open_to_write(tmp_path) as store:
        assert store.load() == FULL
        assert load_hours(store, NOON) == [LocalityHour(NOON, 1)]
        assert store.damage_report is None


def test_records_of_a_catalogue_without_its_row_are_damage(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        spoil(store, "update record set catalogue = 'unknown'")
        assert store.load() == ReconcileState()
        assert store.damage_report


def test_who_looks_is_told_of_a_row_that_cannot_be_decoded_and_renames_nothing(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        spoil(store, "update part set body = 'spoilt' where name = 'demand'")
        with Store.open_to_read(tmp_path) as looking, pytest.raises(StateError, match="cannot be decoded"):
            looking.load()
    assert not list(tmp_path.glob("*damaged*"))


@pytest.mark.parametrize("body", ["'[broken'", "''", "'[1]'", "'null'", "7", "null", "x'fffe'"])
def test_a_summary_that_is_not_a_json_object_counts_as_missing(tmp_path, body):
    with Store.open_to_write(tmp_path) as store:
        store.save_reports({"pool": {"loads": {}}})
        spoil(store, f"update report set body = {body}")
        assert store.load_report("pool", dict) is None
        store.save_reports({"pool": {"loads": {}}})
        assert store.load_report("pool", dict) == {"loads": {}}


def newer(folder: Path) -> None:
    Store.open_to_write(folder).close()
    with sqlite3.connect(folder / "state.sqlite") as db:
        db.execute("pragma user_version = 99")
    db.close()


def test_a_newer_schema_is_refused_and_left_alone(tmp_path):
    newer(tmp_path)
    for _ in range(2):  # twice: the lock was let go
        with pytest.raises(StateError, match=r"a newer classad-hydrator wrote it \(schema 99\)") as refused:
            Store.open_to_write(tmp_path)
        assert "room" not in str(refused.value)
    with pytest.raises(StateError, match="newer"):
        Store.open_to_read(tmp_path)
    assert not list(tmp_path.glob("*damaged*"))


@pytest.mark.outside
def test_anybody_who_may_read_can_look_after_a_clean_stop(open_folder):
    with Store.open_to_write(open_folder) as store:
        store.save(big("old"))
    open_folder.chmod(0o555)
    (open_folder / "state.sqlite").chmod(0o444)
    done = as_nobody("Store.open_to_read(Path(sys.argv[1])).load()", open_folder)
    assert done.returncode == 0, done.stderr


def as_nobody(look: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run *look* as somebody who owns nothing, when we are root."""
    words = (
        "import os, sys; from pathlib import Path; from hydrator.state.store import Store\n"
        f"if os.geteuid() == 0: os.setegid(65534); os.seteuid(65534)\n{look}"
    )
    return run_program([sys.executable, "-c", words, folder])


def modes(folder):
    return {file.name: oct(file.stat().st_mode & 0o777) for file in folder.iterdir()}


def test_nobody_else_reads_the_state_whatever_the_umask(tmp_path):
    folder = tmp_path / "made" / "state"
    with umask(0):
        with Store.open_to_write(folder) as store:
            store.save(ReconcileState(pattern_matches={"rucio": frozenset({L1})}))
            assert {"state.sqlite", "state.sqlite-wal", "state.sqlite-shm", "lock"} <= modes(folder).keys()
            assert set(modes(folder).values()) == {"0o600"}
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_state_that_others_could_read_is_closed_to_them(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.save(ReconcileState())
    for name in ("state.sqlite", "lock", "state.sqlite.damaged-1", "state.sqlite-wal"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
    with Store.open_to_write(tmp_path):
        assert set(modes(tmp_path).values()) == {"0o600"}
