"""The hook with ads of both contracts: their attributes, and which of two ads it takes from each source."""

import gzip
import http.server
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hydrator import startd_cron as hook
from hydrator.domain.ads.contract import CONTRACT_VERSION, OBSERVE_ATTRIBUTE, SET_ATTRIBUTES
from tests.pythons import pythons
from tests.unit.test_startd_cron import (
    ADDED,
    COLLECTOR_23_9,
    NOW,
    STATES,
    Run,
    Server,
    ad_lines,
    ad_text,
    as_of,
    failed,
    glidein_config,
    ok,
    old_ad_text,
    printed,
    raw,
    read,
    refusal,
    run,
    server,
    stand_in,
    wrote,
)

__all__ = ["run", "server"]  # fixtures

UNTIL = "DataLocalityEstimatesUntil"
NEWEST = "/v2/sites/UK/ad"
OLDEST = "/v1/sites/UK/ad"
Respond = Callable[[http.server.BaseHTTPRequestHandler], None]


# ------------------------------------------------------------------------------- attributes and limits


def test_hook_and_daemon_have_the_same_new_attributes():
    assert set(hook.NEW_ATTRIBUTES) == {*SET_ATTRIBUTES, UNTIL, OBSERVE_ATTRIBUTE}
    assert hook.CONTRACT == CONTRACT_VERSION


def test_ad_of_contract_1_is_printed_unchanged():
    assert hook.ad_text(read(old_ad_text())) == old_ad_text()


@pytest.mark.parametrize("name", hook.NEW_ATTRIBUTES)
def test_ad_of_contract_1_with_a_new_attribute_is_rejected(name):
    text = f"{name} = {ad_lines()[name]}\n" + old_ad_text()
    assert refusal(text) == f"the ad has contract version 1, which does not have {name}"


def test_ad_of_contract_2_without_its_sets_is_truncated():
    assert refusal(ad_text(DataLocalitySets=None)) == "the ad is truncated: it lacks DataLocalitySets"


@pytest.mark.parametrize("name", hook.NEW_ATTRIBUTES[1:])
def test_other_new_attributes_are_optional(name):
    assert name not in read(ad_text(**{name: None}))


@pytest.mark.parametrize(
    ("name", "literal"),
    [
        ("DataLocalitySets", "['a:1'=1.01]"),
        ("DataLocalitySets", "['a:1'=-0.1]"),
        ("DataLocalitySets", "['a:1'=nan]"),
        ("DataLocalitySets", "['a:1'=\"1.0\"]"),
        ("DataLocalitySets", "['a:1'=1.0;'A:1'=1.0]"),
        ("DataLocalitySets", "[s2bc=1.0;S2bc=1.0]"),
        ("DataLocalitySets", "['a 1'=1.0]"),
        ("DataLocalitySets", "['a;1'=1.0]"),
        ("DataLocalitySets", "['a#1'=1.0]"),
        ("DataLocalitySets", "['" + "x" * 1001 + "'=1.0]"),
        ("DataLocalitySets", "[]]"),
        ("DataLocalitySets", "{}"),
        ("DataLocalitySetsAsOf", "['a:1'=time()]"),
        ("DataLocalitySetsAsOf", "['a:1'=1.5]"),
        ("DataLocalityReadSeconds", "['a:1'=-1]"),
        ("DataLocalityReadSeconds", "['a:1'=1.5]"),
        ("DataLocalityReadSeconds", "['a:1'=315360001]"),
        ("DataLocalityQueueSeconds", "['a:1'=315360001]"),
        ("DataLocalityQueueSeconds", "['a:1'=undefined]"),
        ("DataLocalityReadFrom", "['a:1'=UK]"),
        ("DataLocalityReadFrom", '[\'a:1\'="U\\"K"]'),
        ("DataLocalityReadFrom", "['a:1'=\"U\tK\"]"),
        ("DataLocalityReadFrom", "['a:1'=\"UK]"),
        ("DataLocalityReadFrom", '[\'a:1\'="UK";"]'),
        ("DataLocalityReadFrom", '[\'a:1\'="UK"+"x"]'),
        ("DataLocalityReadFrom", "['a:1'=\"" + "x" * 201 + '"]'),
        ("DataLocalityOwnQueueSeconds", "-1"),
        ("DataLocalityOwnQueueSeconds", "315360001"),
        ("DataLocalityOwnQueueSeconds", "1.0"),
        (UNTIL, "time()+900"),
        (UNTIL, "1763690400.5"),
        (UNTIL, "-1"),
    ],
)
def test_value_that_is_not_a_literal_of_its_type_is_rejected(name, literal):
    assert refusal(ad_text(**{name: literal})).startswith(f"in {name}: ")


