"""The register of exchanged names: a file of ours alone, that a restart reads; and the keys."""

import pytest

from hydrator.diagnostics.check.last_cycle import check_private_names
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Did
from hydrator.privacy.pseudonym_store import UNCONFIRMED_SECONDS, PseudonymStore, read_key
from hydrator.privacy.pseudonyms import Privacy, Pseudonymizer
from tests.umask import umask

KEY, OLD = b"k" * 16 + bytes(range(16)), b"o" * 16 + bytes(range(16))
SECRET, OTHER, OPEN = Did("embargo:L1"), Did("embargo:L2"), Did("lofar:L1")
VEIL = Pseudonymizer(Privacy(("embargo:*",)), (KEY,))


def test_an_exchange_names_private_datasets_and_leaves_others():
    register = PseudonymStore(VEIL)
    answer = register.exchange([SECRET, OPEN])
    assert answer == {SECRET: VEIL.pseudonym(SECRET), OPEN: OPEN}
    assert register.resolve(answer[SECRET]) == SECRET
    assert register.resolve(OPEN) is None


def test_a_restart_knows_what_was_exchanged(tmp_path):
    file = tmp_path / "names"
    name = PseudonymStore(VEIL, file).exchange([SECRET])[SECRET]
    assert PseudonymStore(VEIL, file).resolve(name) == SECRET


def test_the_file_is_ours_alone_whatever_the_umask(tmp_path):
    file = tmp_path / "names"
    with umask(0):
        PseudonymStore(VEIL, file).exchange([SECRET])
    assert file.stat().st_mode & 0o777 == 0o600


def test_asking_again_writes_nothing(tmp_path):
    file = tmp_path / "names"
    register = PseudonymStore(VEIL, file)
    register.exchange([SECRET, OPEN])
    register.exchange([SECRET])
    PseudonymStore(VEIL, file).exchange([SECRET])
    assert file.read_text() == "embargo:L1\n"


def test_after_a_torn_line_whole_ones_stand_and_new_ones_follow(tmp_path):
    file = tmp_path / "names"
    file.write_text("embargo:L1\nembar")
    register = PseudonymStore(VEIL, file)
    assert register.resolve(VEIL.pseudonym(SECRET)) == SECRET
    register.exchange([OTHER])
    assert PseudonymStore(VEIL, file).resolve(VEIL.pseudonym(OTHER)) == OTHER


def test_names_by_an_old_key_are_still_understood(tmp_path):
    file = tmp_path / "names"
    before = PseudonymStore(Pseudonymizer(VEIL.privacy, (OLD,)), file).exchange([SECRET])[SECRET]
    rotated = PseudonymStore(Pseudonymizer(VEIL.privacy, (KEY, OLD)), file)
    assert rotated.resolve(before) == SECRET
    assert rotated.exchange([SECRET])[SECRET] != before
    assert PseudonymStore(VEIL, file).resolve(before) is None


def test_a_file_that_cannot_be_written_loses_no_answer(tmp_path):
    register = PseudonymStore(VEIL, tmp_path / "absent" / "names")
    assert register.exchange([SECRET])[SECRET] == VEIL.pseudonym(SECRET)
    assert register.resolve(VEIL.pseudonym(SECRET)) == SECRET
    assert "No such file" in register.problem


# the bound


def dids(count: int, word: str = "guess") -> list[Did]:
    return [Did(f"embargo:{word}{number}") for number in range(count)]


def knows(register: PseudonymStore, did: Did) -> bool:
    """Whether the name of *did* is known, asked so that it changes nothing."""
    return VEIL.pseudonym(did) in register._did_by_pseudonym


def test_memory_and_file_are_bounded_and_that_is_said(tmp_path):
    file = tmp_path / "names"
    register = PseudonymStore(VEIL, file, max_dids=100)
    for did in dids(5000):
        register.exchange([did])
    assert len(register._did_by_pseudonym) == 100
    assert len(file.read_text().splitlines()) <= 126
    assert len(register._stored_dids) <= 100
    assert "there are more than 100 private datasets, so the daemon forgets the oldest" in register.problem
    newest = dids(5000)[-1]
    assert PseudonymStore(VEIL, file, max_dids=100).resolve(VEIL.pseudonym(newest)) == newest


def test_what_is_exchanged_beyond_the_bound_is_kept_all_the_same(tmp_path):
    """It once was answered and not written, and nobody was told."""
    file = tmp_path / "names"
    register = PseudonymStore(VEIL, file, max_dids=10)
    register.exchange(dids(10))
    register.exchange([SECRET])
    assert PseudonymStore(VEIL, file, max_dids=10).resolve(VEIL.pseudonym(SECRET)) == SECRET


