"""Hostile texts of users and clients: each is redacted, cut and explained, however long it is."""

from dataclasses import replace

import pytest

from hydrator.diagnostics.why.explain import explain
from hydrator.diagnostics.why.pool_facts import MAX_LIST_CHARS, MAX_TEXT_CHARS, JobFacts, JobStatus, parse_job
from hydrator.diagnostics.why.query import WhyResult
from hydrator.diagnostics.why.render import render_result
from hydrator.diagnostics.why.summary import summarize_jobs
from hydrator.domain.model import (
    DaemonKnowledge,
    DatasetState,
    Did,
    Fact,
    Site,
    SiteFacts,
    Snapshot,
)
from hydrator.domain.redaction import Redactor
from hydrator.privacy.pseudonyms import HIDDEN_DID, Privacy, Pseudonymizer
from tests.factories import NOON

pytestmark = pytest.mark.outside

VEIL = Pseudonymizer(Privacy(("*:secret_*", "*a*a*b*")), (bytes(range(40)),))
HIDE = Redactor(redact_further=VEIL.redact)
PIECES = ["a.", "a/", "eyJabcde-", "token ", "%3A", ":", "\\\\", '\\"', " ", "a:secret_", "é", '"a",']


def held(size: int, piece: str) -> JobFacts:
    """A held job with hostile texts of *size* characters wherever its owner may write."""
    text = piece * (size // len(piece))
    ad = {
        "ClusterId": "7",
        "JobStatus": "5",
        "HoldReason": f'"{text}"',
        "LastRejMatchReason": f'"{text}"',
        "RequiredDatasets": f'{{"{text}", "lofar:L1"}}',
    }
    return parse_job(ad, [0], "schedd")


def explained(job: JobFacts) -> list:
    return render_result(WhyResult((explain(job, (), None, now=NOON),)), HIDE)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("piece", PIECES)
def test_long_hostile_text_is_redacted_and_explained(piece):
    """A pass takes a second, a search that starts again at each character minutes: the limit ends it."""
    assert "canary" not in HIDE(f"{piece * (200_000 // len(piece))} a:secret_canary")
    assert explained(held(200_000, piece))


def test_texts_of_a_job_are_cut_and_no_name_in_them_is_cut_in_two():
    job = held(1_000_000, "x ")
    assert len(job.status_attributes["HoldReason"]) <= MAX_TEXT_CHARS + 1
    (name, reason), *_ = job.invalid_names.items()
    assert len(name) <= MAX_TEXT_CHARS + 1
    assert f"{MAX_LIST_CHARS} are allowed" in reason
    cut = " " * (MAX_TEXT_CHARS - 12) + "a:secret_canary"
    job = parse_job({"HoldReason": f'"{cut}"', "JobStatus": "5"}, [0], "schedd")
    assert "secret" not in "".join(explained(job)[0].lines)


def test_guesses_in_a_hold_reason_come_back_as_a_constant():
    guesses = [f"a:secret_{number}" for number in range(41)]
    job = parse_job({"JobStatus": "5", "HoldReason": f'"{" ".join(guesses)}"'}, [0], "schedd")
    (line, *_) = explained(job)[0].lines
    assert line.count(HIDDEN_DID) == 41
    assert [guess for guess in guesses if VEIL.pseudonym(Did(guess)).partition(":")[2] in line] == []


def test_summary_counts_each_job_at_each_site_with_its_data():
    facts = {Did(f"lofar:L{number}"): Fact(DatasetState.AVAILABLE, NOON) for number in range(2000)}
    known = DaemonKnowledge(NOON, Snapshot({Site(f"S{each}"): SiteFacts(NOON, facts) for each in range(10)}))
    job = JobFacts("7.0", "schedd", 1, JobStatus.IDLE, (Did("lofar:L7"),), max_age_seconds=100)

    def jobs(size):
        return summarize_jobs([replace(job, name=str(each)) for each in range(size)], known)

    assert jobs(3).complete_by_site == dict.fromkeys(known.snapshot.sites, 3)
