"""Whatever text reaches the hook, the startd gets nothing, or our attributes with literals."""

import os
import re

import classad2
from hypothesis import given, settings
from hypothesis import strategies as st

from hydrator import startd_cron as hook

NOW = 1_763_690_400
OPENINGS = "|".join(hook.OPENINGS)
NAMES = "|".join(name for name in hook.READERS if name not in hook.OPENINGS)
DID = r"[A-Za-z0-9._:/@=+~-]{1,500}"
KEY = r"(?:'[A-Za-z0-9._:/@=+~,-]{1,500}'|s[A-Za-z0-9]{20})"
ITEM = rf"""{KEY}=(?:"[ -!#-\[\]-~]*"|\d+|[01]\.\d+)"""
LITERAL = "|".join(
    [
        r"true|false",
        r"\d+",
        r"[01]\.\d+",
        r'"[ -!#-&(-\[\]-~]*"',
        rf'\(\{{(?:"{DID}"(?:,"{DID}")*)?\}}\)',
        rf"\(\[(?:{ITEM}(?:;{ITEM})*)?\]\)",
    ]
)
TROUBLE = re.compile(r'\nDataLocalityError = (?:undefined|"[^"\\\n]{1,300}")\n- trouble\n')
LOGIC = "".join(f"{name} = {text}\n" for name, text in hook.EXPRESSIONS.items())
OURS = re.compile(
    rf"(?:\n(?:(?:{OPENINGS}) = (?:{LITERAL})\n)+- openings( update:true)?\n)?"
    rf"\n(?:(?:{NAMES}) = (?:{LITERAL})\n)+"
    rf'{re.escape(LOGIC)}DataLocalitySource = "hook"\n- locality( update:true)?\n'
)
"""What may reach a startd, written a second time and differently from the hook's own reading."""

dids = st.text(hook.DID_CHARACTERS, min_size=1, max_size=60)
moments = st.integers(0, NOW)
shares = st.floats(0, 1).map(abs)
MOST_AHEAD = hook.MAX_AHEAD_SECONDS + hook.MAX_SKEW_SECONDS


