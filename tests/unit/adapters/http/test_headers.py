"""Times in HTTP headers."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.http.rate_limiter import MAX_PAUSE_SECONDS, http_date, retry_after

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
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
    assert retry_after(text, NOW) is None or 0 <= retry_after(text, NOW) <= MAX_PAUSE_SECONDS


@given(st.text() | st.from_regex(r"\w{3}, \d{1,5} \w{3} \d{1,12} \d\d:\d\d:\d\d [+-]\d{1,9}", fullmatch=True))
def test_a_time_header_never_raises_an_error(text):
    http_date(text)
    retry_after(text, NOW)


def test_valid_times_are_parsed():
    assert http_date("Sun, 22 Nov 2026 13:00:00 GMT") == NOW + timedelta(hours=1)
    assert http_date("Sun, 22 Nov 2026 13:00:00 +0100") == NOW.astimezone(timezone(timedelta(hours=1)))
    assert retry_after("Sun, 22 Nov 2026 12:00:07 GMT", NOW) == 7
    assert retry_after("Sun, 22 Nov 2026 12:00:07 GMT", None) is None
    assert retry_after(" 120 ", NOW) == 120
    assert retry_after("9" * 400, None) == MAX_PAUSE_SECONDS
    assert retry_after(None, NOW) is None
