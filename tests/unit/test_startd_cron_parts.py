"""The hook: its pure parts by import, without a run of its file."""

import ast
import sys
import tomllib

import pytest

from hydrator import startd_cron as hook
from hydrator.domain.untrusted import MAX_AHEAD
from tests.unit.test_startd_cron import COLLECTOR_23_9, HOOK, NOW, WRAPPER, ad_text, glidein_config, settings

ORDER = tuple(hook.READERS)


def read(text: str, site: str = "UK", now: int = NOW) -> dict[str, object]:
    return hook.read_ad(text.encode(), site, now)


def refusal(text: str | bytes, site: str = "UK", now: int = NOW) -> str:
    with pytest.raises(hook.InvalidAd) as caught:
        hook.read_ad(text if isinstance(text, bytes) else text.encode(), site, now)
    return str(caught.value)


@pytest.mark.parametrize("script", [HOOK, WRAPPER], ids=["hook", "job wrapper"])
def test_script_of_a_worker_node_imports_only_the_standard_library(script):
    found = set()
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(str(node.module).partition(".")[0])
    assert found <= sys.stdlib_module_names


def test_the_hook_has_the_version_of_the_distribution():
    project = tomllib.loads((HOOK.parents[1] / "pyproject.toml").read_text())
    assert project["project"]["version"] == hook.VERSION


# --------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("name", [name for name in ORDER if name not in hook.OPTIONAL_ATTRIBUTES])
def test_ad_without_a_required_attribute_is_rejected(name):
    assert "truncated" in refusal(ad_text(**{name: None}))


@pytest.mark.parametrize(
    "line",
    [
        "START = true",
        'DataLocalitySource = "merge"',
        "datalocalitytruncated = false",
        " DataLocalityTruncated = false",
        "DataLocalityTruncated = false\r",
    ],
)
def test_ad_with_a_foreign_line_is_rejected_as_a_whole(line):
    assert "not an attribute" in refusal(line + "\n" + ad_text(DataLocalityTruncated=None)) or line.endswith(
        "\r"
    )
    refusal(line + "\n" + ad_text(DataLocalityTruncated=None))


@pytest.mark.parametrize(
    ("name", "literal"),
    [
        ("DataLocalitySite", 'strcat("U","K")'),
        ("DataLocalitySite", '"UK\\"; START = true"'),
        ("DataLocalitySite", '"UK'),
        ("AvailableDatasets", '{"a:1",TARGET.Owner}'),
        ("AvailableDatasets", '{"a:1","A:1"}'),
        ("AvailableDatasets", '{"a 1"}'),
        ("AvailableDatasets", '{"a:1",}'),
        ("AvailableDatasets", '"a:1"'),
        ("AvailableDatasets", '{"a:' + 500 * "x" + '"}'),
        ("DatasetStates", "['a:1'=AVAILABLE]"),
        ("DatasetStates", "['a:1'=\"GONE\"]"),
        ("DatasetStates", "['a:1'=\"AVAILABLE\";'A:1'=\"STUCK\"]"),
        ("DatasetStates", "['a:1'=\"AVAILABLE\";]"),
        ("DatasetStates", "['a:1'=\"AVAILABLE\"];START=[true]"),
        ("DatasetStates", '["a:1"="AVAILABLE"]'),
        ("DatasetFractions", "['a:1'=1.5]"),
        ("DatasetFractions", "['a:1'=-0.5]"),
        ("DatasetFractions", "['a:1'=nan]"),
        ("DatasetFractions", "['a:1'=1/2]"),
        ("DatasetAsOf", "['a:1'=time()]"),
        ("DatasetAsOf", "['a:1'=-1]"),
        ("DataLocalityTruncated", "maybe"),
        ("DataLocalityAsOf", "time()"),
        ("DataLocalityAsOf", ""),
        ("DataLocalityGeneration", "9" * 16),
        ("DataLocalityGeneration", "٣"),
        ("DataLocalitySets", "['a:1'=1.01]"),
        ("DataLocalitySets", "['a:1'=\"1.0\"]"),
        ("DataLocalitySets", "[s2bc=1.0;S2bc=1.0]"),
        ("DataLocalitySets", "['a 1'=1.0]"),
        ("DataLocalitySets", "['" + "x" * 501 + "'=1.0]"),
        ("DataLocalitySets", "[]]"),
        ("DataLocalitySetsAsOf", "['a:1'=time()]"),
        ("DataLocalityOpen", "['a:1'=-1]"),
        ("DataLocalityOpen", "['a:1'=315360001]"),
        ("DataLocalityOpen", "[a:1~3=60]"),
        ("DataLocalityReadFrom", '[\'a:1\'="U\\"K"]'),
        ("DataLocalityReadFrom", "['a:1'=\"U\tK\"]"),
        ("DataLocalityReadFrom", "['a:1'=\"UK]"),
        ("DataLocalityReadFrom", "['a:1'=\"" + "x" * 201 + '"]'),
        ("DataLocalityBacklog", "-1"),
        ("DataLocalityBacklog", "1.5"),
        ("DataLocalityOpenUntil", "time()+900"),
        ("DataLocalityOpenUntil", "-1"),
    ],
)
def test_value_that_is_not_a_literal_of_its_type_is_rejected(name, literal):
    assert refusal(ad_text(**{name: literal})).startswith((f"in {name}: ", "byte "))


