"""Private datasets in the configuration: keys, pins, pseudonyms, and the findings of ``hydrator check``."""

import pytest

from hydrator.config import load
from hydrator.diagnostics.check.findings import Level
from hydrator.diagnostics.check.secrets import examine_secrets
from hydrator.domain.errors import ConfigError
from hydrator.wiring import assemble, build_pseudonym_store, build_redactor, reconcile_policy, system_clock

KEY = bytes(range(40))


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "catalogue.toml").write_text('sites = ["UK"]\n[datasets]\n')
    (tmp_path / "key").touch(mode=0o600)
    (tmp_path / "key").write_bytes(KEY)

    def of(private: str, demand: str = ""):
        file = tmp_path / "config.toml"
        file.write_text(
            '[daemon]\nstate_dir = "state"\n'
            '[[catalogue]]\ntype = "file"\npath = "catalogue.toml"\n'
            f"[private]\n{private}\n[demand]\nask_schedds = false\n{demand}\n"
            "[publish.collector]\nenabled = false\n"
        )
        return load(file)

    return of


def test_configuration_without_private_patterns_needs_no_key(settings):
    assert build_pseudonym_store(settings("")) is None


def test_the_daemon_refuses_private_datasets_without_a_key(settings):
    with pytest.raises(ConfigError, match=r"private\.key_file is not set: the daemon needs a file"):
        build_pseudonym_store(settings('patterns = ["embargo:*"]'))


def test_every_unusable_key_file_is_reported(settings):
    with pytest.raises(ConfigError) as caught:
        build_pseudonym_store(
            settings('patterns = ["embargo:*"]\nkey_file = "no"\nold_key_files = ["key", "nor"]')
        )
    assert [problem.partition(":")[0].split()[0] for problem in caught.value.problems] == [
        "private.key_file",
        "private.old_key_files",
    ]


def test_private_pin_is_a_pseudonym_with_the_key_and_left_out_without_it(settings):
    loaded = settings('patterns = ["embargo:*"]\nkey_file = "key"', 'pins = ["embargo:canary", "lofar:L1"]')
    register = build_pseudonym_store(loaded)
    pins = reconcile_policy(loaded, register.pseudonymizer).pins
    assert len(pins) == 2
    assert "canary" not in str(pins)
    assert {register.resolve(pin) or pin for pin in pins} == {"embargo:canary", "lofar:L1"}
    assert reconcile_policy(loaded).pins == {"lofar:L1"}


def test_catalogues_answer_with_pseudonyms_only_with_a_pseudonym_store(settings, tmp_path):
    (tmp_path / "catalogue.toml").write_text(
        'sites = ["UK"]\n[datasets."embargo:canary"]\nsites = { UK = "available" }\n'
    )
    loaded = settings('patterns = ["embargo:*"]\nkey_file = "key"')
    (plain,) = assemble(loaded, system_clock).catalogues
    assert plain.find(["*"]) == {"embargo:canary"}
    (veiled,) = assemble(loaded, system_clock, pseudonym_store=build_pseudonym_store(loaded)).catalogues
    (name,) = veiled.find(["*"])
    assert name.startswith("private:")


def test_redactor_hides_the_keys_and_the_private_datasets(settings, tmp_path):
    (tmp_path / "key").write_bytes(b"canary-key-canary-key-canary-key-0123456789")
    loaded = settings('patterns = ["embargo:*"]\nkey_file = "key"')
    line = build_redactor(loaded)("key canary-key-canary-key-canary-key-0123456789 of embargo:canary")
    assert "canary" not in line
    (tmp_path / "key").unlink()
    assert "canary" not in build_redactor(loaded)("embargo:canary")


# what `hydrator check` says of them


def ill(settings) -> list[tuple[str, str]]:
    found = examine_secrets(settings, build_pseudonym_store)
    return [(finding.level.value, finding.message) for finding in found if finding.level is not Level.OK]


def test_check_warns_if_submit_hosts_cannot_exchange_private_names(settings, tmp_path):
    ((level, seen),) = ill(settings('patterns = ["embargo:*"]\nkey_file = "key"'))
    assert level == "warn"
    assert "cannot get pseudonyms of private datasets" in seen


def test_check_reports_an_unusable_key_and_goes_on(settings, tmp_path):
    (tmp_path / "key").chmod(0o644)
    loose, unusable = ill(settings('patterns = ["embargo:*"]\nkey_file = "key"'))
    assert loose == ("warn", f"other users may read or write private.key_file {tmp_path}/key")
    assert unusable[0] == "fail"


def test_check_has_no_finding_on_secrets_if_there_are_none(settings):
    assert ill(settings("")) == []
