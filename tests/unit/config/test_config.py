"""The configuration: every problem in one report, each with its key."""

import os
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from hydrator.config import FileSource, RucioSource, Settings, load, parse
from hydrator.domain.errors import ConfigError

FILE = '[[catalogue]]\ntype = "file"\npath = "catalogue.toml"\n'
RUCIO = '[[catalogue]]\ntype = "rucio"\nurl = "https://rucio.example.org"\naccount = "hydrator"\n'
LOGIN = 'username = "hydrator"\npassword_file = "secret"\n'


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    """Remove the HYDRATOR_ variables of the environment that runs the tests."""
    for name in [name for name in os.environ if name.upper().startswith("HYDRATOR_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def loaded(tmp_path):
    def load_text(text: str | bytes) -> Settings:
        path = tmp_path / "config.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(path)

    return load_text


@pytest.fixture
def problems(loaded, tmp_path):
    """The problems of a text, each without the name of the file that it begins with."""

    def of(text: str | bytes) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            loaded(text)
        begin = f"{tmp_path}/config.toml: "
        assert all(problem.startswith(begin) for problem in caught.value.problems)
        return [problem.removeprefix(begin) for problem in caught.value.problems]

    return of


# what is right


def test_a_catalogue_is_all_that_is_needed(loaded):
    settings = loaded(FILE)
    assert [source.name for source in settings.catalogue] == ["file"]
    assert settings.daemon.poll_seconds == 30
    assert settings.daemon.max_age == timedelta(hours=6)
    assert settings.publish.collector.enabled
    assert settings.publish.file.enabled
    assert settings.publish.http.enabled
    assert settings.publish.sites_file is None


def test_relative_paths_count_from_the_folder_of_the_file(loaded, tmp_path):
    settings = loaded(
        '[daemon]\nstate_dir = "state"\n[htcondor]\ntoken_directory = "tokens.d"\n'
        '[publish.file]\ndirectory = "/srv/ads"\n' + FILE + RUCIO + LOGIN
    )
    assert settings.daemon.state_dir == tmp_path / "state"
    assert settings.htcondor.token_directory == tmp_path / "tokens.d"
    assert settings.publish.file.directory == Path("/srv/ads")
    source, rucio = settings.catalogue
    assert isinstance(source, FileSource)
    assert source.path == tmp_path / "catalogue.toml"
    assert isinstance(rucio, RucioSource)
    assert rucio.password_file == tmp_path / "secret"


def test_a_relative_name_of_the_file_still_gives_absolute_paths(tmp_path, monkeypatch):
    (tmp_path / "config.toml").write_text('[daemon]\nstate_dir = "state"\n' + FILE)
    monkeypatch.chdir(tmp_path)
    assert load(Path("config.toml")).daemon.state_dir == tmp_path / "state"


def test_a_home_folder_is_found(loaded, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert loaded('[daemon]\nstate_dir = "~/state"\n' + FILE).daemon.state_dir == Path("/home/somebody/state")


def test_the_environment_overrides_the_file(loaded, monkeypatch):
    monkeypatch.setenv("HYDRATOR_DAEMON__POLL_SECONDS", "7")
    monkeypatch.setenv("HYDRATOR_PUBLISH__HTTP__PORT", "0")
    settings = loaded("[daemon]\npoll_seconds = 60\nmax_age_hours = 3\n" + FILE)
    assert settings.daemon.poll_seconds == 7
    assert settings.daemon.max_age_hours == 3
    assert settings.publish.http.port == 0
    assert settings.publish.http.host == "127.0.0.1"


def test_a_wrong_value_in_the_environment_is_reported_with_its_key(problems, monkeypatch):
    monkeypatch.setenv("HYDRATOR_DAEMON__POLL_SECONDS", "often")
    [problem] = problems(FILE)
    assert problem.startswith("daemon.poll_seconds: ")
    assert "'often'" in problem


def test_a_list_in_the_environment_that_is_not_json_is_reported_not_raised(loaded, monkeypatch):
    monkeypatch.setenv("HYDRATOR_SITES__RETIRED", "UK,NL")
    with pytest.raises(ConfigError) as caught:
        loaded(FILE)
    assert caught.value.problems == (
        'environment: HYDRATOR_SITES__RETIRED: the value must be JSON, such as ["a", "b"]',
    )


def test_a_list_in_the_environment_is_json(loaded, monkeypatch):
    monkeypatch.setenv("HYDRATOR_SITES__RETIRED", '["UK", "NL"]')
    assert loaded(FILE).sites.retired == ["UK", "NL"]


def test_other_variables_that_begin_with_hydrator_do_not_count(loaded, monkeypatch):
    # those of the hook and the CLI, and those that Kubernetes makes for a Service called hydrator
    for name in ("SITE", "URL", "CONFIG", "PORT", "SERVICE_HOST", "PORT_8471_TCP_ADDR"):
        monkeypatch.setenv(f"HYDRATOR_{name}", "something")
    assert loaded(FILE) == loaded(FILE + "\n[log]\n")


def test_a_rucio_with_a_token_needs_no_password(loaded):
    [source] = loaded(RUCIO + 'auth = "token"\ntoken_file = "token"\n').catalogue
    assert isinstance(source, RucioSource)
    assert source.auth == "token"


def test_pin_without_scope_is_accepted_with_a_default_scope(loaded):
    settings = loaded('[daemon]\ndefault_scope = "lofar"\n[demand]\npins = ["L1"]\n' + FILE)
    assert settings.demand.pins == ["L1"]


# what is wrong


def test_all_problems_stand_in_one_report_each_with_its_key(problems):
    found = problems(
        """
        demon = 1
        [daemon]
        poll_seconds = "often"
        max_age_hours = 0
        [publish.http]
        port = 70000
        [[catalogue]]
        type = "file"
        [[catalogue]]
        type = "rucio"
        url = "rucio.example.org"
        account = "hydrator"
        """
    )
    assert [problem.partition(":")[0] for problem in found] == [
        "daemon.poll_seconds",
        "daemon.max_age_hours",
        "catalogue[0].path",
        "catalogue[1].url",
        "publish.http.port",
        "demon",
    ]


def test_all_problems_between_sections_stand_in_one_report(problems):
    found = problems(OFF + '[demand]\npins = ["no-scope"]\n[staging]\nmode = "request"\n')
    assert [problem.partition(":")[0] for problem in found] == [
        "catalogue",
        "demand.pins[0]",
        "publish",
        "staging.mode",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[daemon]\npol_seconds = 3\n" + FILE, "daemon.pol_seconds: unknown key; did you mean poll_seconds?"),
        ("[deamon]\npoll_seconds = 3\n" + FILE, "deamon: unknown key; did you mean daemon?"),
        ("[log]\nxyzzy = 3\n" + FILE, "log.xyzzy: unknown key; known keys: level"),
        (FILE + 'pth = "x"\n', "catalogue[0].pth: unknown key; did you mean path?"),
        (RUCIO + LOGIN + 'acount = "x"\n', "catalogue[0].acount: unknown key; did you mean account?"),
    ],
    ids=["key", "section", "near to nothing", "of a file", "of Rucio"],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one_or_all(problems, text, told):
    assert problems(text) == [told]


@pytest.mark.parametrize(
    ("text", "key", "shown"),
    [
        ('[daemon]\npoll_seconds = "often"', "daemon.poll_seconds", "'often'"),
        ("[daemon]\npoll_seconds = 0", "daemon.poll_seconds", "0"),
        ("[daemon]\npoll_seconds = nan", "daemon.poll_seconds", "nan"),
        ("[daemon]\nstate_dir = 3", "daemon.state_dir", "3"),
        ("daemon = 3", "daemon", "3"),
        ('catalogue = "catalogue.toml"', "catalogue", "'catalogue.toml'"),
        ('[publish.collector]\nenabled = "perhaps"', "publish.collector.enabled", "'perhaps'"),
        ("[publish.http]\nport = 65536", "publish.http.port", "65536"),
        ("[publish.http]\nport = 80.5", "publish.http.port", "80.5"),
        ('[demand]\npins = "lofar:L1"', "demand.pins", "'lofar:L1'"),
        ("[demand]\npins = [1]", "demand.pins[0]", "1"),
        ('[sites]\nretired = ["a\\nb"]', "sites.retired[0]", r"'a\nb'"),
        ('[sites.aliases]\nRAL = "RAL "', "sites.aliases.RAL", "'RAL '"),
        ('[sites]\nslot_attributes = ["TARGET.Site"]', "sites.slot_attributes[0]", "'TARGET.Site'"),
        ('[sites]\nslot_attributes = ["GLIDEIN-Site"]', "sites.slot_attributes[0]", "'GLIDEIN-Site'"),
        ('[[storage]]\nsite = "UK"\nprefix = "data"', "storage[0].prefix", "'data'"),
        ('[log]\nlevel = "loud"', "log.level", "'loud'"),
    ],
)
def test_a_wrong_value_is_shown_with_its_key(problems, text, key, shown):
    with_catalogue = text if text.startswith("catalogue") else f"{text}\n{FILE}"
    found = problems(with_catalogue)
    first = found[0]
    assert first.startswith(f"{key}: ")
    assert first.endswith(f"(it is {shown})")


@pytest.mark.parametrize(
    "text",
    ["", "catalogue = []\n", "[daemon]\npoll_seconds = 30\n", "[submit]\ncpus = 3\n"],
    ids=["an empty file", "an empty list", "no list", "a submitter's"],
)
def test_configuration_without_a_catalogue_names_the_missing_lines(problems, text):
    """Case S16 of cases/submit.md."""
    (problem,) = problems(text)
    assert problem.startswith(
        "catalogue: none configured; where jobs are submitted, add daemon_url, the daemon's address, to"
    )
    assert problem.endswith('for the daemon add [[catalogue]] with type = "file" or "rucio"')


def test_catalogue_as_one_table_is_rejected_with_the_right_syntax(problems):
    [problem] = problems('[catalogue]\ntype = "file"\npath = "x"\n')
    assert problem.startswith("catalogue: ")
    assert "[[catalogue]]" in problem


def test_catalogue_of_unknown_type_is_rejected_with_the_list_of_types(problems):
    [problem] = problems('[[catalogue]]\ntype = "dropbox"\n')
    assert problem.startswith("catalogue[0]")
    assert "dropbox" in problem
    assert "'file', 'rucio'" in problem


def test_catalogue_name_equal_to_a_default_name_is_rejected(problems):
    assert problems(FILE + RUCIO + LOGIN + 'name = "file"\n') == [
        "catalogue: the name 'file' is used 2 times; give each a unique name"
    ]


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 65])
def test_a_name_that_cannot_be_part_of_a_path_is_refused(problems, name):
    [problem] = problems(FILE + f'name = "{name}"\n')
    assert problem.startswith("catalogue[0].name: ")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("", 'auth = "userpass" needs username and password_file'),
        ('username = "x"\n', 'auth = "userpass" needs username and password_file'),
        (
            'auth = "token"\n',
            'auth = "token" needs either token_file or token_command',
        ),
        (
            'auth = "token"\ntoken_file = "a"\ntoken_command = ["b"]\n',
            'auth = "token" needs either token_file or token_command',
        ),
        (
            'auth = "oidc"\nclient_id = "x"\n',
            'auth = "oidc" needs token_url, client_id and client_secret_file',
        ),
        (
            'auth = "oidc"\nclient_id = "x"\nclient_secret_file = "s"\ntoken_url = "http://iam.example.org"\n',
            'auth = "oidc" needs an https address, not http://iam.example.org',
        ),
        ('auth = "x509"\n', 'auth = "x509" needs client_cert'),
        (
            'auth = "x509"\nclient_cert = "c.pem"\nauth_url = "http://rucio.example.org"\n',
            'auth = "x509" needs an https address, not http://rucio.example.org',
        ),
    ],
)
def test_a_rucio_without_its_credentials_is_refused(problems, given, missing):
    assert problems(RUCIO + given) == [f"catalogue[0]: {missing}"]


