"""The register of exchanged names: a file of ours alone, that a restart reads; and the keys."""

import os

import pytest

from hydrator.diagnostics.check.last_cycle import names_lost
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Did
from hydrator.privacy.pseudonym_store import UNNAMED_SECONDS, Register, read_key
from hydrator.privacy.pseudonyms import Privacy, Veil

KEY, OLD = b"k" * 16 + bytes(range(16)), b"o" * 16 + bytes(range(16))
SECRET, OTHER, OPEN = Did("embargo:L1"), Did("embargo:L2"), Did("lofar:L1")
VEIL = Veil(Privacy(("embargo:*",)), (KEY,))


def test_an_exchange_names_private_datasets_and_leaves_others():
    register = Register(VEIL)
    answer = register.exchange([SECRET, OPEN])
    assert answer == {SECRET: VEIL.opaque(SECRET), OPEN: OPEN}
    assert register.plain(answer[SECRET]) == SECRET
    assert register.plain(OPEN) is None


def test_a_restart_knows_what_was_exchanged(tmp_path):
    file = tmp_path / "names"
    name = Register(VEIL, file).exchange([SECRET])[SECRET]
    assert Register(VEIL, file).plain(name) == SECRET


def test_the_file_is_ours_alone_whatever_the_umask(tmp_path):
    file = tmp_path / "names"
    before = os.umask(0)
    try:
        Register(VEIL, file).exchange([SECRET])
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600


def test_asking_again_writes_nothing(tmp_path):
    file = tmp_path / "names"
    register = Register(VEIL, file)
    register.exchange([SECRET, OPEN])
    register.exchange([SECRET])
    Register(VEIL, file).exchange([SECRET])
    assert file.read_text() == "embargo:L1\n"


def test_after_a_torn_line_whole_ones_stand_and_new_ones_follow(tmp_path):
    file = tmp_path / "names"
    file.write_text("embargo:L1\nembar")
    register = Register(VEIL, file)
    assert register.plain(VEIL.opaque(SECRET)) == SECRET
    register.exchange([OTHER])
    assert Register(VEIL, file).plain(VEIL.opaque(OTHER)) == OTHER


def test_names_by_an_old_key_are_still_understood(tmp_path):
    file = tmp_path / "names"
    before = Register(Veil(VEIL.privacy, (OLD,)), file).exchange([SECRET])[SECRET]
    rotated = Register(Veil(VEIL.privacy, (KEY, OLD)), file)
    assert rotated.plain(before) == SECRET
    assert rotated.exchange([SECRET])[SECRET] != before
    assert Register(VEIL, file).plain(before) is None


def test_a_file_that_cannot_be_written_loses_no_answer(tmp_path):
    register = Register(VEIL, tmp_path / "absent" / "names")
    assert register.exchange([SECRET])[SECRET] == VEIL.opaque(SECRET)
    assert register.plain(VEIL.opaque(SECRET)) == SECRET
    assert "No such file" in register.trouble


# the bound


def dids(count: int, word: str = "guess") -> list[Did]:
    return [Did(f"embargo:{word}{number}") for number in range(count)]


def knows(register: Register, did: Did) -> bool:
    """Whether the name of *did* is known, asked so that it changes nothing."""
    return VEIL.opaque(did) in register._plain


def test_memory_and_file_are_bounded_and_that_is_said(tmp_path):
    file = tmp_path / "names"
    register = Register(VEIL, file, most=100)
    for did in dids(5000):
        register.exchange([did])
    assert len(register._plain) == 100
    assert len(file.read_text().splitlines()) <= 126
    assert len(register._kept) <= 100
    assert "more than 100 private datasets were named, so the oldest are forgotten" in register.trouble
    newest = dids(5000)[-1]
    assert Register(VEIL, file, most=100).plain(VEIL.opaque(newest)) == newest


def test_what_is_exchanged_beyond_the_bound_is_kept_all_the_same(tmp_path):
    """It once was answered and not written, and nobody was told."""
    file = tmp_path / "names"
    register = Register(VEIL, file, most=10)
    register.exchange(dids(10))
    register.exchange([SECRET])
    assert Register(VEIL, file, most=10).plain(VEIL.opaque(SECRET)) == SECRET


def test_guesses_forget_no_name_that_a_job_or_a_catalogue_has(tmp_path):
    file = tmp_path / "names"
    register = Register(VEIL, file, most=100)
    name = register.exchange([SECRET])[SECRET]
    register.plain(name)  # as a poll asks for what a job names
    register.learn([OTHER])
    for did in dids(5000):
        register.exchange([did])
    assert knows(register, SECRET)
    assert knows(register, OTHER)
    assert Register(VEIL, file, most=100).plain(name) == SECRET


