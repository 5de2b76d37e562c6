"""Whatever a server sends, in whatever HTTP, the startd gets nothing, or our attributes with literals."""

import gzip
import socket
import threading
from collections.abc import Iterator

import classad2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hydrator import startd_cron as hook
from tests.properties.test_startd_cron import NOW, OURS, POISON, ads

SITE = "UK"


class Hostile:
    """A server on loopback that sends to each client just the bytes it was told, and hangs up."""

    def __init__(self) -> None:
        self.bytes = b""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = hook.Url(f"http://127.0.0.1:{self._listening.getsockname()[1]}")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                try:
                    client.recv(65536)
                    client.sendall(self.bytes)
                except OSError:
                    continue

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(120)


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    made = Hostile()
    yield made
    made.close()


def asked(server: Hostile, kept: hook.CachedAd | None = None) -> str:
    """What the hook would print of the server's answer; nothing where it refuses. Anything else is a bug."""
    configured = hook.HookSettings(["--url", server.url.text, "--site", SITE], {})
    try:
        answer = hook.ask_daemon(configured, SITE, NOW, kept)
    except hook.HookError:
        return ""
    assert hook.is_printable(answer.etag)
    assert len(answer.etag) < 200
    return hook.locality_block(answer.ad, is_update=True).decode()


def response(body: bytes, status: bytes = b"200 OK", **fields: bytes) -> bytes:
    named = {"ETag": b'"7"', "X-DataLocality-AsOf": str(NOW).encode(), **fields}
    if not {"Content_Length", "Transfer_Encoding"} & named.keys():
        named["Content_Length"] = str(len(body)).encode()
    head = b"".join(
        name.replace("_", "-").encode() + b": " + value + b"\r\n" for name, value in named.items()
    )
    return b"HTTP/1.1 " + status + b"\r\n" + head + b"\r\n" + body


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x;note\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@st.composite
def honest(draw: st.DrawFn) -> bytes:
    """A whole answer as the daemon, or a proxy before it, may send it."""
    body = hook.ad_text({**draw(ads()), "DataLocalitySite": SITE}).encode()
    way = draw(st.sampled_from(["plain", "gzip", "chunked", "until the end"]))
    if way == "gzip":
        return response(gzip.compress(body), Content_Encoding=b"gzip")
    if way == "chunked":
        return response(chunked(body, draw(st.integers(1, 500))), Transfer_Encoding=b"chunked")
    if way == "until the end":
        return response(body).replace(b"Content-Length: %d\r\n" % len(body), b"")
    return response(body)


usual = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


@pytest.mark.outside
@usual
@given(answer=honest())
def test_an_honest_answer_is_printed_and_htcondor_reads_literals(server, answer):
    server.bytes = answer
    out = asked(server)
    assert OURS.fullmatch(out)
    assert literals(out)


def literals(out: str) -> bool:
    """Whether HTCondor's own parser finds values in *out* that name no attribute and call no function."""
    ad = classad2.ClassAd()
    for line in out.split("\n")[1:-2]:
        name, _, text = line.partition(" = ")
        tree = classad2.ExprTree(text)
        ad[name] = tree
        assert {*ad.externalRefs(tree), *ad.internalRefs(tree)} <= {""}, line
        assert not isinstance(ad.eval(name), classad2.Value), line
    return True


HOSTILE_HEADS = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 304 Not Modified\r\n",
        b"HTTP/1.1 301 Moved\r\nLocation: file:///etc/passwd\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Content-Length: -1\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Content-Encoding: gzip\r\n",
        b"Content-Encoding: br\r\n",
        b"ETag: \x00\r\n",
        b'ETag: "' + b"x" * 70000 + b'"\r\n',
        b"X-DataLocality-AsOf: 99999999999999\r\n",
        b"X-DataLocality-AsOf: nan\r\n",
        b"ffffffff\r\n",
        b"\r\n",
        b"\n",
        b"\x00",
        b"- locality\n",
    ]
)


@pytest.mark.outside
@settings(usual, max_examples=150)
@given(answer=honest(), data=st.data())
def test_no_damage_to_an_answer_passes(server, answer, data):
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(answer)))
        drop = data.draw(st.integers(0, 40))
        answer = answer[:at] + data.draw(HOSTILE_HEADS | POISON | st.binary(max_size=8)) + answer[at + drop :]
    server.bytes = answer
    out = asked(server)
    assert not out or OURS.fullmatch(out)
    assert not out or literals(out)


@pytest.mark.outside
@usual
@given(ad=ads(), data=st.data())
def test_a_304_gives_back_what_was_kept_and_no_more(server, ad, data):
    kept = hook.CachedAd('"7"', {**ad, "DataLocalitySite": SITE})
    fields = data.draw(
        st.dictionaries(st.sampled_from(["ETag", "X-DataLocality-AsOf", "X"]), st.binary(max_size=9))
    )
    cleaned = {name: value.replace(b"\n", b"").replace(b"\r", b"") for name, value in fields.items()}
    server.bytes = response(b"START = true\n", b"304 Not Modified", **cleaned)
    out = asked(server, kept)
    assert not out or OURS.fullmatch(out)
    assert "START" not in out


@pytest.mark.outside
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (response(b"[" * 500_000 + b"\n"), "is not an attribute"),
        (response(b"DatasetStates = " + b"['a:1'=" * 9000 + b"]" * 9000 + b"\n"), "bytes, 65000 are allowed"),
        (response(b"DatasetStates = " + b"['a:1'=" * 900 + b"]" * 900 + b"\n"), "in DatasetStates"),
        (response(gzip.compress(b"\0" * (1 << 27)), Content_Encoding=b"gzip"), "over 1048576 bytes"),
        (
            response(gzip.compress(gzip.compress(b"x" * 9)), Content_Encoding=b"gzip, gzip"),
            "which is not gzip",
        ),
        (response(b"x" * (2 << 20), Content_Length=b"2097152"), "1048576 are allowed"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300 + b"\r\n", "over 200 header fields"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000, "does not answer in HTTP"),
        (response(b"", b"302 Found", Location=b"file:///etc/condor/tokens.d/token"), "redirects"),
        (response(b"", b"307 Away", Location=b"http://169.254.169.254/latest"), "redirects"),
        (response(b"ffffffff\r\nx", Transfer_Encoding=b"chunked"), "are allowed"),
        (response(b"-1\r\nx", Transfer_Encoding=b"chunked"), "chunks without a length"),
    ],
)
def test_an_attack_is_one_sentence_and_prints_nothing(server, answer, told):
    server.bytes = answer
    configured = hook.HookSettings(["--url", server.url.text, "--site", SITE], {})
    with pytest.raises(hook.HookError, match=told):
        hook.ask_daemon(configured, SITE, NOW, None)
