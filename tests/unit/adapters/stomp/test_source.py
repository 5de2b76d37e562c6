"""STOMP: frames in any pieces, and a source that reconnects after any fault of the broker."""

import contextlib
import random
import socket
import ssl
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from adapters.stomp.frames import MAX_HEAD_BYTES, Frame, FrameParser, NotStomp, encode_frame
from adapters.stomp.source import StompSettings, StompSource, build_tls_context
from hydrator.domain.errors import ConfigError, EventsError
from testbed.patience import wait_for
from testbed.stomp import FakeBroker

MOST = 100
values = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=20)
names = values.filter(bool)
bodies = st.binary(max_size=MOST)


def cut(data: bytes, seed: int) -> list[bytes]:
    dice, pieces = random.Random(seed), []
    while data:
        size = dice.randint(1, 40)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def fed(data: bytes, seed: int = 0) -> list[Frame]:
    frames = FrameParser(MOST)
    return [frame for piece in cut(data, seed) for frame in frames.feed(piece)]


# frames


@given(st.lists(st.tuples(st.dictionaries(names, values, max_size=3), bodies), max_size=4), st.integers())
def test_frames_are_parsed_unchanged_from_any_pieces(sent, seed):
    made = [Frame("MESSAGE", {**headers, "content-length": str(len(body))}, body) for headers, body in sent]
    assert fed(b"\n\r\n".join(map(encode_frame, made)) + b"\n", seed) == made


@given(bodies.filter(lambda body: b"\0" not in body), st.integers())
def test_a_body_without_its_size_ends_at_the_nul(body, seed):
    assert fed(encode_frame(Frame("MESSAGE", {}, body)), seed) == [Frame("MESSAGE", {}, body)]


@given(st.integers(MOST + 1, 50 * MOST), st.booleans(), st.integers())
def test_a_frame_with_too_large_a_body_is_skipped(size, whole, seed):
    headers = {"content-length": str(size)} if whole else {}
    large, small = Frame("MESSAGE", headers, b"x" * size), Frame("MESSAGE", {}, b"small")
    frames = FrameParser(MOST)
    got = []
    for piece in cut(encode_frame(large) + encode_frame(small), seed):
        got += frames.feed(piece)
        assert len(frames._buffer) <= 2 * MOST
    assert got == [replace(large, body=None), small]


@given(st.binary(max_size=400), st.integers())
def test_any_bytes_are_a_frame_or_refused(data, seed):
    with contextlib.suppress(NotStomp):
        assert all(isinstance(frame, Frame) for frame in fed(data, seed))


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"MESSAGE\nno colon\n\n\0",
        b"MESSAGE\na:\\x\n\n\0",
        b"MESSAGE\na:\\\n\n\0",
        b"MESSAGE\ncontent-length:-1\n\n\0",
        b"MESSAGE\ncontent-length:1\n\nab\0",
        b"MESSAGE\na:\xff\n\n\0",
        b"x" * MAX_HEAD_BYTES,
    ],
)
def test_data_that_is_not_a_frame_is_refused(data):
    with pytest.raises(NotStomp):
        fed(data)


def test_the_first_of_repeated_headers_counts_without_carriage_return():
    assert fed(b"MESSAGE\r\na:1\r\na:2\r\n\r\n\0") == [Frame("MESSAGE", {"a": "1"})]


def test_a_login_with_a_line_break_is_never_sent():
    with pytest.raises(ValueError, match="passcode has more than one line"):
        encode_frame(Frame("CONNECT", {"passcode": "a\nb"}))


# the listener


class Ears:
    """An event handler that records its calls."""

    def __init__(self) -> None:
        self.bodies: list[bytes | None] = []
        self.states: list[str] = []

    def on_event(self, source, body) -> None:
        assert source == "rucio"
        self.bodies.append(body)

    def on_connect(self, source) -> None:
        self.states.append("connected")

    def on_disconnect(self, source, reason) -> None:
        self.states.append(reason)

    def up(self, times: int = 1):
        return wait_for(lambda: self.states.count("connected") >= times, 60, f"connection {times}")