def records(values: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    pairs = st.lists(st.tuples(dids, values), max_size=4, unique_by=lambda pair: pair[0].lower())
    return pairs.map(dict)


keys = st.sampled_from(
    [(), ("s" + "2" * 20,), ("ska:@A1", "s" + "z" * 20 + "~3"), ("x,y", "@@", "a.b_c:d/e@F=g+h~i-j")]
)
seconds = st.integers(0, hook.MAX_SECONDS)
sources = st.sampled_from(["RAL", "SKA UK (Cambridge)", "A;B=[x],{y}", ";", "", "d'Azur"])


@st.composite
def answers(draw: st.DrawFn, as_of: int) -> dict[str, object]:
    """The answers for sets, with the same sets in each record, as the daemon mostly has them."""
    names = draw(keys)
    values = {
        "DataLocalitySets": shares,
        "DataLocalitySetsAsOf": st.integers(0, as_of),
        "DataLocalityOpen": seconds,
        "DataLocalityReadFrom": sources,
    }
    records = {name: {key: draw(value) for key in names} for name, value in values.items()}
    until = draw(st.integers(0, NOW + MOST_AHEAD))
    return {
        **records,
        "DataLocalityBacklog": draw(st.integers(0, 10**9)),
        "DataLocalityOpenUntil": until,
    }


sites = st.text("ABCdef-_ .:019/", min_size=1, max_size=20)


@st.composite
def ads(draw: st.DrawFn) -> dict[str, object]:
    """An ad as the daemon may mean it: no fact younger than the ad, the ad not younger than NOW."""
    as_of = draw(moments)
    ad = {
        "DataLocalitySite": draw(sites),
        "AvailableDatasets": draw(st.lists(dids, max_size=8, unique_by=str.lower)),
        "DatasetStates": draw(records(st.sampled_from(sorted(hook.STATES)))),
        "DatasetFractions": draw(records(shares)),
        "DatasetAsOf": draw(records(st.integers(0, as_of))),
        "DataLocalityTruncated": draw(st.booleans()),
        **draw(answers(as_of)),
        "DataLocalityAsOf": as_of,
        "DataLocalityGeneration": draw(st.integers(0, NOW + MOST_AHEAD)),
        "DataLocalityVersion": hook.CONTRACT,
    }
    left_out = draw(st.sets(st.sampled_from(sorted(hook.OPTIONAL_ATTRIBUTES))))
    return {name: value for name, value in ad.items() if name not in left_out}


def both_blocks(ad: dict[str, object]) -> bytes:
    return hook.openings_block(ad, is_update=True) + hook.locality_block(ad, is_update=True)


def accepted(text: bytes, site: str) -> bytes:
    """What the hook would print for *text*; nothing where it refuses."""
    try:
        return both_blocks(hook.read_ad(text, site, NOW))
    except hook.InvalidAd:
        return b""


@given(ads())
def test_reading_what_was_written_changes_nothing(ad):
    assert hook.read_ad(hook.ad_text(ad).encode(), str(ad["DataLocalitySite"]), NOW) == ad


@given(ads())
def test_what_is_printed_is_ours_and_the_same_text_again(ad):
    text = hook.ad_text(ad)
    out = accepted(text.encode(), str(ad["DataLocalitySite"])).decode()
    assert OURS.fullmatch(out)
    assert literals(out)
    bare = re.sub(r"(?m) = \((.*)\)$", r" = \1", out)
    openings, facts = [
        "".join(line for line in text.splitlines(True) if (line.split(" ")[0] in hook.OPENINGS) == is_opening)
        for is_opening in (True, False)
    ]
    first = f"\n{openings}- openings update:true\n" if openings else ""
    assert bare == f'{first}\n{facts}{LOGIC}DataLocalitySource = "hook"\n- locality update:true\n'


def literals(out: str) -> bool:
    """Return True if HTCondor's own parser finds only literals in *out*."""
    ad = classad2.ClassAd()
    for name, text in re.findall(r"(?m)^(\w+) = (.*)$", out.replace(LOGIC, "")):
        ad[name] = tree = classad2.ExprTree(text)
        assert {*ad.externalRefs(tree), *ad.internalRefs(tree)} <= {""}, name
        assert not isinstance(ad.eval(name), classad2.Value), name
    return True


@given(st.binary(max_size=400))
def test_noise_prints_nothing(noise):
    assert accepted(noise, "UK") == b""


POISON = st.sampled_from(
    [
        *(
            b"START = true\n",
            b"\nSTART = true\n",
            b"- locality\n",
            b"-\n",
            b'"; START = true; x = "',
            b"\0",
            b"\r",
            b"\n",
        ),
        *(
            b"TARGET.Owner",
            b'strcat("a")',
            b"'",
            b'"',
            b"\\",
            b"]",
            b"}",
            b";",
            b",",
            b"=",
            b" ",
            b"\xc3\xa9",
            b"time()",
        ),
    ]
)


@settings(max_examples=400)
@given(ads(), st.data())
def test_no_damage_and_no_poison_passes(ad, data):
    text = hook.ad_text(ad).encode()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        drop = data.draw(st.integers(0, 30))
        text = text[:at] + data.draw(POISON | st.binary(max_size=6)) + text[at + drop :]
    out = accepted(text, str(ad["DataLocalitySite"])).decode()
    assert not out or OURS.fullmatch(out)


@settings(max_examples=300)
@given(ads(), st.data())
def test_no_poison_passes_by_way_of_a_collector(ad, data):
    text = hook.ad_text(ad).encode()
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(POISON) + text[at:] + b'MyType = "DataLocality"\nRequirements = START\n'
    try:
        out = both_blocks(hook.read_classads(text, str(ad["DataLocalitySite"]), NOW)).decode()
    except (hook.InvalidAd, hook.AdNotServed):
        return
    assert OURS.fullmatch(out)


@given(ads(), st.integers(1, 4000))
def test_a_text_that_ends_early_is_torn(ad, missing):
    text = hook.ad_text(ad).encode()
    assert accepted(text[: max(0, len(text) - missing)], str(ad["DataLocalitySite"])) == b""


@given(ads(), moments)
def test_time_never_makes_an_ad_younger(ad, now):
    text = hook.ad_text(ad).encode()
    try:
        read = hook.read_ad(text, str(ad["DataLocalitySite"]), now)
    except hook.InvalidAd:
        young = int(str(ad["DataLocalityAsOf"])) > now + hook.MAX_SKEW_SECONDS
        ahead = (ad["DataLocalityGeneration"], ad.get("DataLocalityOpenUntil", 0))
        assert young or max(int(str(each)) for each in ahead) > now + MOST_AHEAD
        return
    as_of, until = int(str(ad["DataLocalityAsOf"])), ad.get("DataLocalityOpenUntil")
    assert read["DataLocalityAsOf"] == min(as_of, now)
    assert read.get("DataLocalityOpenUntil") == (until and max(0, int(str(until)) - max(0, as_of - now)))
    assert all(at <= read["DataLocalityAsOf"] for at in read["DatasetAsOf"].values())


@given(st.lists(st.text(max_size=40), max_size=5))
def test_no_command_line_raises_or_prints_more_than_one_string_that_says_what_is_wrong(argv):
    out = os.memfd_create("out")
    try:
        if not {"--help", "--version"} & set(argv):
            assert hook.main(argv, {}, output_fd=out) in (0, 2)
            assert TROUBLE.fullmatch(os.pread(out, 10_000, 0).decode("ascii"))
    finally:
        os.close(out)


@given(st.text())
def test_no_trouble_ends_its_string(text):
    assert TROUBLE.fullmatch(hook.trouble_block(text).decode("ascii"))