@pytest.mark.parametrize("pin", ["L1", "lofar:a b", "lofar:", 'lofar:a"b', "lofar:ä"])
def test_a_pin_that_is_not_a_did_is_refused_with_its_place(problems, pin):
    [problem] = problems(f"[demand]\npins = ['lofar:L1', '{pin}']\n" + FILE)
    assert problem.startswith("demand.pins[1]: ")
    assert repr(pin) in problem


def test_sites_by_dataset_alone_are_something_to_publish(loaded):
    assert loaded(OFF + "[publish]\nsites_file = 'sites.json'\n" + FILE).publish.sites_file


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("~no-such-user/state", "daemon.state_dir: ~no-such-user/state: no user has this name"),
        ("a\\u0000b", "daemon.state_dir: no path has a NUL character"),
    ],
)
def test_path_that_no_file_can_have_is_one_problem(problems, path, told):
    assert problems(f'[daemon]\nstate_dir = "{path}"\n' + FILE) == [told]


def test_pipe_without_a_writer_is_one_problem(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="it is a pipe, and no program writes to it"):
        load(tmp_path / "pipe")


def test_secret_file_of_a_plugin_is_found_beside_the_configuration(loaded, tmp_path):
    text = '[[catalogue]]\ntype = "directory"\nscope = "s"\nroots = { UK = "/data" }\ntoken_file = "token"\n'
    (plugin,) = loaded(text).catalogue
    assert plugin.options["token_file"] == tmp_path / "token"
    assert plugin.options["roots"] == {"UK": "/data"}