def test_ad_with_an_attribute_twice_is_rejected():
    assert "twice" in refusal("DataLocalityTruncated = false\n" + ad_text())


def test_ad_of_another_site_is_rejected():
    assert refusal(ad_text(), site="AU") == "this is the ad of site 'UK', not of 'AU'"


def test_site_name_respects_letter_case():
    assert "this is the ad of site" in refusal(ad_text(), site="uk")


@pytest.mark.parametrize("more", [{}, {"DataLocalityNew": "[]"}, {"DatasetStates": "['a:1'=\"NEW\"]"}])
def test_another_contract_is_rejected_with_a_remedy(more):
    reason = "the ad has contract version 2, this hook reads 1: update the older of hook and daemon"
    text = ad_text(DataLocalityVersion="2", **more)
    assert refusal(text) == reason
    with pytest.raises(hook.InvalidAd, match=reason):
        hook.read_classads(text.encode(), "UK", NOW)


def test_line_over_the_limit_is_rejected():
    many = ",".join(f'"a:{n:05}"' for n in range(7000))
    assert "65000 are allowed" in refusal(ad_text(AvailableDatasets="{" + many + "}"))


def test_time_far_in_the_future_is_rejected():
    assert "301 s in the future" in refusal(ad_text(DataLocalityAsOf=str(NOW + 301)))


def test_condor_status_output_is_read_without_foreign_attributes():
    ad = hook.read_classads(COLLECTOR_23_9.encode(), "UK", NOW)
    assert list(ad) == list(ORDER)
    assert ad["DatasetFractions"] == {"c:3": 0.5, "d:4": 0.00001}
    assert list(ad["DatasetStates"]) == ["TRUE", "a:1", "b:2", "plain"]
    assert "START" not in hook.locality_block(ad, is_update=True).decode()


def test_newest_ad_of_two_daemons_counts():
    older = COLLECTOR_23_9.replace(str(NOW), str(NOW - 100))
    ad = hook.read_classads((older + COLLECTOR_23_9 + older).encode(), "UK", NOW)
    assert ad["DataLocalityAsOf"] == NOW


def test_collector_without_the_ad_is_an_error():
    with pytest.raises(hook.AdNotServed, match="no DataLocality ad for site 'UK'"):
        hook.read_classads(b"\n", "UK", NOW)


def test_collector_ad_without_a_required_attribute_is_rejected():
    with pytest.raises(hook.InvalidAd, match="truncated: it lacks DatasetAsOf"):
        hook.read_classads(COLLECTOR_23_9.replace("DatasetAsOf =", "DatasetAs =").encode(), "UK", NOW)


# -------------------------------------------------------------------------------------------- options