def test_guesses_forget_no_name_that_a_job_or_a_catalogue_has(tmp_path):
    file = tmp_path / "names"
    register = PseudonymStore(VEIL, file, max_dids=100)
    name = register.exchange([SECRET])[SECRET]
    register.resolve(name)  # as a poll asks for what a job names
    register.learn([OTHER])
    for did in dids(5000):
        register.exchange([did])
    assert knows(register, SECRET)
    assert knows(register, OTHER)
    assert PseudonymStore(VEIL, file, max_dids=100).resolve(name) == SECRET


def test_a_new_exchange_finds_room_though_jobs_and_catalogues_have_all_of_it():
    register = PseudonymStore(VEIL, max_dids=100)
    register.learn(dids(100))
    register.exchange([SECRET])
    assert knows(register, SECRET)
    assert len(register._did_by_pseudonym) == 100


def test_what_nobody_names_for_a_day_is_forgotten_in_memory_and_file(tmp_path):
    file, now = tmp_path / "names", [0.0]
    register = PseudonymStore(VEIL, file, max_dids=10_000, monotonic_seconds=lambda: now[0])
    register.exchange(dids(2000))
    register.resolve(register.exchange([SECRET])[SECRET])
    now[0] += UNCONFIRMED_SECONDS + 1
    register.exchange([OTHER])
    assert not knows(register, dids(1)[0])
    assert file.read_text().splitlines() == [OTHER, SECRET]
    assert register.problem is None


def test_the_bound_ends_with_the_flood():
    now = [0.0]
    register = PseudonymStore(VEIL, max_dids=10, monotonic_seconds=lambda: now[0])
    register.exchange(dids(50))
    assert register.problem
    now[0] += UNCONFIRMED_SECONDS + 1
    register.exchange([SECRET])
    assert register.problem is None


def test_sought_name_is_learned_from_a_catalogue_with_more_names_than_the_limit():
    register = PseudonymStore(VEIL, max_dids=100)
    register.learn([SECRET, *dids(5000)], {VEIL.pseudonym(SECRET)})
    assert register.resolve(VEIL.pseudonym(SECRET)) == SECRET
    assert len(register._did_by_pseudonym) == 100


def test_a_file_that_is_larger_than_the_bound_is_read_from_its_end(tmp_path):
    file = tmp_path / "names"
    file.write_text("x" * 100_000 + "\n" + "".join(f"{did}\n" for did in [*dids(5000), SECRET]))
    register = PseudonymStore(VEIL, file, max_dids=100)
    assert register.resolve(VEIL.pseudonym(SECRET)) == SECRET
    assert len(register._did_by_pseudonym) <= 100
    register.exchange([OTHER])
    assert len(file.read_text().splitlines()) <= 101


def test_a_file_that_cannot_be_shortened_stays_whole_and_that_is_said(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    file = folder / "names"
    register = PseudonymStore(VEIL, file, max_dids=10)
    register.exchange(dids(10))
    file.rename(tmp_path / "moved")
    folder.rmdir()
    for did in dids(20, "more"):
        assert register.exchange([did])[did] == VEIL.pseudonym(did)
    assert "No such file" in register.problem
    assert len((tmp_path / "moved").read_text().splitlines()) == 10


def test_a_reload_takes_over_what_was_exchanged_and_what_jobs_have():
    before, after = PseudonymStore(VEIL, max_dids=10), PseudonymStore(VEIL, max_dids=10)
    before.learn([SECRET])
    before.exchange([OTHER])
    after.learn_from(before)
    assert knows(after, SECRET)
    assert knows(after, OTHER)
    after.exchange(dids(50))
    assert knows(after, SECRET)


def test_what_the_daemon_says_of_lost_names_is_a_finding():
    assert list(check_private_names(None)) == []
    (finding,) = check_private_names("disk full")
    assert (finding.subject, "disk full" in finding.message) == ("private", True)


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
    problem = f"private.key_file {key_file}: other users may read or write it"
    assert refusal(key_file) == f"{problem}; chmod 600 {key_file}"


@pytest.mark.parametrize(("content", "said"), [(b"short", "has 5 bytes"), (b"a" * 64, "is not a random key")])
def test_a_key_that_could_be_guessed_is_refused_without_showing_it(key_file, content, said):
    key_file.write_bytes(content)
    assert said in refusal(key_file)
    assert content.decode() not in refusal(key_file)
    assert "/dev/urandom" in refusal(key_file)


def test_a_key_that_is_not_there_is_refused(tmp_path):
    assert "No such file" in refusal(tmp_path / "absent")


def test_a_reload_forgets_no_name_that_was_exchanged_while_it_went_on(tmp_path):
    veil = Pseudonymizer(Privacy(("embargo:*",)), (b"k" * 32,))
    old, fresh = PseudonymStore(veil, tmp_path / "names"), PseudonymStore(veil, tmp_path / "names")
    did = Did("embargo:1")
    (name,) = old.exchange([did]).values()
    assert fresh.resolve(name) is None
    fresh.learn_from(old)
    assert fresh.resolve(name) == did
