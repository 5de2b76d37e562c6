"""Texts of other users on the operator's screen: escaped, so they control no terminal and end no command."""

import io
import logging
import os
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from hydrator.cli.output import tables as show
from hydrator.cli.output.plain_table import format_table, print_lines, print_table
from hydrator.cli.output.stdio import PlainStream
from hydrator.diagnostics.overview.facts import DatasetSource
from hydrator.diagnostics.overview.saved import Status
from hydrator.diagnostics.problems import find_problems
from hydrator.diagnostics.why.nowhere import add_similar_names
from hydrator.domain.model import DatasetState, Did, Fact, Origin, QueuedJobs, ScheddDemand, Site, to_unix
from hydrator.domain.redaction import escape_unprintable_tree
from hydrator.domain.text import format_time
from hydrator.reconcile.demand import DemandMemory
from hydrator.reconcile.demand import update_demand_memory as remember_demand
from hydrator.reconcile.result import build_knowledge
from hydrator.reconcile.snapshot.merge import CatalogueMemory, DatasetRecord, build_snapshot
from hydrator.reconcile.state import ReconcileState
from hydrator.reconcile.view import DatasetView, FactView, PacingView, PublisherView, build_datasets
from hydrator.state.store import Store
from tests.command_line import run_hydrator
from tests.factories import CAM, DAY, HOUR, L1, L2, NOON, RAL, ad, demand, report_of, view_of, want

EVIL = "\x1b]0;pwned\x07\x1b[2J\u202egnp\ud800\u2066\x9b31m"
SAFE = "\\x1b]0;pwned\\x07\\x1b[2J\\u202egnp\\ud800\\u2066\\x9b31m"


def harmless(text: str) -> bool:
    return all(letter.isprintable() or letter in "\n\t" for letter in text)


def test_tables_show_unprintable_characters_as_escapes():
    out = io.StringIO()
    with redirect_stdout(out):
        print_table(("site", "why"), [(f"UK{EVIL}", EVIL)])
        print_lines([EVIL], style="yellow")
    assert harmless(out.getvalue())
    assert "pwned" in out.getvalue()


CELLS = st.text("abcdef  \n\u00e9\u3042", max_size=60)


@pytest.mark.parametrize("width", [40, 80, 200])
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4))
def test_table_keeps_every_character_within_the_width(width, rows):
    console = Console(width=width)
    head, body = format_table(console, ("dataset", "jobs", "note"), rows)
    assert {cell_len(line) for line in (*head, *body)} == {cell_len(head[0])}
    assert cell_len(head[0]) <= width
    shown = "".join(body).replace(" ", "")
    assert sorted(shown) == sorted("".join(map("".join, rows)).replace(" ", "").replace("\n", ""))


def test_table_folds_only_the_widest_column():
    console = Console(width=20)
    _, body = format_table(console, ("did", "note"), [("lofar:L1", "no site has it"), ("lofar:L2", "")])
    assert [line.rstrip() for line in body] == ["lofar:L1  no site", "          has it", "lofar:L2"]


@given(st.text(max_size=30))
def test_a_plain_stream_writes_any_text(text):
    raw = io.BytesIO()
    stream = PlainStream(io.TextIOWrapper(raw, "ascii", errors="backslashreplace"), passes_styles=False)
    print(text, file=stream, flush=True)
    assert harmless(raw.getvalue().decode("ascii"))


def test_plain_stream_passes_styles_and_escapes_other_sequences():
    out = io.StringIO()
    PlainStream(out, passes_styles=True).write("\x1b[1mbold\x1b[0m \x1b[2J \x1b]0;x\x07\x1b[31;1;4")
    assert out.getvalue() == "\x1b[1mbold\x1b[0m \\x1b[2J \\x1b]0;x\\x07\\x1b[31;1;4"


