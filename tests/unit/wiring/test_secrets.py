"""Files with secrets that the daemon cannot read now."""

import pytest

from hydrator.config import parse
from hydrator.diagnostics.check.installation import examine_secrets
from hydrator.domain.redaction import redact
from hydrator.wiring.secrets import find_files, find_unreadable_secrets, register_secrets


@pytest.fixture
def settings(tmp_path):
    def make(**tables):
        given = {"publish": {"http": {"tokens_file": "tokens"}}, **tables}
        return parse(given, folder=tmp_path, origin="test")

    for name in ("tokens", "password", "token"):
        (tmp_path / name).write_text("x")
    (tmp_path / "tokens.d").mkdir()
    (tmp_path / "tokens.d" / "pool").write_text("x")
    return make


CATALOGUE = {"type": "rucio", "name": "rucio", "url": "https://rucio", "account": "a"}


@pytest.mark.parametrize("name", ["password", "tokens.d", "tokens"])
def test_each_secret_that_is_missing_is_named_with_its_key(settings, tmp_path, name):
    login = {"username": "u", "password_file": "password"}
    made = settings(catalogue=[{**CATALOGUE, **login}], htcondor={"token_directory": "tokens.d"})
    assert find_unreadable_secrets(made) == {}
    (tmp_path / name).rename(tmp_path / "aside")
    ((file, why),) = find_unreadable_secrets(made).items()
    assert file == tmp_path / name
    assert "No such file" in why
    keys = {"tokens": "publish.http.tokens_file", "password": "catalogue rucio.password_file"}
    keys |= {"tokens.d": "htcondor.token_directory"}
    assert why.startswith(keys[name])


@pytest.mark.parametrize(("name", "counts"), [("password", True), ("tokens", False)])
def test_an_empty_secret_is_missing_but_a_list_of_tokens_may_be_empty(settings, tmp_path, name, counts):
    made = settings(catalogue=[{**CATALOGUE, "username": "u", "password_file": "password"}])
    (tmp_path / name).write_text("")
    assert bool(find_unreadable_secrets(made)) is counts


def test_secrets_of_the_submit_section_are_not_checked(settings, tmp_path):
    made = settings(submit={"daemon_url": "https://daemon", "token_file": "nowhere"})
    assert find_unreadable_secrets(made) == {}


def test_the_sites_file_is_the_daemons_own_and_no_secret(settings, tmp_path):
    made = settings(submit={"daemon_url": "https://daemon"}, publish={"sites_file": "sites.json"})
    assert find_unreadable_secrets(made) == {}
    (tmp_path / "sites.json").write_text('{"lofar:L123456_SB001": ["RAL"]}')
    register_secrets(made)
    assert redact("lofar:L123456_SB001 is at RAL") == "lofar:L123456_SB001 is at RAL"


@pytest.mark.parametrize(("mode", "is_named"), [(0o600, False), (0o604, True), (0o620, True)])
def test_secret_that_other_users_may_read_or_write_is_a_finding(settings, tmp_path, mode, is_named):
    """A certificate is public, and the key of another catalogue is as secret as its password."""
    x509 = {"auth": "x509", "client_cert": "password", "client_key": "token"}
    made = settings(catalogue=[{**CATALOGUE, **x509}])
    for name, its_mode in (("password", 0o644), ("tokens", 0o600), ("token", mode)):
        (tmp_path / name).chmod(its_mode)
    found = [one.message for one in examine_secrets(find_files(made))]
    named = f"other users may read or write catalogue rucio.client_key {tmp_path / 'token'}"
    assert found == [named] * is_named


def test_token_that_others_may_read_is_a_finding_because_htcondor_ignores_it(settings, tmp_path):
    made = settings(htcondor={"token_directory": "own.d"}, submit={"daemon_url": "https://daemon"})
    (tmp_path / "own.d").mkdir()
    for name, mode in (("open", 0o644), ("closed", 0o600)):
        (tmp_path / "own.d" / name).touch()
        (tmp_path / "own.d" / name).chmod(mode)
    (tmp_path / "own.d" / "..data").mkdir(0o755)
    (tmp_path / "own.d" / "ended").symlink_to("nowhere")
    (found,) = (one for one in examine_secrets(find_files(made)) if "own.d" in one.message)
    assert found.message.endswith("own.d/open, so HTCondor ignores it")
    assert found.todo == f"chmod 600 {tmp_path / 'own.d' / 'open'}"


def test_log_hides_the_secrets_of_a_section_and_no_other_value(tmp_path):
    for name in ("first", "second", "hashes"):
        (tmp_path / name).write_text(f"content-of-{name}")
    section = {
        "login": {"key_files": [tmp_path / "first", tmp_path / "second"], "ServerPassword": "a-pass-phrase"},
        "tokens_file": tmp_path / "hashes",
        "file": tmp_path / "nowhere",
    }
    register_secrets(section)
    text = "content-of-first content-of-second content-of-hashes a-pass-phrase nowhere"
    assert redact(text) == "[secret] [secret] content-of-hashes [secret] nowhere"