LIBRARY_FILES = {
    "htcondor.config_file": FILE + "[htcondor]\nconfig_file = {}\n",
    "catalogue.ca_cert": RUCIO + LOGIN + "ca_cert = {}\n",
    "catalogue.client_cert": RUCIO + 'auth = "x509"\nclient_cert = {}\n',
    "catalogue.client_key": RUCIO + 'auth = "x509"\nclient_cert = "pem"\nclient_key = {}\n',
    "site_capabilities.ca_cert": FILE + "[site_capabilities]\nca_cert = {}\n",
    "submit.ca_cert": FILE + "[submit]\nca_cert = {}\n",
    "publish.http.tls_certificate": FILE + '[publish.http]\ntls_key = "pem"\ntls_certificate = {}\n',
    "publish.http.tls_key": FILE + '[publish.http]\ntls_certificate = "pem"\ntls_key = {}\n',
}


@pytest.mark.parametrize("key", LIBRARY_FILES)
def test_pipe_or_device_that_a_library_would_open_is_one_problem(problems, loaded, tmp_path, key):
    os.mkfifo(tmp_path / "pipe")
    told = f"{key}: {{}}: it is a pipe or a device, not a file"
    assert problems(LIBRARY_FILES[key].format("'pipe'")) == [told.format(tmp_path / "pipe")]
    assert problems(LIBRARY_FILES[key].format("'/dev/zero'")) == [told.format("/dev/zero")]
    for usable in (os.devnull, tmp_path, tmp_path / "none"):
        loaded(LIBRARY_FILES[key].format(f"'{usable}'"))


