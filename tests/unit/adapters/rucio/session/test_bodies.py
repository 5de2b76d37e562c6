"""Hostile answers through rucio-clients: they end, and take little memory."""

import gzip
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.rucio.responses import BadRow
from adapters.rucio.session.client import RucioConnection
from adapters.rucio.session.settings import RucioSettings
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from testbed.hostile import ENDLESS, Hostile, answer, gzip_bomb, rows_of, stream
from testbed.patience import wait_for

pytestmark = pytest.mark.outside

ROWS = "Content-Type: application/x-json-stream"
PACKED = "Content-Encoding: gzip"
LONGEST_SECONDS = 60.0
"""On a machine that does other things, too."""
PEAK_MB = 110
"""What one answer may add at its peak: the daemon has some 75 MB without."""


def connected(url, folder, **more):
    token = folder / "token"
    token.write_text("a-token")
    how = {
        "timeout": timedelta(seconds=60),
        "deadline": timedelta(seconds=60),
        "max_bytes": 1_000_000,
        **more,
    }
    return RucioConnection(
        RucioSettings("sick", url, "me", folder, auth_type="token", token_file=token, **how)
    )


def files(connection, seconds=60.0):
    """Read the rows of list_files as the adapter does."""
    with connection.start_poll(seconds):
        return connection.ask(lambda client: list(client.list_files("s", "n")))


def open_sockets() -> set[str]:
    """Return the names of this process's sockets; a closed one's name is not given again soon."""
    folder = Path("/proc/self/fd")
    targets = {str(each.readlink()) for each in folder.iterdir() if each.is_symlink()}
    return {target for target in targets if target.startswith("socket:")}


@pytest.mark.parametrize("way", ENDLESS)
def test_an_answer_without_end_ends_in_time_and_the_server_is_asked_again(tmp_path, way):
    with Hostile(ENDLESS[way]) as sick:
        short = timedelta(seconds=1)
        connection = connected(sick.url, tmp_path, timeout=short / 2, deadline=short)
        begun = time.monotonic()
        with pytest.raises(CatalogueError):
            files(connection, short.total_seconds())
        assert time.monotonic() - begun < LONGEST_SECONDS
        sick.answering = rows_of(b'{"name": "a"}\n')
        assert wait_for(lambda: answered(connection), 10, "an answer") == [{"name": "a"}]
        connection.close()


def answered(connection):
    try:
        return files(connection)
    except CatalogueUnreachable:  # too slow for the short limits
        return None


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (
            rows_of(b'{"name": "%s"}\n' % (b"a" * 999) * 1000),
            "larger than 1000000 bytes; the limit is max_answer_mb",
        ),
        (rows_of(b"{}\n" * 20_000), "more than 10000 values; the limit is max_answer_values"),
        (
            rows_of(gzip_bomb(10_000_000, b" " * 65_536), PACKED),
            "larger than 1000000 bytes",
        ),
        (rows_of(gzip.compress(b"{}"), f"{PACKED}, gzip"), "was not asked for: 'gzip, gzip'"),
        (rows_of(b'{"name": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"), "nested too deeply"),
        (answer(b"[" + b"{}," * 2000 + b"{}]"), "more than 2500 values; the limit is max_answer_values"),
    ],
)
def test_an_answer_beyond_a_bound_is_refused_with_the_name_of_its_setting(tmp_path, way, words):
    before = open_sockets()
    with Hostile(way) as sick:
        connection = connected(sick.url, tmp_path, max_values=10_000)
        with pytest.raises(CatalogueGarbled, match=words) as caught:
            files(connection, 20)
        connection.close()
    assert open_sockets() <= before, f"not closed while the error is kept: {caught.value}"


def test_the_connection_of_an_answer_that_its_reader_gave_up_is_closed(tmp_path):
    before = open_sockets()
    with Hostile(rows_of(b'{"name": "a"}\n' * 20_000)) as sick:
        connection = connected(sick.url, tmp_path, max_values=10**6)

        def refuse_first_row(client):
            rows = client.list_files("s", "n")
            raise BadRow(f"{next(rows)} is no file")

        with connection.start_poll(20), pytest.raises(CatalogueGarbled, match="is no file") as caught:
            connection.ask(refuse_first_row)
        connection.close()
    assert open_sockets() <= before, f"not closed while the error is kept: {caught.value}"


@pytest.mark.parametrize(
    "header",
    [
        "Retry-After: " + "9" * 400,
        "Retry-After: Fri, 31 Dec 99999999999 23:59:59 GMT",
        "Date: Fri, 31 Dec 9999 23:59:59 -2359",
        "Date: Mon, 01 Jan 0001 00:00:00 +2359",
        "X-Rucio-Auth-Token-Expires: Fri, 31 Dec 9999 23:59:59 -2359",
    ],
)
def test_an_impossible_time_is_an_error_of_the_catalogue_and_not_a_bug(tmp_path, header):
    head = f"HTTP/1.1 503 X\r\n{header}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with Hostile(lambda send: send(head.encode())) as sick:
        connection = connected(sick.url, tmp_path)
        with pytest.raises(CatalogueUnreachable):
            files(connection, 2)
        connection.close()


# made in the test: to compress 1 GB takes seconds
BOMBS = {
    "empty lists": lambda: stream(b"[]\n", 49_000_000, ROWS),
    "empty records": lambda: stream(b"{}\n", 49_000_000, ROWS),
    "one row": lambda: stream(b"{},", 49_000_000, ROWS),
    "a stream of 1 GB": lambda: stream(b'{"name": "L1", "scope": "s"}\n', 1_000_000_000, ROWS),
    "1 GB, packed": lambda: rows_of(gzip_bomb(1_000_000_000, b" " * 65_536), PACKED),
    "a document": lambda: stream(b"{},", 49_000_000),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_two_bombs_at_once_take_no_more_memory_than_the_bounds_promise(tmp_path, bomb):
    code = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from adapters.rucio.session.client import RucioConnection
from adapters.rucio.session.settings import RucioSettings
from hydrator.domain.errors import CatalogueError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
url, folder = sys.argv[1], Path(sys.argv[2])
(folder / "token").write_text("a-token")
settings = RucioSettings("sick", url, "me", folder, auth_type="token", token_file=folder / "token")
first = RucioConnection(settings)
def asked(connection):
    for call in (
        lambda client: sum(1 for _ in client.list_files("s", "n")),
        lambda client: sum(1 for _ in client.list_dataset_replicas_bulk([{"scope": "s", "name": "n"}])),
        lambda client: client.list_scopes(),
    ):
        try:
            yield str(connection.ask(call))[:100]
        except CatalogueError as error:
            yield error.reason
before = peak()
with first.start_poll(100), ThreadPoolExecutor(2) as pool:
    answers = list(pool.map(lambda each: list(asked(each)), (first, first.with_shared_deadline(1))))
print(peak() - before, answers)
"""
    with Hostile(BOMBS[bomb]()) as sick:
        said = subprocess.run(
            [sys.executable, "-c", code, sick.url, str(tmp_path)],
            capture_output=True, text=True, check=True, timeout=300,
        ).stdout  # fmt: skip
    assert float(said.split()[0]) < PEAK_MB, said
