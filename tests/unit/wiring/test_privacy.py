"""What the configuration makes of private datasets: keys, pins, and who may look."""

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


def test_without_patterns_there_is_no_veil_and_no_key_is_needed(settings):
    assert build_pseudonym_store(settings("")) is None


def test_the_daemon_refuses_private_datasets_without_a_key(settings):
    with pytest.raises(ConfigError, match=r"private.key_file: the daemon needs it"):
        build_pseudonym_store(settings('patterns = ["embargo:*"]'))


def test_every_key_that_cannot_be_used_is_told(settings):
    with pytest.raises(ConfigError) as caught:
        build_pseudonym_store(
            settings('patterns = ["embargo:*"]\nkey_file = "no"\nold_key_files = ["key", "nor"]')
        )
    assert [problem.partition(":")[0].split()[0] for problem in caught.value.problems] == [
        "private.key_file",
        "private.old_key_files",
    ]


def test_a_private_pin_is_wanted_under_its_opaque_name_and_left_out_for_who_has_no_key(settings):
    loaded = settings('patterns = ["embargo:*"]\nkey_file = "key"', 'pins = ["embargo:canary", "lofar:L1"]')
    register = build_pseudonym_store(loaded)
    pins = reconcile_policy(loaded, register.pseudonymizer).pins
    assert len(pins) == 2
    assert "canary" not in str(pins)
    assert {register.resolve(pin) or pin for pin in pins} == {"embargo:canary", "lofar:L1"}
    assert reconcile_policy(loaded).pins == {"lofar:L1"}


def test_the_parts_of_the_daemon_are_veiled_and_those_of_who_submits_are_not(settings, tmp_path):
    (tmp_path / "catalogue.toml").write_text(
        'sites = ["UK"]\n[datasets."embargo:canary"]\nsites = { UK = "available" }\n'
    )
    loaded = settings('patterns = ["embargo:*"]\nkey_file = "key"')
    (plain,) = assemble(loaded, system_clock).catalogues
    assert plain.find(["*"]) == {"embargo:canary"}
    (veiled,) = assemble(loaded, system_clock, pseudonym_store=build_pseudonym_store(loaded)).catalogues
    (name,) = veiled.find(["*"])
    assert name.startswith("private:")


def test_the_redactor_knows_the_keys_and_the_private_datasets(settings, tmp_path):
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


def test_private_datasets_that_nobody_can_exchange_are_told(settings, tmp_path):
    ((level, seen),) = ill(settings('patterns = ["embargo:*"]\nkey_file = "key"'))
    assert level == "warn"
    assert "cannot exchange the names of private datasets" in seen


def test_a_key_that_cannot_be_used_is_a_finding_and_no_end(settings, tmp_path):
    (tmp_path / "key").chmod(0o644)
    loose, unusable = ill(settings('patterns = ["embargo:*"]\nkey_file = "key"'))
    assert loose == ("warn", f"other users may read or write private.key_file {tmp_path}/key")
    assert unusable[0] == "fail"


def test_an_installation_without_secrets_has_nothing_to_say_of_them(settings):
    assert ill(settings("")) == []