def _find_keys(model: type[BaseModel], section: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        yield (*section, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _find_keys(field.annotation, (*section, name))


ODD_VALUES = (
    *(-1, 2**70, 10**400, 1e308, float("nan"), float("inf"), True, date(2026, 11, 30)),
    *("", "x" * 100_000, "a\nb", "\0", "\ud800", "~no-such-user/x", "(" * 2000),
    *([], [[]], {}, {"a": {}}, {"": 1}, {"\n": {}}),
)


@pytest.mark.parametrize("keys", [*_find_keys(Settings)], ids=".".join)
def test_odd_value_of_a_setting_is_read_or_is_short_sentences(keys, tmp_path):
    for value in ODD_VALUES:
        table: Any = value
        for key in reversed(keys):
            table = {key: table}
        problems: tuple[str, ...] = ()
        try:
            parse({"catalogue": [{"type": "file", "path": "x"}], **table}, folder=tmp_path, origin="test")
        except ConfigError as error:
            problems = error.problems
        assert all(problem.isprintable() and len(problem) < 1000 for problem in problems)


def test_a_half_written_file_is_refused_with_the_line(problems):
    [problem] = problems("[daemon]\npoll_seconds = 3\nstate_d")
    assert problem.startswith("not TOML: ")
    assert "end of document" in problem or "line 3" in problem


def test_a_file_that_is_not_utf8_is_refused(problems):
    assert problems("[daemon]\n# Zürich\n".encode("latin-1")) == ["not UTF-8 text (byte 12)"]


def test_a_file_with_a_byte_order_mark_is_read(loaded):
    assert loaded(b"\xef\xbb\xbf" + FILE.encode()).catalogue[0].name == "file"


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_file_that_cannot_be_read_is_one_problem_that_names_the_option(tmp_path, name):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / name)
    [problem] = caught.value.problems
    assert problem.startswith(str(tmp_path))
    assert problem.endswith(
        "; give a configuration with --config; a user writes five lines (docs/users/submit.md#get-hydrator),"
        " an operator runs `hydrator init`"
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "hydrator.example.org", "192.0.2.1"])
def test_tokens_are_not_served_in_clear_to_other_machines(problems, loaded, host):
    http = f'[publish.http]\ntokens_file = "tokens"\nhost = "{host}"\n'
    [problem] = problems(http + FILE)
    assert problem.startswith(f"publish.http: tokens would be sent unencrypted to {host}")
    assert loaded(http + "behind_proxy = true\n" + FILE).publish.http.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_tokens_over_loopback_are_fine(loaded, tmp_path, host):
    http = f'[publish.http]\ntokens_file = "tokens"\nhost = "{host}"\n'
    assert loaded(http + FILE).publish.http.tokens_file == tmp_path / "tokens"


