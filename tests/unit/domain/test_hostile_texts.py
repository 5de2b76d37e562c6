"""Hostile texts of users and clients: each is redacted, cut and explained, however long it is."""

import pytest

from hydrator.diagnostics.why.explain import explain
from hydrator.diagnostics.why.pool_facts import MAX_LIST_CHARS, MAX_TEXT_CHARS, JobFacts, parse_job
from hydrator.diagnostics.why.query import WhyResult
from hydrator.diagnostics.why.render import render_result
from hydrator.domain.redaction import redact
from tests.factories import NOON

PIECES = ["a.", "a/", "eyJabcde-", "token ", "%3A", ":", "\\\\", '\\"', " ", "password=", "é", '"a",']


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
    return render_result(WhyResult((explain(job, (), None, now=NOON),)), redact)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("piece", PIECES)
def test_long_hostile_text_is_redacted_and_explained(piece):
    """A pass takes a second, a search that starts again at each character minutes: the limit ends it."""
    assert "canary" not in redact(f"{piece * (200_000 // len(piece))} token=canary-canary")
    assert explained(held(200_000, piece))


def test_texts_of_a_job_are_cut():
    job = held(1_000_000, "x ")
    assert len(job.status_attributes["HoldReason"]) <= MAX_TEXT_CHARS + 1
    (name, reason), *_ = job.invalid_names.items()
    assert len(name) <= MAX_TEXT_CHARS + 1
    assert f"{MAX_LIST_CHARS} are allowed" in reason