@pytest.fixture
def installation(tmp_path):
    """A state that an earlier version filled with unescaped texts of catalogues and jobs."""
    (tmp_path / "catalogue.toml").write_text(
        'sites = ["UK"]\n[datasets."lofar:L1"]\nsites.UK = "available"\n'
    )
    config = tmp_path / "config.toml"
    config.write_text(
        '[daemon]\nstate_dir = "state"\n[[catalogue]]\ntype = "file"\npath = "catalogue.toml"\n'
        '[demand]\nask_schedds = false\npins = ["lofar:L1"]\n[publish.collector]\nenabled = false\n'
        '[publish.file]\ndirectory = "ads"\n[publish.http]\nenabled = false\n'
    )
    site = Site("UK\x1b[2J\u202e")
    evil = EVIL.replace("\ud800", "")  # sqlite stores no half of a pair
    known = {Did("lofar:L1"): DatasetRecord(NOON, {site: Fact(DatasetState.STUCK, NOON)})}
    memory = CatalogueMemory(NOON, frozenset({site}), known, {Did("lofar:L1"): evil}, frozenset({evil}), evil)
    state = ReconcileState(
        memories={f"file{evil}": memory},
        demand=DemandMemory((), {evil: evil}),
        ads={site: replace(ad(Did("lofar:L1")), site=site)},
    )
    with Store.open_to_write(tmp_path / "state") as store:
        store.save(state)
    return config


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
@pytest.mark.parametrize(
    "words",
    [
        *(["status"], ["sites"], ["datasets"], ["datasets", "--why"], ["check"]),
        *(pytest.param([word], marks=pytest.mark.outside) for word in ("plan", "once")),
    ],
    ids=" ".join,
)
def test_every_command_prints_hostile_texts_of_the_state(installation, encoding, words):
    for more in ([], ["--json"]):
        done = run_hydrator(*words, *more, "-c", installation, encoding=encoding)
        text = done.stdout.decode() + done.stderr.decode()
        assert "Traceback" not in text, text
        assert "Error" not in done.stderr.decode().replace("StateError", ""), text
        assert harmless(text)
        assert done.returncode in {0, 1}, text


def test_lone_surrogate_in_an_argument_ends_no_command(tmp_path):
    (tmp_path / "config.toml").write_text("")
    done = run_hydrator("status", "-c", os.fsdecode(b"\x1b[2J\xff.toml"), cwd=tmp_path)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"\x1b" not in done.stderr


@pytest.mark.parametrize("style", ["json", "console"])
def test_log_shows_unprintable_characters_as_escapes(logged, style):
    log = logged(stream := io.StringIO(), style=style)
    log.info("cycle", why=EVIL, more={EVIL: [EVIL, (EVIL,)]})
    logging.getLogger("a.library").warning("said %s", EVIL)
    try:
        int(EVIL)
    except ValueError:
        log.exception("cycle failed")
    assert harmless(stream.getvalue())
    assert stream.getvalue().count("pwned") >= 5
    assert "ValueError" in stream.getvalue()


def test_state_stores_invalid_names_of_jobs_as_printable_text():
    queue = ScheddDemand(NOON, (QueuedJobs((EVIL,), 1),))
    memory = remember_demand(DemandMemory(), {"schedd": queue}, default_scope=None, now=NOON)
    assert list(memory.rejected_texts) == [SAFE]


def test_answers_of_the_pool_are_escaped_with_their_line_ends():
    assert escape_unprintable_tree({EVIL: [EVIL, 1, None, {"a": "b\nc"}]}, "\n") == {
        SAFE: [SAFE, 1, None, {"a": "b\nc"}]
    }


HERE = DatasetRecord(NOON, {Site("UK"): Fact(DatasetState.AVAILABLE, NOON)})
NOWHERE = DatasetRecord(NOON, {})
TYPO, RIGHT = Did("lofar:L667526_SB0001"), Did("lofar:L667526_SB001")


