"""Transport: coalesced reads of long answers."""

import io

import pytest

from adapters.rucio.session.transport import CoalescingReader


class Dripping(io.RawIOBase):
    """A stream with *there* bytes to read now, and more after each wait."""

    def __init__(self, content: bytes, each: int) -> None:
        self.content, self.each = content, each
        self.there = each
        self.looks = self.waits = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into) -> int:
        self.looks += 1
        self.there = max(self.there, self.each)  # who looks waits for a row
        found = self.content[: min(self.there, len(into))]
        into[: len(found)] = found
        self.content, self.there = self.content[len(found) :], self.there - len(found)
        return len(found)

    def ready(self) -> bool:
        return self.there > 0 or not self.content

    def wait(self) -> None:
        self.waits += 1
        self.there += 50 * self.each


def gulped(source: Dripping) -> io.BufferedReader:
    return io.BufferedReader(CoalescingReader(source, source.ready, source.wait), 1 << 18)


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_coalesced_reads_return_exactly_the_sent_bytes(rows):
    content = b"".join(b"row %d\n" % n for n in range(rows))
    assert gulped(Dripping(content, 5)).read() == content


def test_a_long_answer_is_read_in_fewer_reads_than_it_has_rows():
    source = Dripping(b"0123456789" * 1000, 10)
    assert len(gulped(source).read()) == 10_000
    assert source.looks < 50


@pytest.mark.parametrize(("rows", "there"), [(3, 10), (100_000, 1_000_000)])
def test_a_short_answer_and_available_data_are_read_without_waiting(rows, there):
    source = Dripping(b"0123456789" * rows, 10)
    source.there = there
    gulped(source).read()
    assert source.waits == 0


def test_closing_closes_what_is_read():
    source = Dripping(b"0123456789", 10)
    gulped(source).close()
    assert source.closed
