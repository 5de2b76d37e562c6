"""Findings of `hydrator check` from the daemon's last cycle."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.diagnostics.check.findings import Level
from hydrator.diagnostics.check.last_cycle import check_last_cycle, hung_after_seconds, silence_reason
from hydrator.domain.model import Snapshot, to_unix
from hydrator.reconcile.view import CatalogueView, PublisherView
from tests.factories import CAM, NOON, RAL, demand, report_of, view_of

WELL = replace(
    view_of(report_of(Snapshot({}), demand())),
    catalogues=(CatalogueView(name="rucio"),),
    publishers=(PublisherView(name="http", ads=2, rejected={}),),
)
SOON = NOON + timedelta(seconds=12)


def said(view, at=SOON):
    return [(one.level, one.subject, one.message) for one in check_last_cycle(view, at, 630, "7")]


def with_demand(**problems):
    return replace(WELL, demand=replace(WELL.demand, **problems))


def test_complete_last_cycle_is_ok_with_its_age():
    assert said(WELL) == [(Level.OK, "daemon", "its last cycle was 12 s ago")]


def test_no_finding_before_the_first_cycle():
    assert said(None) == []


@pytest.mark.parametrize(
    ("ill", "seen"),
    [
        (
            {"catalogues": (CatalogueView(name="list", error="/srv/l.json: Permission denied"),)},
            "catalogue list failed: /srv/l.json: Perm",
        ),
        (
            {"publishers": (PublisherView(name="collector", error="no token", rejected={}),)},
            "publisher collector failed: no token",
        ),
    ],
)
def test_failure_of_the_daemons_last_cycle_is_a_finding(ill, seen):
    [(level, subject, words)] = said(replace(WELL, **ill))
    assert (level, subject) == (Level.FAIL, "daemon")
    assert words.startswith(f"in its last cycle, 12 s ago, {seen}")


@pytest.mark.parametrize(
    ("ill", "words"),
    [
        ({"misspelt": {"lofar:l1": ["Lofar:L1"]}}, "no catalogue has the demanded dataset lofar:l1"),
        (
            {"clashes": [["Lofar:L1", "lofar:l1"]]},
            "these names differ only in letter case: Lofar:L1, lofar:l1",
        ),
    ],
)
def test_names_that_differ_in_letter_case_only_are_findings(ill, words):
    [(level, subject, seen), _] = said(with_demand(**ill))
    assert (level, subject) == (Level.WARN, "letter case")
    assert words in seen


def test_key_of_two_lists_is_a_finding():
    [(level, subject, seen), _] = said(with_demand(wrong_keys={"c12.269@ap1": 3}))
    assert (level, subject) == (Level.WARN, "keys")
    assert (
        "for the datasets of 3 jobs, because the DataLocalityKey c12.269@ap1 does not stand for this" in seen
    )


def test_outdated_last_cycle_is_a_warning_without_its_failures():
    ill = replace(WELL, catalogues=(CatalogueView(name="rucio", error="down"),))
    [(level, _, words)] = said(ill, NOON + timedelta(hours=3))
    assert (level, words.partition("; ")[2]) == (Level.WARN, "the last cycle was 3 h ago")


def test_publisher_without_its_ads_is_a_warning_with_the_sites():
    lacking = PublisherView(name="collector cm2:9618", not_read_back=(CAM, RAL), rejected={})
    [(level, _, words)] = said(replace(WELL, publishers=(lacking,)))
    assert level is Level.WARN
    assert "publisher collector cm2:9618 accepted these ads and does not show them: CAM, RAL" in words


def test_stopped_daemon_is_reported_at_once():
    [found] = check_last_cycle(WELL, SOON, 630, None)
    assert (found.level, found.message) == (Level.WARN, "no daemon runs here; the last cycle was 12 s ago")


@pytest.mark.parametrize(
    ("last", "owner", "begin"),
    [
        (12, "7", None),
        (None, "7", None),
        (12, None, "no daemon runs here; the last cycle was 12 s ago"),
        (None, None, "no daemon runs here; no cycle has ended yet"),
        (
            121,
            "7",
            "process 7 holds the lock of the state but completes no cycle; the last cycle was 2 min 1 s ago",
        ),
    ],
)
def test_hung_daemon_is_reported_after_two_polls_and_a_stopped_one_at_once(last, owner, begin):
    began = None if last is None else to_unix(NOON) - last
    assert silence_reason(began, owner, NOON, hung_after_seconds(30)) == begin