# secrets


@pytest.mark.parametrize("key", ["password", "token", "secret", "Password"])
def test_a_secret_in_the_text_is_refused_without_showing_it(problems, key):
    (problem,) = problems(RUCIO + LOGIN + f'{key} = "canary"\n')
    assert problem.startswith(f"catalogue[0].{key}: a secret is not allowed in the configuration")
    assert problem.endswith(f"and set {key}_file to the path of that file")
    assert "canary" not in problem


@pytest.mark.parametrize(("section", "key"), [("publish", "never"), ("demand", "patterns")])
@pytest.mark.parametrize("pattern", ["", "embargo", "embargo:[ab", "e:[!z-a]*", "e:[!-a]", "e:A B", "e:ü*"])
def test_pattern_that_can_match_no_dataset_is_refused(problems, section, key, pattern):
    [problem] = problems(FILE + f'[{section}]\n{key} = ["{pattern}"]\n')
    assert problem.startswith(f"{section}.{key}[0]: {pattern!r} can match no dataset: write scope:name")


@pytest.mark.parametrize("pattern", ["embargo:*", "*secret*", "embargo:b-a", "e[m-n]bargo:L[!0-9]?"])
def test_pattern_of_names_that_are_never_published_is_kept(loaded, pattern):
    assert loaded(FILE + f'[publish]\nnever = ["{pattern}"]\n').publish.never == (pattern,)


