"""The rate limiter of calls to one server: turns, pauses and the reading of Retry-After."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.http.rate_limiter import MAX_PAUSE_SECONDS, HttpRateLimiter, http_date, retry_after

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_a_retry_after_pauses_calls_for_that_time():
    now, slept = [1000.0], []
    pace = HttpRateLimiter(10, lambda: now[0], slept.append)
    pace.wait_for_turn()
    pace.record_response(429, "40")
    now[0] += 39
    assert pace.pause_seconds == 1
    pace.wait_for_turn()
    assert slept == [1]
    now[0] += 1
    assert pace.pause_seconds == 0


def test_a_pause_for_one_call_holds_for_all_connections():
    slept = []
    times = [0.0]

    def sleep(seconds):
        slept.append(seconds)
        times[0] += seconds

    pace = HttpRateLimiter(10, lambda: times[0], sleep)
    pace.record_response(429, "5")
    assert pace.wait_for_turn(within_seconds=10)
    assert not pace.wait_for_turn(within_seconds=0.05)
    assert slept == [5.0]


def test_a_call_that_waits_for_its_turn_also_waits_for_a_new_pause():
    now, slept = [1000.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            pace.record_response(429, "40")  # on another line, meanwhile
        now[0] += seconds

    pace = HttpRateLimiter(10, lambda: now[0], sleep)
    pace.wait_for_turn()
    pace.wait_for_turn()
    assert now[0] == pytest.approx(1040)
    assert pace.pause_seconds == 0


def test_concurrent_refusals_count_once_and_an_answer_ends_no_pause():
    now = [1000.0]
    pace = HttpRateLimiter(10, lambda: now[0], lambda _: None)
    for _ in range(5):
        pace.record_response(429, None)
    assert pace.pause_seconds == 2
    pace.record_response(200, None)
    assert pace.pause_seconds == 2
    now[0] += 3
    pace.record_response(429, None)
    assert pace.pause_seconds == 4, "the answer was to a question from before the pause"
    now[0] += 5
    pace.record_response(200, None)
    pace.record_response(429, None)
    assert pace.pause_seconds == 2


@pytest.mark.parametrize(
    ("status", "header", "pause"),
    [
        (429, "Sat, 21 Nov 2026 12:01:00 GMT", 2),
        (503, "Sat, 21 Nov 2026 12:01:00 GMT", 2),
        (503, "40", 40),
        (429, None, 2),
        (503, None, 0),
        (500, "40", 0),
        (200, None, 0),
    ],
)
def test_a_refusal_pauses_calls_for_the_seconds_that_it_has(status, header, pause):
    limiter = HttpRateLimiter(10, lambda: 1000.0, lambda _: None)
    assert limiter.record_response(status, header) is (pause > 0)
    assert limiter.pause_seconds == pause


# times in HTTP headers

ABSURD = [
    "",
    "9" * 400,
    "9" * 5000,
    "Fri, 31 Dec 9999 23:59:59 -2359",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "Fri, 31 Dec 99999999999 23:59:59 GMT",
    "Fri, 31 Dec 2026 23:59:59 +99999999999999",
    "Fri, 31 Dec 2026 99:99:99 GMT",
    "²",
    "\ud800",
    "-1",
    "1e9",
    "nan",
    "," * 500,
]


@pytest.mark.parametrize("text", ABSURD)
def test_an_absurd_time_is_none_or_in_bounds(text):
    date = http_date(text)
    assert date is None or date.tzinfo is UTC
    assert retry_after(text) is None or 0 <= retry_after(text) <= MAX_PAUSE_SECONDS


@given(st.text() | st.from_regex(r"\w{3}, \d{1,5} \w{3} \d{1,12} \d\d:\d\d:\d\d [+-]\d{1,9}", fullmatch=True))
def test_a_time_header_never_raises_an_error(text):
    http_date(text)
    retry_after(text)


def test_valid_times_are_parsed():
    assert http_date("Sun, 22 Nov 2026 13:00:00 GMT") == NOW + timedelta(hours=1)
    assert http_date("Sun, 22 Nov 2026 13:00:00 +0100") == NOW.astimezone(timezone(timedelta(hours=1)))
    assert retry_after("Sun, 22 Nov 2026 12:00:07 GMT") is None
    assert retry_after(" 120 ") == 120
    assert retry_after("-7") is None
    assert http_date("Sun, 22 Nov 2026 12:01:00") is None
    assert retry_after(None) is None


@pytest.mark.parametrize("header", ["9" * 400, "900"])
def test_pause_of_any_length_ends_after_two_minutes(header):
    """Case R7: 400 digits paused that Rucio for 900 s."""
    assert retry_after(header) == MAX_PAUSE_SECONDS == 120