@pytest.fixture
def broker():
    with FakeBroker() as made:
        yield made


@pytest.fixture
def listen(broker):
    started = []

    def begin(**changes) -> Ears:
        beat = timedelta(seconds=changes.pop("beat", 30))
        settings = StompSettings("rucio", "127.0.0.1", broker.port, "/topic/rucio", tls=False, heartbeat=beat)
        ears = Ears()
        started.append(StompSource(replace(settings, **changes), ears))
        started[-1].start()
        return ears

    yield begin
    for source in started:
        source.stop()


@pytest.mark.outside
def test_events_reach_the_handler_unchanged(broker, listen, tmp_path):
    (tmp_path / "secret").write_text("geheim\n")
    ears = listen(username="hydrator", password_file=tmp_path / "secret", virtual_host="/")
    ears.up()
    broker.send(b'{"a": "\0"}')
    broker.send(b"plain", whole=False)
    broker.send(b"x" * 200_000)
    broker.send(b"last")
    wait_for(lambda: len(ears.bodies) == 4, 60, "four events")
    assert ears.bodies == [b'{"a": "\0"}', b"plain", None, b"last"]
    (login,) = broker.logins
    assert (login["login"], login["passcode"], login["host"]) == ("hydrator", "geheim", "/")
    assert broker.subscriptions[0]["destination"] == "/topic/rucio"


@pytest.mark.outside
def test_the_source_reconnects_and_reads_the_password_again(broker, listen, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("one")
    ears = listen(username="hydrator", password_file=secret)
    ears.up()
    secret.write_text("two")
    broker.drop()
    ears.up(2)
    broker.send(b"after")
    wait_for(lambda: ears.bodies == [b"after"], 60, "an event")
    assert [login["passcode"] for login in broker.logins] == ["one", "two"]
    assert ears.states[0] == ears.states[-1] == "connected"
    assert len(ears.states) >= 3


@pytest.mark.outside
@pytest.mark.parametrize(
    "nonsense", [b"HTTP/1.1 200 OK\r\n\r\n", encode_frame(Frame("ERROR", {"message": "no such queue"}))]
)
def test_an_invalid_frame_or_error_ends_only_its_connection(broker, listen, nonsense):
    ears = listen()
    ears.up()
    broker.raw(nonsense)
    ears.up(2)
    assert ears.states[1] in {"the data is not a STOMP frame", "the broker sent an error: no such queue"}


@pytest.mark.outside
def test_a_broker_that_stops_its_heartbeats_counts_as_lost(broker, listen):
    broker.beats = "100,0"
    ears = listen(beat=0.1)
    ears.up(2)
    assert ears.states[1].startswith("the broker sent no heartbeat")


@pytest.mark.outside
def test_heartbeats_keep_an_idle_connection(broker, listen):
    broker.beats = "0,100"
    ears = listen(beat=0.1)
    ears.up()
    before = broker.heard
    wait_for(lambda: broker.heard >= before + 3, 60, "signs of life")
    assert ears.states == ["connected"]


@pytest.mark.outside
@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ({"refuses": "Bad CONNECT\nAccess refused"}, "the broker sent an error: Bad CONNECT Access refused"),
        ({"mute": True}, "the broker sent no CONNECTED within"),
        ({"beats": "soon"}, "the broker's heart-beat header is not two numbers"),
    ],
)
def test_a_broker_that_refuses_the_login_is_reported_and_tried_again(broker, listen, trouble, why):
    for name, value in trouble.items():
        setattr(broker, name, value)
    ears = listen(timeout=timedelta(seconds=1 if "mute" in trouble else 60))
    wait_for(lambda: len(ears.states) >= 2, 60, "two failures")
    assert all(state.startswith(why) for state in ears.states)
    broker.refuses, broker.mute, broker.beats = "", False, "0,0"
    ears.up()