def test_a_new_exchange_finds_room_though_jobs_and_catalogues_have_all_of_it():
    register = Register(VEIL, most=100)
    register.learn(dids(100))
    register.exchange([SECRET])
    assert knows(register, SECRET)
    assert len(register._plain) == 100


def test_what_nobody_names_for_a_day_is_forgotten_in_memory_and_file(tmp_path):
    file, now = tmp_path / "names", [0.0]
    register = Register(VEIL, file, most=10_000, seconds=lambda: now[0])
    register.exchange(dids(2000))
    register.plain(register.exchange([SECRET])[SECRET])
    now[0] += UNNAMED_SECONDS + 1
    register.exchange([OTHER])
    assert not knows(register, dids(1)[0])
    assert file.read_text().splitlines() == [OTHER, SECRET]
    assert register.trouble is None


def test_the_bound_ends_with_the_flood():
    now = [0.0]
    register = Register(VEIL, most=10, seconds=lambda: now[0])
    register.exchange(dids(50))
    assert register.trouble
    now[0] += UNNAMED_SECONDS + 1
    register.exchange([SECRET])
    assert register.trouble is None


def test_a_name_that_is_sought_is_learned_though_a_catalogue_lists_more_than_can_be_known():
    register = Register(VEIL, most=100)
    register.learn([SECRET, *dids(5000)], {VEIL.opaque(SECRET)})
    assert register.plain(VEIL.opaque(SECRET)) == SECRET
    assert len(register._plain) == 100


def test_a_file_that_is_larger_than_the_bound_is_read_from_its_end(tmp_path):
    file = tmp_path / "names"
    file.write_text("x" * 100_000 + "\n" + "".join(f"{did}\n" for did in [*dids(5000), SECRET]))
    register = Register(VEIL, file, most=100)
    assert register.plain(VEIL.opaque(SECRET)) == SECRET
    assert len(register._plain) <= 100
    register.exchange([OTHER])
    assert len(file.read_text().splitlines()) <= 101


def test_a_file_that_cannot_be_shortened_stays_whole_and_that_is_said(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    file = folder / "names"
    register = Register(VEIL, file, most=10)
    register.exchange(dids(10))
    file.rename(tmp_path / "moved")
    folder.rmdir()
    for did in dids(20, "more"):
        assert register.exchange([did])[did] == VEIL.opaque(did)
    assert "No such file" in register.trouble
    assert len((tmp_path / "moved").read_text().splitlines()) == 10


def test_a_reload_takes_over_what_was_exchanged_and_what_jobs_have():
    before, after = Register(VEIL, most=10), Register(VEIL, most=10)
    before.learn([SECRET])
    before.exchange([OTHER])
    after.learn_from(before)
    assert knows(after, SECRET)
    assert knows(after, OTHER)
    after.exchange(dids(50))
    assert knows(after, SECRET)


def test_what_the_daemon_says_of_lost_names_is_a_finding():
    assert list(names_lost(None)) == []
    (finding,) = names_lost("disk full")
    assert (finding.subject, "disk full" in finding.seen) == ("private", True)


# the keys


@pytest.fixture
def key_file(tmp_path):
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_bytes(KEY + b"\n")
    return file


def refusal(file) -> str:
    with pytest.raises(ConfigError) as caught:
        read_key(file, "private.key_file")
    (problem,) = caught.value.problems
    return problem


def test_a_key_is_read_without_its_end_of_line(key_file):
    assert read_key(key_file, "private.key_file") == KEY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644])
def test_a_key_that_others_may_read_or_write_is_refused(key_file, mode):
    key_file.chmod(mode)
    assert (
        refusal(key_file) == f"private.key_file {key_file}: others may read or write it; chmod 600 {key_file}"
    )


@pytest.mark.parametrize(("content", "said"), [(b"short", "has 5 bytes"), (b"a" * 64, "is no random key")])
def test_a_key_that_could_be_guessed_is_refused_without_showing_it(key_file, content, said):
    key_file.write_bytes(content)
    assert said in refusal(key_file)
    assert content.decode() not in refusal(key_file)
    assert "/dev/urandom" in refusal(key_file)


def test_a_key_that_is_not_there_is_refused(tmp_path):
    assert "No such file" in refusal(tmp_path / "absent")


def test_a_reload_forgets_no_name_that_was_exchanged_while_it_went_on(tmp_path):
    veil = Veil(Privacy(("embargo:*",)), (b"k" * 32,))
    old, fresh = Register(veil, tmp_path / "names"), Register(veil, tmp_path / "names")
    did = Did("embargo:1")
    (name,) = old.exchange([did]).values()
    assert fresh.plain(name) is None
    fresh.learn_from(old)
    assert fresh.plain(name) == did