@pytest.mark.parametrize(
    ("name", "literal"),
    [
        ("DataLocalitySets", "[]"),
        ("DataLocalitySets", "['ska:@A@!b/c.d=e+f~g-h_i'=0.0]"),
        ("DataLocalitySets", "['" + "x" * 1000 + "'=0.99]"),
        ("DataLocalityReadSeconds", "['a:1'=315360000]"),
        ("DataLocalityReadFrom", "['a:1'=\"A;B=[x],{y}\";'b:2'=\";\"]"),
        ("DataLocalityReadFrom", "['a:1'=\"Observatoire de la Cote d'Azur\"]"),
    ],
)
def test_extreme_values_are_printed_unchanged(name, literal):
    text = ad_text(**{name: literal})
    assert hook.ad_text(read(text)) == text


def test_hashed_keys_need_no_quotes_and_get_none():
    key = "s" + "2" * 20
    text = ad_text(DataLocalitySets=f"[{key}=1.0]")
    assert hook.ad_text(read(text)) == text
    assert hook.ad_text(read(ad_text(DataLocalitySets=f"['{key}'=1.0]"))) == text


def test_thousand_sets_fill_no_line():
    keys = [f"s{number:020}" for number in range(1000)]
    one = {
        "DataLocalitySets": "0.25",
        "DataLocalitySetsAsOf": str(NOW),
        "DataLocalityReadSeconds": "65536",
        "DataLocalityQueueSeconds": "65536",
        "DataLocalityReadFrom": '"A-SITE-OF-20-LETTERS"',
    }
    records = {name: "[" + ";".join(f"{key}={value}" for key in keys) + "]" for name, value in one.items()}
    block = hook.locality_block(read(ad_text(**records)), is_update=False)
    assert max(map(len, block.split(b"\n"))) < 60_000


def test_ad_of_more_than_a_mebibyte_is_rejected():
    long_record = "[" + ";".join(f"'{number:0997}'=1.0" for number in range(64)) + "]"
    ad = read(ad_text(DataLocalitySets=long_record))
    names = [f"DataLocality{number}" for number in range(20)]
    with pytest.raises(hook.InvalidAd, match="1048576 are allowed"):
        hook.locality_block({**ad, **dict.fromkeys(names, ad["DataLocalitySets"])}, is_update=False)


def test_records_by_set_are_printed_in_parentheses_so_that_slots_share_them():
    block = hook.locality_block(read(ad_text()), is_update=True).decode()
    lines = dict(line.split(" = ", 1) for line in block.splitlines() if " = " in line)
    for name in hook.NEW_ATTRIBUTES[:5]:
        assert (lines[name][:2], lines[name][-2:]) == ("([", "])")


# ------------------------------------------------------------------------------------------------ times


def test_time_of_a_set_is_never_later_than_the_ad():
    ad = read(ad_text(DataLocalityAsOf=str(NOW + 200), DataLocalitySetsAsOf=f"['a:1'={NOW + 150}]"))
    assert (ad["DataLocalityAsOf"], ad["DataLocalitySetsAsOf"]) == (NOW, {"a:1": NOW})


def test_estimates_of_a_clock_that_is_ahead_end_earlier():
    ad = read(ad_text(DataLocalityAsOf=str(NOW + 200), **{UNTIL: str(NOW + 1100)}))
    assert ad[UNTIL] == NOW + 900


def test_estimates_that_ended_stay_ended():
    assert read(ad_text(**{UNTIL: "0"}))[UNTIL] == 0
    assert read(ad_text(DataLocalityAsOf=str(NOW + 200), **{UNTIL: "7"}))[UNTIL] == 0


def test_estimates_without_an_end_in_sight_are_rejected():
    latest = NOW + hook.MAX_AHEAD_SECONDS + hook.MAX_SKEW_SECONDS
    assert read(ad_text(**{UNTIL: str(latest)}))[UNTIL] == latest
    assert "the ad's estimates end 86701 s in the future" in refusal(ad_text(**{UNTIL: str(latest + 1)}))