def test_a_bare_name_of_a_secret_is_looked_for_among_the_credentials_of_systemd(
    loaded, tmp_path, monkeypatch
):
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "secret").write_text("x")
    (credentials / "catalogue.toml").write_text("x")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    settings = loaded(
        '[submit]\ntoken_file = "absent"\n[publish.http]\ntokens_file = "./deep/secret"\n' + RUCIO + LOGIN
    )
    assert settings.catalogue[0].password_file == credentials / "secret"
    assert settings.submit.token_file == tmp_path / "absent"
    assert settings.publish.http.tokens_file == tmp_path / "deep" / "secret"
    assert loaded(FILE).catalogue[0].path == tmp_path / "catalogue.toml"


OFF = "".join(f"[publish.{outlet}]\nenabled = false\n" for outlet in ("collector", "file", "http"))
STAGING = '[staging]\nmode = "request"\n[staging.sites.CAM]\n[staging.catalogues.file]\n'
UPLINK = '[[network.links]]\nsource = "DE"\ngbit_per_second = 10\n'
LINK = '[[network.links]]\nsource = "UK"\ndestination = "NL"\ngbit_per_second = 2\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[daemon]\ndefault_scope = "a:b"\n', "daemon.default_scope: "),
        (OFF, "publish: no publisher is enabled; set enabled = true in publish.collector,"),
        ('[publish.http]\ntls_certificate = "c"\n', "publish.http: set both tls_certificate and tls_key"),
        ('[publish.http]\ntls_key = "k"\n', "publish.http: set both tls_certificate and tls_key"),
        ('[staging]\nmode = "request"\n', "staging.mode: nothing is switched on; add [staging.catalogues."),
        ("[staging.catalogues.rucio]\n", "staging.catalogues.rucio: no [[catalogue]] has this name"),
        (STAGING.replace("request", "on"), "staging.mode: input should be 'off', 'propose' or 'request'"),
        ("[staging.limits]\nsite_tb = -1\n", "staging.limits.site_tb: input should be greater than or equal"),
        (f"{STAGING}[demand]\nask_schedds = false\n", "staging.mode: the daemon must read the jobs' needs"),
        ("[network]\ndefault_gbit_per_second = 0\n", "network.default_gbit_per_second: input should be grea"),
        ("[network]\ndefault = 1\n", "network.default: unknown key; known keys: default_gbit"),
        (UPLINK.replace("10", "-1"), "network.links[0].gbit_per_second: input should be greater"),
        (UPLINK + UPLINK, "network: the link from DE to all sites is there 2 times; keep one"),
        ('[network.hosts]\n"a b" = "UK"\n', "network.hosts.a b"),
        (LINK.replace("NL", "UK"), "network.links[0]: source and destination are both UK"),
        (LINK + LINK, "network: the link from UK to NL is there 2 times; keep one"),
    ],
)
def test_a_problem_of_a_section_is_one_sentence_with_its_key(problems, text, told):
    (problem,) = problems(text + FILE)
    assert problem.startswith(told)


def test_sites_with_a_rate_are_those_of_links(loaded):
    assert loaded(UPLINK + LINK + FILE).network.sites == {"UK", "NL", "DE"}


@pytest.mark.parametrize("section", ['[[catalogue]]\ntype = "dmapi"\n', FILE + "[site_capabilities]\n"])
@pytest.mark.parametrize(
    ("service", "told"),
    [
        ('url = "http://ska.example.org"\ntoken_file = "t"\n', "sent unencrypted to http://ska.example.org"),
        ('url = "https://ska.example.org"\nclient_id = "hydrator"\n', "set all three of token_url"),
    ],
)
def test_credentials_of_an_ska_service_are_complete_and_encrypted(problems, section, service, told):
    [problem] = problems(section + service)
    assert told in problem


def test_with_https_tokens_are_safe_at_any_address(loaded):
    http = '[publish.http]\ntokens_file = "t"\nhost = "0.0.0.0"\n'
    assert loaded(http + 'tls_certificate = "c"\ntls_key = "k"\n' + FILE)


def test_a_configuration_without_end_is_one_problem():
    with pytest.raises(ConfigError, match=r"/dev/zero: .*larger"):
        load(Path("/dev/zero"))