@pytest.mark.outside
def test_a_missing_broker_or_password_file_is_reported(broker, listen, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gone = listen(port=port)
    unread = listen(username="hydrator", password_file=tmp_path / "nowhere")
    wait_for(lambda: gone.states and unread.states, 60, "two failures")
    assert "refused" in gone.states[0]
    assert "nowhere cannot be read" in unread.states[0]
    assert not broker.logins


@pytest.mark.outside
def test_the_source_stops_soon_while_the_broker_is_silent(broker):
    broker.mute = True
    ears = Ears()
    settings = StompSettings("rucio", "127.0.0.1", broker.port, "/topic/rucio", tls=False)
    source = StompSource(settings, ears)
    source.start()
    wait_for(lambda: broker.heard, 60, "a login")
    source.stop(timedelta(seconds=60))
    assert not [one for one in threading.enumerate() if one.name == "events-rucio"]
    assert ears.states == []


@pytest.mark.outside
def test_the_source_checks_the_certificate_of_the_broker(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    settings = StompSettings("rucio", "127.0.0.1", 0, "/topic/rucio", timeout=timedelta(seconds=10))
    for trusted, expected in (
        (tmp_path / "ca.pem", "the broker closed the connection"),
        (None, "certificate verify failed"),
    ):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            authority.issue_cert("127.0.0.1").configure_cert(context)

            def once(listening=listening, context=context) -> None:
                client, _ = listening.accept()
                with (
                    client,
                    contextlib.suppress(OSError),
                    context.wrap_socket(client, server_side=True) as safe,
                ):
                    safe.recv(4096)  # with unread data, the end would be a reset

            server = threading.Thread(target=once)
            server.start()
            ears = Ears()
            port = listening.getsockname()[1]
            source = StompSource(replace(settings, port=port, ca_cert=trusted), ears)
            source.start()
            wait_for(lambda ears=ears: ears.states, 60, "a failure")
            server.join()
            source.stop()
            assert expected in ears.states[0]


def test_an_invalid_certificate_is_a_one_line_error(tmp_path):
    (tmp_path / "ca.pem").write_text("none")
    settings = StompSettings("rucio", "127.0.0.1", 1, "/topic/rucio", ca_cert=tmp_path / "ca.pem")
    with pytest.raises(ConfigError, match=r"events\.stomp rucio: cannot load its certificates"):
        build_tls_context(settings)


# trying it, as hydrator check does


def a_source(port: int, destination: str = "/topic/rucio", **changes) -> StompSource:
    settings = StompSettings("rucio", "127.0.0.1", port, destination, tls=False)
    return StompSource(replace(settings, **changes), Ears())


@pytest.mark.outside
def test_a_broker_is_tried_once_and_left(broker, tmp_path):
    (tmp_path / "secret").write_text("geheim")
    source = a_source(broker.port, username="hydrator", password_file=tmp_path / "secret")
    assert source.test_connection() == "accepts the login and the subscription to /topic/rucio"
    assert [login["login"] for login in broker.logins] == ["hydrator"]
    assert len(broker.subscriptions) == 1


@pytest.mark.outside
def test_a_connection_test_takes_no_event_from_a_queue(broker):
    assert a_source(broker.port, "/queue/rucio").test_connection() == "accepts the login"
    assert broker.subscriptions == []


@pytest.mark.outside
def test_a_connection_test_reports_why_it_failed(broker, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EventsError, match=r"events of rucio: .*refused"):
        a_source(port).test_connection()
    with pytest.raises(EventsError, match="nowhere cannot be read"):
        a_source(broker.port, username="hydrator", password_file=tmp_path / "nowhere").test_connection()
    broker.refuses = "Bad CONNECT"
    with pytest.raises(EventsError, match="the broker sent an error: Bad CONNECT"):
        a_source(broker.port).test_connection()
    broker.refuses, broker.mute = "", True
    with pytest.raises(EventsError, match="the broker sent no CONNECTED"):
        a_source(broker.port, timeout=timedelta(seconds=1)).test_connection()