@pytest.mark.outside
def test_headers_set_the_end_of_the_estimates(run, server):
    server.respond = ok(X_DataLocality_EstimatesUntil=str(NOW + 1800))
    assert printed(run("--site", "UK", "--url", server.url))[UNTIL] == str(NOW + 1800)
    server.respond = not_modified(X_DataLocality_EstimatesUntil=str(NOW + 2700))
    done = run("--site", "UK", "--url", server.url)
    assert (done.returncode, printed(done)[UNTIL]) == (0, str(NOW + 2700))


@pytest.mark.outside
def test_old_304_does_not_shorten_the_estimates(run, server):
    server.respond = ok(X_DataLocality_EstimatesUntil=str(NOW + 1800))
    run("--site", "UK", "--url", server.url)
    server.respond = not_modified(X_DataLocality_EstimatesUntil=str(NOW + 900))
    assert printed(run("--site", "UK", "--url", server.url))[UNTIL] == str(NOW + 1800)


@pytest.mark.outside
def test_304_without_the_end_of_the_estimates_leaves_it(run, server):
    server.respond = ok()
    run("--site", "UK", "--url", server.url)
    server.respond = not_modified()
    assert printed(run("--site", "UK", "--url", server.url))[UNTIL] == str(NOW + 900)


@pytest.mark.outside
def test_estimates_that_only_a_header_has_survive_in_the_local_copy(run, server):
    server.respond = ok(ad_text(**{UNTIL: None}), X_DataLocality_EstimatesUntil=str(NOW + 1800))
    assert printed(run("--site", "UK", "--url", server.url))[UNTIL] == str(NOW + 1800)
    server.respond = raw(503, {})
    assert printed(run("--site", "UK", "--url", server.url))[UNTIL] == str(NOW + 1800)


@pytest.mark.outside
@pytest.mark.parametrize("odd", ["soon", "-1", "99999999999"])
def test_end_of_the_estimates_that_is_none_leaves_the_last_answer(run, server, odd):
    server.respond = ok()
    run("--site", "UK", "--url", server.url)
    server.respond = ok(X_DataLocality_EstimatesUntil=odd)
    done = run("--site", "UK", "--url", server.url)
    assert (done.returncode, printed(done)[UNTIL]) == (1, str(NOW + 900))


@pytest.mark.outside
def test_copy_after_the_daemons_death_keeps_the_end_of_its_estimates(run, server):
    server.respond = ok(X_DataLocality_EstimatesUntil=str(NOW + 1800))
    run("--site", "UK", "--url", server.url)
    url = server.url
    server.httpd.server_close()
    done = run("--site", "UK", "--url", url)
    assert (done.returncode, as_of(done), printed(done)[UNTIL]) == (1, NOW, str(NOW + 1800))


@pytest.mark.outside
def test_clock_that_is_ahead_does_not_shift_a_copy_twice(run, server):
    now = int(time.time())
    ahead = {"X_DataLocality_AsOf": str(now + 200), "X_DataLocality_EstimatesUntil": str(now + 1100)}
    text = ad_text(DataLocalityAsOf=str(now + 200), **{UNTIL: str(now + 1100)})
    server.respond = ok(text, **ahead)
    first = int(printed(run("--site", "UK", "--url", server.url))[UNTIL])
    server.respond = raw(503, {})
    second = int(printed(run("--site", "UK", "--url", server.url))[UNTIL])
    assert 0 <= first - (now + 900) < 30
    assert second == first


# ------------------------------------------------------------------------------------------- over HTTP


def not_modified(**fields: str) -> Respond:
    headers = {"ETag": '"1763690399"', "X-DataLocality-AsOf": str(NOW)}
    return raw(304, {**headers, **{name.replace("_", "-"): value for name, value in fields.items()}})


def by_path(answers: Mapping[str, Respond]) -> Respond:
    """Answer each path of *answers*; 304 if the request has the ETag of all ads, 404 for another path."""

    def respond(handler: http.server.BaseHTTPRequestHandler) -> None:
        if handler.path in answers and handler.headers["If-None-Match"]:
            not_modified()(handler)
        else:
            answers.get(handler.path, raw(404, {}))(handler)

    return respond


OLD_DAEMON = by_path({OLDEST: ok(old_ad_text())})
NEW_DAEMON = by_path({OLDEST: ok(old_ad_text()), NEWEST: ok()})


def paths(server: Server) -> list[str]:
    """Return the paths that the hook requested since the last call."""
    found = [path for path, _ in server.asked]
    server.asked.clear()
    return found