def usage(*argv: str, **environ: str) -> str:
    with pytest.raises(hook.BadUsage) as caught:
        settings(*argv, **environ)
    return str(caught.value)


def one_trouble(capfd: pytest.CaptureFixture[str]) -> str:
    """Return the one sentence that the hook printed as its only block, and on standard error."""
    out, err = capfd.readouterr()
    trouble = err.removeprefix("hydrator hook: ").rstrip("\n")
    assert (out, err.count("\n")) == (hook.trouble_block(trouble).decode(), 1)
    return trouble


def test_options_precede_the_environment():
    found = settings(
        "--file", "/ads", "--timeout=3", HYDRATOR_URL="https://h", HYDRATOR_TIMEOUT="7", HYDRATOR_JITTER="1"
    )
    assert (found.source, found.location, found.timeout_seconds, found.jitter_seconds) == (
        "file",
        "/ads",
        3.0,
        1.0,
    )


def test_environment_precedes_glidein_config(tmp_path):
    proxies = {"PROXY_URL": "http://squid:3128", "GLIDEIN_Proxy_URL": "None"}
    path = glidein_config(
        tmp_path, HYDRATOR_URL="http://a", HYDRATOR_SITE="AU", HYDRATOR_CA_FILE="", **proxies
    )
    found = settings(path, "id", HYDRATOR_SITE="UK")
    assert (found.location, found.site) == ("http://a", "UK")
    assert found.proxy
    assert found.proxy.address == "squid:3128"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "no source"),
        (("--url", "http://h", "--file", "/ads"), "more than one source: --url, --file"),
        (("--url",), "--url needs a value"),
        (("--site", "", "--file", "/ads"), "--site is empty"),
        (("--sight", "UK"), "unknown option '--sight'"),
        (("/nowhere/UK",), "unexpected argument"),
        (("--file", "/ads", "--timeout", "soon"), "--timeout 'soon' is not a number of seconds"),
        (("--file", "/ads", "--timeout", "301"), "from 0 to 300"),
        (("--file", "/ads", "--site-keys", "a,b c"), "--site-keys has 'b c'"),
        (("--url", "ftp://h"), "is not a URL"),
        (("--url", "http://user:pw@h"), "is not a URL"),
        (("--url", "http://h/#x"), "without a user or a #"),
        (("--url", "http://h\r\nX: y"), "other characters that no address has"),
        (("--url", "https://h", "--token-file", "/nowhere"), "cannot read the token"),
        (("--url", "https://h", "--ca-file", "/nowhere"), "is not a file"),
        (("--collector", "-debug"), "begins with -"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(argv, message, capfd):
    assert hook.main(list(argv), {}) == 2
    assert message in one_trouble(capfd)


def test_token_is_not_sent_over_http_to_another_host(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    for host in ("127.0.0.1", "127.255.0.9:8471", "localhost:1", "[::1]:8471"):
        assert settings("--url", f"http://{host}", "--token-file", str(token)).token == "secret"
    assert "over https only" in usage(
        "--url", "http://127.0.0.1:1", "--token-file", str(token), http_proxy="http://p:3128"
    )
    assert settings("--url", "https://h", "--token-file", str(token)).token == "secret"


def test_token_with_a_line_break_is_rejected(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\r\nX-Evil: 1")
    assert "has no token" in usage("--url", "https://h", "--token-file", str(token))


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://h", "https://h/v1/sites/A%2FB%20c/ad"),
        ("https://h/hydrator/", "https://h/hydrator/v1/sites/A%2FB%20c/ad"),
        ("https://h/ads/{site}.ad", "https://h/ads/A%2FB%20c.ad"),
    ],
)
def test_site_is_percent_encoded_in_the_url(base, url):
    assert hook.ad_url(base, "A/B c") == url


@pytest.mark.parametrize(
    ("url", "environ", "glidein", "proxy"),
    [
        ("http://h", {}, {}, None),
        ("http://h", {"http_proxy": "http://p:3128/"}, {}, ("p", 3128)),
        ("https://h", {"http_proxy": "http://p:3128"}, {}, None),
        ("https://h", {"all_proxy": "http://p:3128"}, {}, ("p", 3128)),
        ("http://a.h", {"http_proxy": "http://p:1", "no_proxy": "x, .h"}, {}, None),
        ("http://ah", {"http_proxy": "http://p:1", "no_proxy": "h"}, {}, ("p", 1)),
        ("http://h", {"http_proxy": "http://p:1", "no_proxy": "*"}, {}, None),
        ("http://h", {}, {"GLIDEIN_Proxy_URL": "None", "PROXY_URL": "http://s:3128"}, ("s", 3128)),
        ("http://h", {"http_proxy": "http://p:1"}, {"GLIDEIN_Proxy_URL": "http://s:3128"}, ("p", 1)),
    ],
)
def test_proxy_comes_from_the_environment_and_glidein_config(url, environ, glidein, proxy):
    found = hook.proxy_for(hook.Url(url), environ, glidein)
    assert (found and (found.host, found.port)) == proxy


def test_proxy_other_than_http_is_rejected():
    assert "proxy" in usage("--url", "http://h", http_proxy="socks5://p:1080")


def test_bug_in_the_hook_is_reported_in_one_line(capfd, monkeypatch):
    class Odd(dict):  # type: ignore[type-arg]
        def get(self, *_: object) -> str:
            raise RuntimeError("odd\nenvironment")

    assert hook.main(["--site", "UK", "--file", "/x"], Odd()) == 1
    assert "RuntimeError: odd environment: this is a bug" in one_trouble(capfd)


@pytest.mark.parametrize("host", ["h..example", ".h", "h" * 64, "a." * 127 + "b", "..", "-." + "x" * 70])
def test_host_name_that_cannot_be_is_no_answer_in_one_sentence(host, capfd):
    words = ["--site", "UK", "--url", f"http://{host}/", "--jitter", "0"]
    assert hook.main(words, {"HOME": "/dev/null", "TMPDIR": "/dev/null"}) == 1
    assert f"no answer from http://{host}/v1/sites/UK/ad: " in one_trouble(capfd)


def test_host_name_may_end_with_a_dot():
    assert hook.Url("http://h.example./").host == "h.example."


@pytest.mark.parametrize(
    "host",
    [
        *("h", "127.evil.example", "127.0.0.1.evil.example", "127.0.0.1e", "127.1", "127.0.0.256", "127.0.0"),
        *("localhost.evil.example", "0.0.0.0", "1270.0.0.1", "127.0.0.0.1", "0127.0.0.1", "127.0.0.0001"),
    ],
)
def test_token_goes_over_http_to_a_loopback_address_only(tmp_path, host):
    token = tmp_path / "token"
    token.write_text("secret\n")
    assert "over https only" in usage("--url", f"http://{host}", "--token-file", str(token))


# ---------------------------------------------------------------------------------------- generations


def test_hook_and_daemon_have_the_same_limit_for_generations():
    assert MAX_AHEAD.total_seconds() == hook.MAX_AHEAD_SECONDS


def test_generation_far_in_the_future_is_rejected():
    latest = NOW + hook.MAX_AHEAD_SECONDS + hook.MAX_SKEW_SECONDS
    assert read(ad_text(DataLocalityGeneration=str(latest)))["DataLocalityGeneration"] == latest
    assert "clock" in refusal(ad_text(DataLocalityGeneration=str(latest + 1)))


@pytest.mark.parametrize(
    "forged",
    [
        {"DataLocalityGeneration": "999999999999999"},
        {"DataLocalityAsOf": "1763690400000"},
        {"DatasetStates": "garbled"},
        {"DataLocalityTruncated": '"é"'},
    ],
)
def test_invalid_ad_in_the_collector_does_not_hide_a_valid_one(forged):
    texts = [ad_text(**forged), ad_text()]
    for order in (texts, texts[::-1]):
        assert (
            hook.read_classads("\n".join(order).encode(), "UK", NOW)["DataLocalityGeneration"] == 1763690399
        )
    with pytest.raises(hook.InvalidAd):
        hook.read_classads(texts[0].encode(), "UK", NOW)