def cycle_of(
    known: Mapping[Did, DatasetRecord], *dids: Did, unseen: Mapping[Did, str] | None = None, jobs: int = 1
) -> tuple[Status, list[DatasetView]]:
    """Return what `hydrator status` and `datasets` print of a cycle in which *jobs* name *dids*.

    The catalogue has *known*, or *dids* if none are named, and says why it did not answer about *unseen*.
    """
    dids = dids or (*known,)
    memories = {"rucio": CatalogueMemory(NOON, frozenset({Site("UK")}), known, unseen or {})}
    wants = demand(want(*dids, jobs=jobs))
    snapshot = build_snapshot(memories, wants.dids, now=NOON, max_age=6 * HOUR)
    report = report_of(snapshot, wants, memories=memories)
    view, knowledge = view_of(report), add_similar_names(build_knowledge(report), dids)
    rows = build_datasets(dids, knowledge, wants, view.demand.unseen)
    return Status(view, None, (), None, None), rows


def status_with(**demand_changes: object) -> Status:
    """Return the status after a cycle with a dataset at UK, with these changes of its demand."""
    status, _ = cycle_of({RIGHT: HERE})
    demand_view = replace(status.cycle.demand, **demand_changes)
    return replace(status, cycle=replace(status.cycle, demand=demand_view))


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("known", "unseen", "state", "note"),
    [
        ({}, {TYPO: "timeout"}, "not known", "timeout"),
        ({}, {}, "not known", "catalogue rucio has not answered about this dataset"),
        ({TYPO: NOWHERE}, {}, "nowhere", "check the spelling"),
    ],
)
def test_dataset_is_absent_only_if_every_catalogue_answered(capsys, known, unseen, state, note):
    status, rows = cycle_of(known, TYPO, unseen=unseen)
    show.print_datasets(rows, NOON)
    text = printed(capsys)
    assert f"- {state} " in text
    assert note in text
    assert status.cycle.demand.absent == ((TYPO,) if state == "nowhere" else ())


def test_note_on_a_dataset_is_printed_once(capsys):
    _, (row,) = cycle_of({RIGHT: HERE})
    facts = [FactView(site, DatasetState.AVAILABLE, None, to_unix(NOON), {}) for site in (CAM, RAL)]
    show.print_datasets([replace(row, sites=tuple(facts), left_out_at=(CAM, RAL))], NOON)
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("no space in the ad of CAM, RAL")
    assert second.split() == [RIGHT, "1", RAL, "AVAILABLE", "0", "s", "ago"]


def test_unknown_name_is_shown_with_the_nearest_known_one(capsys):
    status, rows = cycle_of({TYPO: NOWHERE, RIGHT: HERE})
    show.print_datasets(rows, NOON)
    show.print_status(status, NOON)
    text = printed(capsys)
    assert f"check the spelling; {RIGHT} exists" in text
    assert f"no site has 1 demanded dataset, for example {TYPO}: check the spelling" in text


def test_status_names_the_problems_that_check_finds_with_what_to_do(capsys):
    status = status_with(clashes=((RIGHT, Did(RIGHT.lower())),), wrong_keys={"c1.5@ap": 5})
    collector = PublisherView(name="collector", rejected={"AU": "no age"}, rival="its generation is not ours")
    cycle = replace(status.cycle, publishers=(collector,))
    status = replace(status, cycle=cycle, daemon_problem="no daemon runs here")
    show.print_status(status, NOON)
    text = printed(capsys)
    found = list(find_problems(status, NOON))
    assert len(found) == 5
    for one in found:
        assert f"{one.message}; {one.advice}" in text


def test_status_shows_refused_and_unanswered_demand_and_reads_no_markup_in_names(capsys):
    refused, unseen = {"[red]x[/]": "it has no scope"}, {RIGHT: "[bold]", TYPO: "[bold]"}
    show.print_status(status_with(refused=refused, unseen=unseen), NOON)
    text = printed(capsys)
    assert "a job names '[red]x[/]', which is not a DID: it has no scope" in text
    assert f"not all catalogues answered about 2 datasets, for example {RIGHT}: [bold]" in text