@pytest.mark.outside
def test_hook_asks_a_new_daemon_once(run, server):
    server.respond = NEW_DAEMON
    for _ in range(3):
        done = run("--site", "UK", "--url", server.url)
        assert (done.returncode, printed(done)) == (0, {**ad_lines(), **ADDED})
        assert paths(server) == [NEWEST]


@pytest.mark.outside
@pytest.mark.parametrize("python", pythons())
def test_hook_asks_an_old_daemon_twice_only_in_its_first_run(run, server, python):
    server.respond = OLD_DAEMON
    expected = [[NEWEST, OLDEST], [OLDEST], [OLDEST]]
    for requests in expected:
        done = run("--site", "UK", "--url", server.url, python=[python, "-I", "-S"])
        assert (done.returncode, done.stderr) == (0, "")
        assert printed(done)["DataLocalityVersion"] == "1"
        assert not printed(done).keys() & set(hook.NEW_ATTRIBUTES)
        assert paths(server) == requests


@pytest.mark.outside
def test_upgraded_daemon_is_noticed_after_half_an_hour(run, server):
    server.respond = OLD_DAEMON
    run("--site", "UK", "--url", server.url)
    server.respond = NEW_DAEMON
    paths(server)
    run("--site", "UK", "--url", server.url)
    assert paths(server) == [OLDEST]
    make_older(run, hook.CONTRACT_RETRY_SECONDS)
    done = run("--site", "UK", "--url", server.url)
    assert (paths(server), printed(done)["DataLocalityVersion"]) == ([NEWEST], "2")
    assert done.stdout.endswith("- locality update:true\n"), "the same generation, but more attributes"


@pytest.mark.outside
def test_old_daemon_is_asked_twice_again_after_half_an_hour(run, server):
    server.respond = OLD_DAEMON
    run("--site", "UK", "--url", server.url)
    make_older(run, hook.CONTRACT_RETRY_SECONDS)
    paths(server)
    assert run("--site", "UK", "--url", server.url).returncode == 0
    assert paths(server) == [NEWEST, OLDEST]
    run("--site", "UK", "--url", server.url)
    assert paths(server) == [OLDEST]


@pytest.mark.outside
def test_a_refusal_from_the_future_does_not_last_for_ever(run, server):
    server.respond = OLD_DAEMON
    run("--site", "UK", "--url", server.url)
    make_older(run, -86400)
    paths(server)
    run("--site", "UK", "--url", server.url)
    assert paths(server) == [NEWEST, OLDEST]


def make_older(run: Run, seconds: int) -> None:
    """Let the refusal of contract 2, in the local copy, be *seconds* older."""
    (copy,) = run.cache.glob("ad-*")
    first, second, rest = copy.read_text().split("\n", 2)
    etag, refused_at = second.split(" ")
    copy.write_text(f"{first}\n{etag} {int(refused_at) - seconds}\n{rest}")


@pytest.mark.outside
def test_downgraded_daemon_answers_with_the_older_contract(run, server):
    server.respond = NEW_DAEMON
    run("--site", "UK", "--url", server.url)
    server.respond = OLD_DAEMON
    done = run("--site", "UK", "--url", server.url)
    assert (done.returncode, printed(done)["DataLocalityVersion"]) == (0, "1")
    assert paths(server) == [NEWEST, NEWEST, OLDEST]


@pytest.mark.outside
def test_etag_of_one_contract_is_not_sent_to_the_other(run, server):
    """The ads of both contracts have the same generation, and so the same ETag."""
    server.respond = OLD_DAEMON
    run("--site", "UK", "--url", server.url)
    make_older(run, hook.CONTRACT_RETRY_SECONDS)
    server.respond = NEW_DAEMON
    server.asked.clear()
    run("--site", "UK", "--url", server.url)
    assert [("if-none-match" in fields) for _, fields in server.asked] == [False]


@pytest.mark.outside
def test_copy_of_an_older_hook_is_used_but_its_etag_is_not(run, server):
    server.respond = OLD_DAEMON
    run("--site", "UK", "--url", server.url)
    (copy,) = run.cache.glob("ad-*")
    first, second, rest = copy.read_text().split("\n", 2)
    as_an_older_hook_writes = f"{first}\n{second.split(' ')[0]}\n{rest}"
    copy.write_text(as_an_older_hook_writes)
    server.respond = NEW_DAEMON
    assert printed(run("--site", "UK", "--url", server.url))["DataLocalityVersion"] == "2"
    copy.write_text(as_an_older_hook_writes)
    server.respond = raw(503, {})
    done = run("--site", "UK", "--url", server.url)
    assert (done.returncode, printed(done)["DataLocalityVersion"]) == (1, "1")


