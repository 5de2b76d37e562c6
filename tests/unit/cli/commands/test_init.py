"""`hydrator init`: a configuration that loads, and no overwritten file."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from hydrator.cli.commands.init import format_toml
from hydrator.config import Settings, load
from testbed.dmapi_standin import CLIENT as CLIENT_ID
from testbed.dmapi_standin import SECRET, DmapiStandIn
from tests.command_line import run_text as run

ROOT = Path(__file__).parents[4]
LIST = {"sites": ["CAM", "RAL"], "datasets": {"lofar:L1": {"sites": {"CAM": "available"}}}}


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "list.json").write_text(json.dumps(LIST))
    return tmp_path


def written(config: Path, *given: str) -> Settings:
    """Return the settings that init writes with these options."""
    done = run("init", "-c", str(config), "--yes", *given)
    assert done.returncode == 0, done.stderr
    return load(config)


def words(folder: Path, *more: str) -> list[str]:
    file = ["--catalogue", "file", "--path", str(folder / "list.json")]
    return ["init", "-c", str(folder / "new" / "config.toml"), *file, "--yes", *more]


def test_init_writes_a_loadable_configuration_with_the_given_options(folder):
    done = run(*words(folder, "--collector", "cm.example.org", "--site-attribute", "Where"))
    config = folder / "new" / "config.toml"
    assert (done.returncode, done.stdout) == (0, f"wrote {config}\n")
    assert (
        "it pays where links are busy: bytes of a job / uplink (bytes/s) / seconds it computes x"
        in done.stderr
    )
    assert "next: hydrator check" in done.stderr
    settings = load(config)
    assert settings.htcondor.collector == "cm.example.org"
    assert settings.sites.slot_attributes == ["Where"]
    assert [(each.type, each.path) for each in settings.catalogue] == [("file", folder / "list.json")]


def test_config_example_is_what_init_writes(tmp_path):
    rucio = ["--url", "https://rucio.example.org", "--account", "hydrator", "--username", "hydrator"]
    pool = ["--collector", "cm.example.org", "--token-directory", "/etc/classad-hydrator/tokens.d"]
    more = [*pool, *rucio, "--password-file", "rucio-password", "--gbit-per-second", "10"]
    written(tmp_path / "made.toml", *more)
    assert (tmp_path / "made.toml").read_text() == (ROOT / "config.example.toml").read_text()


def test_init_with_state_dir_puts_the_ad_files_below_it(folder):
    """Regression: the ad files went into /var/lib/classad-hydrator despite --state-dir."""
    assert run(*words(folder, "--state-dir", str(folder / "var"))).returncode == 0
    settings = load(folder / "new" / "config.toml")
    assert settings.daemon.state_dir == folder / "var"
    assert settings.publish.file.directory == folder / "var" / "ads"


@pytest.mark.outside
def test_plan_runs_with_a_dmapi_configuration_of_init(tmp_path):
    config = tmp_path / "config.toml"
    with DmapiStandIn() as dmapi:
        dmapi.add_area("RAL", "RAL_DISK")
        (tmp_path / "secret").write_text(f"{SECRET}\n")
        login = ["--token-url", dmapi.token_url, "--client-id", CLIENT_ID, "--client-secret-file", "secret"]
        where = ["--url", dmapi.url, "--site-capabilities", dmapi.capabilities_url]
        written(config, "--state-dir", "var", "--catalogue", "dmapi", *where, *login)
        off = {"HYDRATOR_DEMAND__ASK_SCHEDDS": "false", "HYDRATOR_PUBLISH__COLLECTOR__ENABLED": "false"}
        planned = run("plan", "-c", str(config), **off)
    assert (planned.returncode, planned.stderr) == (0, "")


def test_init_overwrites_no_file(folder):
    assert run(*words(folder)).returncode == 0
    before = (folder / "new" / "config.toml").read_text()
    again = run(*words(folder, "--collector", "another"))
    assert (again.returncode, "is not overwritten" in again.stderr) == (2, True)
    assert (folder / "new" / "config.toml").read_text() == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "give the option --catalogue: "),
        (["--catalogue", "file"], "give the option --path: "),
        (["--url", "https://rucio.example.org", "--username", "u"], "give the option --account: the account"),
        (["--catalogue", "file", "--path", "x", "--account", "y"], "not valid with --catalogue file"),
        (["--url", "https://x", "--account", "a"], "give the option --auth: how the daemon logs in"),
        (["--catalogue", "dmapi", "--url", "https://x", "--auth", "x509"], "supports token, oidc, none"),
        (["--catalogue", "dmapi", "--url", "https://x", "--auth", "oidc"], "give the option --token-url: "),
        (
            ["--url", "https://x", "--account", "a", "--token-file", "t", "--client-key", "k"],
            "--client-key: not valid with --catalogue rucio with --auth token",
        ),
        (["--url", "rucio.example.org", "--account", "a", "--username", "u", "--password-file", "p"], "url"),
    ],
)
def test_init_without_a_terminal_names_the_missing_or_wrong_option(tmp_path, given, said):
    config = tmp_path / "config.toml"
    done = run("init", "-c", str(config), *given)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not config.exists()


RUCIO = ["--url", "https://rucio.example.org", "--account", "hydrator"]
CLIENT = [
    "--token-url",
    "https://iam.example.org/token",
    "--client-id",
    "us",
    "--client-secret-file",
    "secret",
]
DMAPI = ["--catalogue", "dmapi", "--url", "https://data.example.org/api/v1"]


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ([*RUCIO, "--username", "u", "--password-file", "p"], {"auth": "userpass", "username": "u"}),
        ([*RUCIO, "--token-file", "t", "--ca-cert", "ca"], {"auth": "token"}),
        ([*RUCIO, *CLIENT], {"auth": "oidc", "client_id": "us"}),
        ([*RUCIO, "--auth", "x509", "--client-cert", "c", "--client-key", "k"], {"auth": "x509"}),
        ([*DMAPI, "--token-file", "t"], {"type": "dmapi", "url": DMAPI[-1]}),
        ([*DMAPI, *CLIENT], {"client_id": "us"}),
        ([*DMAPI, "--auth", "none"], {"type": "dmapi", "token_file": None}),
    ],
)
def test_init_writes_the_keys_of_each_login_method(tmp_path, given, keys):
    (source,) = written(tmp_path / "config.toml", *given).catalogue
    assert {key: getattr(source, key) for key in keys} == keys
    files = {"token_file": "t", "client_secret_file": "secret", "client_cert": "c", "client_key": "k"}
    for key, name in {**files, "ca_cert": "ca", "password_file": "p"}.items():
        if name in given:
            assert getattr(source, key) == tmp_path / name


def test_init_gives_site_capabilities_the_catalogues_identity(tmp_path):
    where = ["--site-capabilities", "https://sites.example.org/api/v1"]
    told = written(tmp_path / "config.toml", *DMAPI, *CLIENT, *where).site_capabilities
    assert (told.url, told.client_id, told.token_url) == (where[1], "us", CLIENT[1])


def test_toml_of_init_keeps_quotes_backslashes_and_emoji(tmp_path):
    odd = 'a "quoted" \\ path\twith ž and 🙂'
    (tmp_path / "c.toml").write_text(
        format_toml(
            {"daemon": {"state_dir": odd}, "catalogue": [{"type": "file", "name": "file", "path": odd}]}
        ),
        "utf-8",
    )
    assert load(tmp_path / "c.toml").catalogue[0].path == tmp_path / odd


def typed(config: Path, answers: str, *words: str) -> str:
    """Answer the questions of init at a terminal; return what it printed."""
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "hydrator.cli", "init", "-c", config, *words]
    with subprocess.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as asking:
        os.close(terminal)
        os.write(main, answers.encode())
        said, complaints = asking.communicate(timeout=120)
    os.close(main)
    assert asking.returncode == 0, complaints
    return said


@pytest.mark.outside
def test_init_at_a_terminal_prompts_for_missing_values(folder):
    said = typed(folder / "asked.toml", f"file\n{folder / 'list.json'}\n2.5\n")
    assert "The catalogue (file, rucio, dmapi)" in said
    assert load(folder / "asked.toml").network.default_gbit_per_second == 2.5
    assert load(folder / "asked.toml").catalogue[0].path == folder / "list.json"


@pytest.mark.outside
def test_login_method_decides_the_further_prompts_of_init(folder):
    said = typed(folder / "asked.toml", "x509\nproxy.pem\n\n", *RUCIO)
    assert "How the daemon logs in to the catalogue (userpass, token, oidc, x509)" in said
    assert load(folder / "asked.toml").catalogue[0].client_cert == folder / "proxy.pem"