def test_once_and_plan_show_datasets_about_which_nobody_answered(capsys):
    show.print_cycle(status_with(unseen={RIGHT: "its size is a text"}).cycle)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"not all catalogues answered about {RIGHT}: its size is a text"


def test_status_shows_the_first_of_many_refused_and_unanswered_names_and_counts_the_others(capsys):
    refused = {f"L{number}": "it has no scope" for number in range(500)}
    unseen = {Did(f"lofar:L{number}"): f"no answer about lofar:L{number}" for number in range(500)}
    show.print_status(status_with(refused=refused, unseen=unseen), NOON)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 25
    assert sum("which is not a DID" in line for line in lines) == 5
    assert sum("not all catalogues answered" in line for line in lines) == 5
    assert sum(line.startswith("495 more such") for line in lines) == 2


def test_provenance_of_an_old_answer_has_the_reason_of_the_last_failure_alone_or_after_its_own(capsys):
    def row(why: str, unseen: str | None, as_of: int | None = to_unix(NOON)) -> DatasetSource:
        return DatasetSource(L1, "rucio", unseen, Site("UK"), DatasetState.AVAILABLE, as_of, why)

    rows = [
        row("rule r1", None),
        row("", "timeout"),
        row("rule r1", "timeout"),
        row("timeout", "timeout", None),
    ]
    show.print_provenance(rows, NOON)
    whys = [" ".join(line.split()).partition("UK ")[2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert whys == [
        "AVAILABLE 0 s ago rule r1",
        "AVAILABLE 0 s ago since then: timeout",
        "AVAILABLE 0 s ago rule r1; since then: timeout",
        "AVAILABLE timeout",
    ]


def test_a_share_is_rounded_down(capsys):
    almost = DatasetRecord(NOON, {Site("UK"): Fact(DatasetState.PARTIAL, NOON, 0.997)})
    _, rows = cycle_of({RIGHT: almost})
    show.print_datasets(rows, NOON)
    assert "PARTIAL 99 %" in printed(capsys)


def test_demand_of_jobs_that_are_gone_is_called_kept_and_has_no_advice(capsys):
    """Case S29 of cases/submit.md."""
    status, rows = cycle_of({TYPO: NOWHERE, RIGHT: HERE}, jobs=0)
    show.print_datasets(rows, NOON)
    show.print_status(status, NOON)
    text = printed(capsys)
    end = format_time(to_unix(NOON + DAY), NOON)
    assert f"0 datasets demanded by 0 jobs; 2 datasets kept until {end}, which no job names any more" in text
    assert text.count(f"no job names it any more; kept until {end}") == 2
    assert "spelling" not in text
    row = status.cycle.demand
    assert (row.datasets, row.kept_datasets, row.absent) == (0, 2, ())
    assert row.kept_until == to_unix(NOON + DAY)


def test_dataset_that_another_job_or_a_pin_names_is_not_kept():
    gone, queued = want(L1, L2, jobs=0), want(L1, jobs=2)
    assert demand(gone, queued, want(L2, jobs=0, origin=Origin.PIN)).kept_dids == frozenset()
    assert demand(gone, queued).kept_dids == {L2}


@pytest.mark.parametrize(
    ("none", "left", "sets", "said"),
    [
        (None, 90, 2, ["jobs of 2 sets may read for 1 min 30 s", "1 idle job can start"]),
        (None, 90, 0, ["no set is open", "1 idle job can start"]),
        (None, 0, 2, ["not paced: the last openings are too old"]),
        ("no schedd answers", 0, 0, ["not paced: no schedd answers"]),
    ],
)
def test_the_line_of_pacing_says_what_is_open_and_for_how_long(none, left, sets, said):
    pacing = PacingView(none, to_unix(NOON) + left, sets, 1)
    line = show.pacing_line(pacing, NOON)
    assert all(words in line for words in said)
