"""What is logged shows no secret: not its text, not in its usual dress, not as a variable of a traceback."""

import io
import json
import logging

import pytest
import structlog

from hydrator.redact import Redactor
from hydrator.telemetry import configure_logs

SECRET = 'canary"\\7/secret'


@pytest.fixture
def logged():
    """Logs in a style, through a redactor; gives what was written."""
    root = logging.getLogger()
    before = root.handlers[:], root.level

    def log(style, redact=None):
        stream = io.StringIO()
        configure_logs("debug", style, stream, redact)
        return structlog.get_logger("test"), stream

    yield log
    root.handlers[:], root.level = before[0], before[1]
    structlog.reset_defaults()


def fails_with(secret):
    password = secret
    settings = {"password": password}
    raise RuntimeError(f"a bug with {len(settings)} setting")


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_shows_no_values_of_variables(logged, style):
    log, stream = logged(style)
    try:
        fails_with("canary-in-a-variable")
    except RuntimeError:
        log.exception("cycle failed: this is a bug")
    assert "fails_with" in stream.getvalue()
    assert "canary" not in stream.getvalue().replace('"canary-in-a-variable")', "")  # the line of source


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_known_secret_is_taken_out_however_it_is_written(logged, style):
    log, stream = logged(style, Redactor([SECRET]))
    log.info("login", failed=f"the server said: {SECRET}", url="https://x/?t=canary%22%5C7%2Fsecret")
    logging.getLogger("a.library").warning("sent %s", SECRET)
    assert "canary" not in stream.getvalue()
    assert "the server said: [secret]" in stream.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer c4naryc4nary",
        "{'X-Rucio-Auth-Token': 'c4nary-ddmlab-unknown-12ab'}",
        '{"X-Rucio-Password":"c4naryc4nary"}',
        "GET https://x/authn/token?access_token=c4naryc4nary&x=1",
        "password=c4naryc4nary",
        "token eyJc4nary0.eyJpc3MiOiJwb29s.c4nary-c4nary_",
    ],
)
def test_a_secret_in_its_usual_dress_is_taken_out(text):
    assert "c4nary" not in Redactor()(text)
    assert "[secret]" in Redactor()(text)


def test_ordinary_lines_stay_as_they_are():
    line = json.dumps({"event": "cycle", "changed": {"UK in file": "lofar:L1 came"}, "token_file": "x"})
    assert Redactor(["", "abc"])(line) == line
    assert "secret" not in Redactor()("there was no token for this pool; 3 tokens: none of them")


def test_more_can_be_done_to_a_line():
    assert (
        Redactor(more=lambda text: text.replace("secret:obs", "private:1"))("a secret:obs") == "a private:1"
    )