@pytest.mark.outside
@pytest.mark.parametrize("status", [401, 403, 410, 500, 503, 302])
def test_only_404_means_that_the_daemon_is_older(run, server, status):
    server.respond = by_path({OLDEST: ok(old_ad_text()), NEWEST: raw(status, {})})
    failed(run("--site", "UK", "--url", server.url), 1, str(status))
    assert paths(server) == [NEWEST]


@pytest.mark.outside
def test_site_that_no_daemon_has_is_reported_with_the_newest_path(run, server):
    server.respond = by_path({})
    failed(run("--site", "UK", "--url", server.url), 1, f"{server.url}{NEWEST} has no such site (404)")


@pytest.mark.outside
def test_malformed_new_ad_is_one_reason_and_the_last_answer(run, server):
    server.respond = NEW_DAEMON
    run("--site", "UK", "--url", server.url)
    broken = ok(ad_text(DataLocalityReadSeconds="['a:1'=-1]"), ETag='"9"')
    server.respond = lambda handler: (broken if handler.path == NEWEST else ok(old_ad_text()))(handler)
    done = run("--site", "UK", "--url", server.url)
    assert (done.returncode, printed(done)["DataLocalityVersion"]) == (1, "2")
    assert "in DataLocalityReadSeconds" in done.stdout.split("- trouble")[0]


@pytest.mark.outside
def test_malformed_new_ad_without_a_copy_prints_only_the_reason(run, server):
    server.respond = ok(gzip.compress(ad_text(DataLocalitySets="[]]").encode()), Content_Encoding="gzip")
    failed(run("--site", "UK", "--url", server.url), 1, "in DataLocalitySets")


@pytest.mark.outside
def test_url_with_a_placeholder_is_requested_unchanged(run, server):
    for text, version in ((old_ad_text(), "1"), (ad_text(), "2")):
        server.respond = ok(text, ETag=f'"{version}"')
        for _ in range(2):
            done = run("--site", "UK", "--url", server.url + "/ads/{site}")
            assert (done.returncode, printed(done)["DataLocalityVersion"]) == (0, version)
            assert paths(server) == ["/ads/UK"]


@pytest.mark.outside
def test_daemon_with_contract_1_only_through_a_placeholder_gets_its_etag(run, server):
    server.respond = ok(old_ad_text())
    for _ in range(2):
        run("--site", "UK", "--url", server.url + "/v1/sites/{site}/ad")
    assert server.asked[1][1]["if-none-match"] == '"1763690399"'


# ------------------------------------------------------------------------------------------------ files


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "ads"
    path.mkdir()
    return path


def version_in(run: Run, folder: Path) -> str:
    done = run("--site", "UK", "--file", folder)
    assert (done.returncode, done.stderr) == (0, "")
    return printed(done)["DataLocalityVersion"]


@pytest.mark.outside
@pytest.mark.parametrize("python", pythons())
def test_folder_with_both_contracts_is_read_on_each_python(run, folder, python):
    wrote(folder / "UK.ad", old_ad_text())
    clean = [python, "-I", "-S"]
    assert printed(run("--site", "UK", "--file", folder, python=clean))["DataLocalityVersion"] == "1"
    wrote(folder / "UK.v2.ad", ad_text())
    done = run("--site", "UK", "--file", folder, python=clean)
    assert printed(done) == {**ad_lines(), **ADDED}


@pytest.mark.outside
@pytest.mark.parametrize(
    ("lag", "version"), [(-(10**6), "2"), (0, "2"), (900, "2"), (901, "1"), (86400, "1")]
)
def test_ad_left_over_by_a_downgraded_daemon_does_not_count(run, folder, lag, version):
    wrote(folder / "UK.v2.ad", ad_text())
    wrote(folder / "UK.ad", old_ad_text(DataLocalityAsOf=str(NOW + lag)))
    assert version_in(run, folder) == version


@pytest.mark.outside
@pytest.mark.parametrize(
    "text",
    ["", "noise", "DataLocalityAsOf = 9\n", old_ad_text(DatasetStates="?", DataLocalityAsOf="1863690400")],
)
def test_invalid_older_ad_does_not_hide_a_valid_new_one(run, folder, text):
    wrote(folder / "UK.v2.ad", ad_text())
    wrote(folder / "UK.ad", text)
    assert version_in(run, folder) == "2"


