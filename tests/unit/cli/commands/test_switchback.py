"""``hydrator report --experiment``: the table, the sentences and the JSON."""

import json
from datetime import timedelta

import pytest
from pydantic import TypeAdapter

from hydrator.cli.commands.outcomes.switchback import experiment_json, load_experiment, print_experiment
from hydrator.cli.output.json_models.outcomes import ExperimentReportJson
from hydrator.config import Settings
from hydrator.diagnostics.counterfactual import Estimate
from hydrator.diagnostics.switchback import Arm, LeftOut, Switchback
from hydrator.domain.errors import StateError
from hydrator.domain.model import to_unix
from hydrator.reconcile.publish.experiment import Experiment
from hydrator.reconcile.state import ReconcileState
from hydrator.state.store import Store
from tests.factories import HOUR, NOON

PLAN = Experiment(7, NOON, 6 * HOUR, 12, HOUR)
RESULT = Switchback(
    Arm(4, 3, 300, 100, [60.0, 120.0]),
    Arm(4, 1, 100, 300, [60.0, 60.0]),
    {
        "share_of_jobs": Estimate(0.5, 0.25, 0.75),
        "share_of_bytes": Estimate(-0.004, -0.02, 0.01),
        "bytes_moved_per_job": Estimate(-50e9, -60e9, 1e9),
        "mean_wait": Estimate(-30.0),
    },
    6,
    dict.fromkeys(LeftOut, 0) | {LeftOut.DROPPED: 2},
)


def test_table_has_both_arms_and_signed_differences_with_intervals(capsys):
    print_experiment(RESULT, PLAN, NOON + HOUR, as_json=False)
    text = capsys.readouterr().out
    assert text.startswith("experiment: block 1 of 12 (")
    rows = {line[:23].strip(): line[23:].split("  ") for line in text.splitlines()}
    assert [cell.strip() for cell in rows["jobs at their data"] if cell.strip()] == [
        "75 %",
        "25 %",
        "50.0 points (25.0 points to 75.0 points)",
    ]
    assert "-0.4 points (-2.0 points to 1.0 points)" in text
    assert "-50 GB (-60 GB to 1 GB)" in text
    assert "-30 s" in text
    assert "6 pairs of blocks have jobs in both blocks." in text
    assert "2 jobs left out: they started in the first part of a block." in text
    assert "An interval needs" not in text


def test_experiment_without_jobs_says_what_it_needs(capsys):
    print_experiment(Switchback(Arm(), Arm(), {}, 0, {}), PLAN, NOON - HOUR, as_json=False)
    text = capsys.readouterr().out
    assert text.splitlines() == [
        f"experiment: it begins at {NOON:%Y-%m-%d} 12:00 UTC",
        "0 pairs of blocks have jobs in both blocks.",
        "An interval needs 5 such pairs.",
    ]


@pytest.mark.parametrize("result", [RESULT, Switchback(Arm(), Arm(), {}, 0, {})])
def test_json_follows_its_model(result, capsys):
    print_experiment(result, PLAN, NOON + timedelta(days=30), as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed == experiment_json(result, PLAN, NOON + timedelta(days=30))
    TypeAdapter(ExperimentReportJson).validate_python(printed, strict=True)
    assert (printed["since"], printed["until"]) == (to_unix(NOON), to_unix(NOON + 72 * HOUR))


def test_report_needs_an_experiment_in_the_state(tmp_path):
    settings = Settings(daemon={"state_dir": str(tmp_path)})
    with Store.open_to_write(tmp_path) as store:
        store.save(ReconcileState())
    with pytest.raises(StateError, match="no experiment has begun"):
        load_experiment(settings)
    with Store.open_to_write(tmp_path) as store:
        store.save(ReconcileState(experiment=PLAN))
    assert load_experiment(settings) == PLAN
