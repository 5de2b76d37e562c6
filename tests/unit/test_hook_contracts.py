"""The attributes of an ad, as the hook reads them from each source, and ads of another contract."""

import gzip
import http.server
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hydrator import startd_cron as hook
from hydrator.domain.ads.contract import CONTRACT_VERSION, SET_ATTRIBUTES
from tests.pythons import pythons
from tests.unit.test_startd_cron import (
    ADDED,
    COLLECTOR_23_9,
    NOW,
    ad_lines,
    ad_text,
    as_of,
    failed,
    ok,
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
Respond = Callable[[http.server.BaseHTTPRequestHandler], None]


# ------------------------------------------------------------------------------- attributes and limits


def test_hook_and_daemon_have_the_same_attributes():
    assert hook.READERS.keys() >= {*SET_ATTRIBUTES, UNTIL}
    assert hook.CONTRACT == CONTRACT_VERSION


def test_ad_without_its_sets_is_truncated():
    assert refusal(ad_text(DataLocalitySets=None)) == "the ad is truncated: it lacks DataLocalitySets"


@pytest.mark.parametrize("name", hook.OPTIONAL_ATTRIBUTES)
def test_other_attributes_are_optional(name):
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
    for name in SET_ATTRIBUTES[:5]:
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


@pytest.mark.outside
@pytest.mark.parametrize("python", pythons())
def test_ad_of_another_contract_leaves_the_last_copy(run, server, python):
    clean = [python, "-I", "-S"]
    server.respond = ok()
    run("--site", "UK", "--url", server.url, python=clean)
    server.respond = ok(ad_text(DataLocalityVersion="2", DataLocalityNew="[]"), ETag='"9"')
    done = run("--site", "UK", "--url", server.url, python=clean)
    assert (done.returncode, printed(done)) == (1, {**ad_lines(), **ADDED})
    assert "the ad has contract version 2, this hook reads 1" in done.stdout.split("- trouble")[0]


@pytest.mark.outside
def test_malformed_ad_is_one_reason_and_the_last_answer(run, server):
    server.respond = ok()
    run("--site", "UK", "--url", server.url)
    server.respond = ok(ad_text(DataLocalityReadSeconds="['a:1'=-1]"), ETag='"9"')
    done = run("--site", "UK", "--url", server.url)
    assert (done.returncode, printed(done)) == (1, {**ad_lines(), **ADDED})
    assert "in DataLocalityReadSeconds" in done.stdout.split("- trouble")[0]


@pytest.mark.outside
def test_malformed_ad_without_a_copy_prints_only_the_reason(run, server):
    server.respond = ok(gzip.compress(ad_text(DataLocalitySets="[]]").encode()), Content_Encoding="gzip")
    failed(run("--site", "UK", "--url", server.url), 1, "in DataLocalitySets")


@pytest.mark.outside
def test_url_with_a_placeholder_is_requested_unchanged_with_its_etag(run, server):
    server.respond = ok()
    for _ in range(2):
        run("--site", "UK", "--url", server.url + "/ads/{site}")
    assert [path for path, _ in server.asked] == ["/ads/UK", "/ads/UK"]
    assert server.asked[1][1]["if-none-match"] == '"1763690399"'


# ------------------------------------------------------------------------------------------------ files


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "ads"
    path.mkdir()
    return path


@pytest.mark.outside
@pytest.mark.parametrize("python", pythons())
def test_folder_is_read_on_each_python(run, folder, python):
    wrote(folder / "UK.ad", ad_text())
    done = run("--site", "UK", "--file", folder, python=[python, "-I", "-S"])
    assert printed(done) == {**ad_lines(), **ADDED}


@pytest.mark.outside
def test_malformed_file_is_one_reason(run, folder):
    wrote(folder / "UK.ad", ad_text()[:-30])
    failed(run("--site", "UK", "--file", folder), 1, "UK.ad is not valid", "truncated")


@pytest.mark.outside
def test_file_that_cannot_be_read_is_an_error(run, folder):
    (folder / "UK.ad").mkdir()
    failed(run("--site", "UK", "--file", folder), 1, "cannot read", "UK.ad")


@pytest.mark.outside
def test_folder_without_the_site_names_the_file(run, folder):
    failed(run("--site", "UK", "--file", folder), 1, f"cannot read {folder}/UK.ad", "--site")


@pytest.mark.outside
def test_path_with_a_placeholder_is_read_unchanged(run, folder):
    wrote(folder / "UK.txt", ad_text())
    assert printed(run("--site", "UK", "--file", f"{folder}/{{site}}.txt")) == {**ad_lines(), **ADDED}


# -------------------------------------------------------------------------------------------- collector


def test_newest_valid_ad_of_a_site_counts():
    texts = [ad_text(), ad_text(DataLocalityAsOf=str(NOW - 9))]
    texts += [ad_text(DataLocalityAsOf=str(NOW + 9), **wrong) for wrong in OF_OTHERS]
    assert hook.as_of_seconds(hook.read_classads("\n".join(texts).encode(), "UK", NOW)) == NOW


OF_OTHERS = ({"DataLocalityVersion": "2"}, {"DataLocalitySets": "?"})


@pytest.mark.outside
def test_a_stand_in_condor_status_is_asked_for_the_new_attributes(run, tmp_path):
    (tmp_path / "out").write_text(COLLECTOR_23_9)
    tools = stand_in(
        tmp_path, "condor_status", f'printf "%s\\n" "$@" > {tmp_path}/asked; cat {tmp_path}/out\n'
    )
    done = run("--site", "UK", "--collector", "cm", PATH=f"{tools}:/usr/bin:/bin")
    assert printed(done)["DataLocalityReadFrom"] == "['c:@l@!3'=\"RAL; no 2\"]"
    assert "DataLocalityEstimatesUntil" in (tmp_path / "asked").read_text()