@pytest.mark.outside
def test_malformed_new_file_is_one_reason_and_not_the_older_ad(run, folder):
    wrote(folder / "UK.ad", old_ad_text())
    wrote(folder / "UK.v2.ad", ad_text()[:-30])
    failed(run("--site", "UK", "--file", folder), 1, "UK.v2.ad is not valid", "truncated")


@pytest.mark.outside
def test_new_file_that_cannot_be_read_is_an_error(run, folder):
    wrote(folder / "UK.ad", old_ad_text())
    (folder / "UK.v2.ad").mkdir()
    failed(run("--site", "UK", "--file", folder), 1, "cannot read", "UK.v2.ad")


@pytest.mark.outside
def test_folder_without_the_site_names_the_older_file(run, folder):
    failed(run("--site", "UK", "--file", folder), 1, f"cannot read {folder}/UK.ad", "--site")


@pytest.mark.outside
def test_site_that_looks_like_a_contract_does_not_take_the_other_sites_ad(run, folder):
    wrote(folder / "UK.v2.ad", ad_text())
    wrote(folder / "UK%2Ev2.ad", old_ad_text(DataLocalitySite='"UK.v2"'))
    assert printed(run("--site", "UK.v2", "--file", folder))["DataLocalitySite"] == '"UK.v2"'
    assert printed(run("--site", "UK", "--file", folder))["DataLocalitySite"] == '"UK"'


@pytest.mark.outside
def test_path_with_a_placeholder_is_read_unchanged(run, folder):
    wrote(folder / "UK.ad", old_ad_text())
    wrote(folder / "UK.v2.ad", ad_text())
    done = run("--site", "UK", "--file", f"{folder}/{{site}}.ad")
    assert printed(done)["DataLocalityVersion"] == "1"


# -------------------------------------------------------------------------------------------- collector


def test_valid_ad_of_the_highest_contract_counts():
    for texts in ([old_ad_text(), ad_text()], [ad_text(), old_ad_text(), old_ad_text()]):
        assert chosen(*texts) == 2
    assert chosen(old_ad_text(), ad_text(DataLocalitySets="?")) == 1
    assert chosen(old_ad_text()) == 1


@pytest.mark.parametrize(("lag", "version"), [(0, 2), (900, 2), (901, 1)])
def test_ad_that_a_downgraded_daemon_left_in_the_collector_does_not_count(lag, version):
    assert chosen(ad_text(DataLocalityAsOf=str(NOW - lag)), old_ad_text()) == version


def test_newest_ad_of_one_contract_counts():
    ad = hook.read_classads(
        "\n".join([ad_text(), ad_text(DataLocalityAsOf=str(NOW - 9))]).encode(), "UK", NOW
    )
    assert hook.as_of_seconds(ad) == NOW


def chosen(*texts: str) -> int:
    return hook.contract_of(hook.read_classads("\n".join(texts).encode(), "UK", NOW))


@pytest.mark.outside
def test_a_stand_in_condor_status_is_asked_for_the_new_attributes(run, tmp_path):
    (tmp_path / "out").write_text(COLLECTOR_23_9)
    tools = stand_in(
        tmp_path, "condor_status", f'printf "%s\\n" "$@" > {tmp_path}/asked; cat {tmp_path}/out\n'
    )
    done = run("--site", "UK", "--collector", "cm", PATH=f"{tools}:/usr/bin:/bin")
    assert printed(done)["DataLocalityReadFrom"] == "['c:@l@!3'=\"RAL; no 2\"]"
    assert "DataLocalityEstimatesUntil" in (tmp_path / "asked").read_text()


@pytest.mark.outside
def test_help_of_the_hook_names_both_contracts(run):
    text = run("--help").stdout
    assert all(each in text for each in ("/v2/sites/SITE/ad", "/v1/sites/SITE/ad", "SITE.v2.ad", "SITE.ad"))


@pytest.mark.outside
def test_glidein_with_an_old_daemon_gets_its_ad(run, server, tmp_path):
    server.respond = OLD_DAEMON
    path = glidein_config(tmp_path, HYDRATOR_URL=server.url, GLIDEIN_ResourceName="UK")
    done = run(path, "main", GLIDEIN_PERIODIC_SCRIPT="true")
    assert printed(done)["DatasetStates"] == STATES
