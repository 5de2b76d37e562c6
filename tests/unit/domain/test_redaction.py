"""Redaction: logs show no secret, neither plain, nor encoded, nor as a variable of a traceback."""

import base64
import io
import json
import logging
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.errors import CatalogueUnreachable, PoolError, PublishError
from hydrator.domain.redaction import (
    MAX_REASON_CHARS,
    SECRET_PLACEHOLDER,
    SECRETS,
    Secrets,
    escape_unprintable,
    read_secret,
    redact,
    sanitize,
)

SECRET = 'canary"\\7/secret'


def fails_with(secret):
    password = secret
    settings = {"password": password}
    raise RuntimeError(f"a bug with {len(settings)} setting")


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_shows_no_values_of_variables(logged, style):
    log = logged(stream := io.StringIO(), style=style)
    try:
        fails_with("canary-in-a-variable")
    except RuntimeError:
        log.exception("cycle failed: this is a bug")
    assert "fails_with" in stream.getvalue()
    assert "canary" not in stream.getvalue().replace('"canary-in-a-variable")', "")  # the line of source


@pytest.mark.parametrize("style", ["json", "console"])
def test_known_secret_is_removed_in_every_encoding(logged, style):
    SECRETS.keep(SECRET)
    log = logged(stream := io.StringIO(), style=style)
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
        "/etc/token: bearer c4naryc4nary",
        "https://x/token: c4naryc4nary",
        "/authn token: c4naryc4nary",
        "token eyJc4nary0.eyJpc3MiOiJwb29s.c4nary-c4nary_",
    ],
)
def test_a_secret_in_its_usual_dress_is_taken_out(text):
    assert "c4nary" not in redact(text)
    assert "[secret]" in redact(text)


def test_ordinary_lines_stay_as_they_are():
    line = json.dumps({"event": "cycle", "changed": {"UK in file": "lofar:L1 came"}, "token_file": "x"})
    assert redact(line) == line
    for name in ("token", "rucio-password", "a.b/token"):
        line = json.dumps({"why": f"/etc/{name}: Permission denied", "other": f"in /etc/{name}: it is empty"})
        assert redact(line) == line
    assert "secret" not in redact("there was no token for this pool; 3 tokens: none of them")


# what servers echo

LONG = "c4nary/Zq+8 %&'\"<ü>-0123456789-abcdefghij-ABCDEFGHIJ"
ECHOES = {
    "as it is": str,
    "in JSON": json.dumps,
    "in JSON with its own letters": lambda text: json.dumps(text, ensure_ascii=False),
    "in JSON of others": lambda text: json.dumps(text).replace("/", "\\/"),
    "in Python": repr,
    "in a URL": lambda text: quote(text, safe=""),
    "in a URL's path": quote,
    "in a form": quote_plus,
    "in a form in small letters": lambda text: re.sub("%..", lambda code: code[0].lower(), quote_plus(text)),
    "in base64": lambda text: base64.b64encode(text.encode()).decode(),
    "in base64 for URLs": lambda text: base64.urlsafe_b64encode(f"u:{text}!".encode()).decode(),
}


def pieces(text, size=8):
    """Stretches of *text*, of which none may be shown."""
    return [text[at : at + size] for at in range(4, len(text) - size - 4)]


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_a_secret_is_hidden_however_a_server_echoes_it(echo):
    secrets = Secrets()
    secrets.keep(LONG)
    said = echo(LONG)
    hidden = secrets.hide(f"login failed for {said} at noon")
    assert [piece for piece in pieces(said) if piece in hidden] == []
    assert hidden.startswith("login failed for ")
    assert hidden.endswith(" at noon")


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=16, max_size=60),
    st.binary(max_size=5),
)
def test_secret_within_base64_is_hidden_at_every_offset(secret, before):
    secrets = Secrets()
    secrets.keep(secret)
    coded = base64.b64encode(before + secret.encode() + b"end").decode()
    hidden = secrets.hide(f"({coded})")
    assert [piece for piece in pieces(coded[len(before) * 4 // 3 + 4 : -8], 10) if piece in hidden] == []


@pytest.mark.parametrize("size", [380, 390, 395, 399])
def test_a_secret_is_hidden_before_a_text_is_cut(size):
    SECRETS.keep("c4nary-0123456789-0123456789")
    assert "c4n" not in sanitize("x" * size + " c4nary-0123456789-0123456789", 400)
    assert "c4n" not in sanitize(" " * 99_990 + "c4nary-0123456789-0123456789")


PART = "456789abcdef0123456789"


@pytest.mark.parametrize(
    "shown",
    [PART, f"...{PART}", f"tail={PART}", f"token/{PART}", f"x_{PART}", f"{PART}~", f"a={PART}=b", f"x{PART}"],
)
def test_part_of_a_secret_is_hidden_but_no_ordinary_word(shown):
    """Case R8, and its kind: a server may write anything beside a part."""
    SECRETS.keep("hydrator-root-0123456789abcdef0123456789abcdef")
    text = sanitize(f"token ending in {shown} is not that of hydrator-root-of-a-pool or ...abcdef")
    assert re.fullmatch(
        r"token ending in \S*\[secret\] is not that of hydrator-root-of-a-pool or ...abcdef", text
    )


def test_short_secrets_are_hidden_only_as_separate_words():
    secrets = Secrets()
    secrets.keep("pass1", "abc")
    assert (
        secrets.hide("pass1: abc, my_pass1x, (pass1)")
        == f"{SECRET_PLACEHOLDER}: abc, my_pass1x, ({SECRET_PLACEHOLDER})"
    )


def test_redactor_keeps_the_newest_secrets_and_forgets_the_oldest():
    secrets = Secrets()
    tokens = [f"c4nary-{number:04}-{number * 7919:012}" for number in range(150)]
    for token in tokens:
        secrets.keep(tokens[0], token)
    assert secrets.hide(tokens[0]) == secrets.hide(tokens[-1]) == SECRET_PLACEHOLDER
    assert secrets.hide("x c4nary-0001-") == "x c4nary-0001-"


@pytest.mark.parametrize("error", [CatalogueUnreachable, PoolError, PublishError])
def test_every_error_of_an_external_part_hides_secrets_and_has_one_line(error):
    SECRETS.keep("c4nary-0123456789")
    raised = error("rucio", "no: c4nary-0123456789\x1b[2J\n\u202eevil \ud800" + "x" * 5000)
    for text in (str(raised), raised.reason):
        assert "c4nary" not in text
        assert text.isprintable()
    assert len(raised.reason) < MAX_REASON_CHARS * 2
    assert raised.reason.startswith(f"no: {SECRET_PLACEHOLDER}\\x1b[2J \\u202eevil \\ud800xxx")


@pytest.mark.parametrize("text", ["two\nlines-of-it", "a\r\nb-token-xyz", "tab\tin-it-too", "nul\0in-it-too"])
def test_secret_with_a_line_break_is_rejected_and_still_hidden(text):
    with pytest.raises(ValueError, match="one line"):
        read_secret(f"{text}\n")
    assert text.split()[-1] not in sanitize(f"he said {text}")


def test_a_secret_loses_the_space_around_it():
    assert read_secret("\n c4nary-0123456789 \r\n") == "c4nary-0123456789"


@given(st.text(max_size=50))
def test_unprintable_characters_are_escaped(text):
    assert escape_unprintable(text).isprintable()
    escape_unprintable(text).encode()
