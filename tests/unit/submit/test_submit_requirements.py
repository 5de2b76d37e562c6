"""What the schedd's text makes of each job, and what it refuses with which sentence."""

import itertools
import re
import time

import pytest
from classad2 import ClassAd, ExprTree, Value

from hydrator.config import Settings
from hydrator.domain.ads.dataset_sets import hash_key, key_attributes, names_key
from hydrator.domain.ads.expressions import HERE, JOB_RANK, MODES, SLOT_EXPRESSIONS
from hydrator.domain.model import Did
from hydrator.submit.bindings import MAX_SECONDS
from hydrator.submit.gpus import GpuChoice, SlotShare
from hydrator.submit.pool_config import HOLD_SUBCODE, START_CLAUSE, negotiator_config, schedd_config
from tests.schedd_text import ScheddText, job_ad

SCHEDD = ScheddText(schedd_config(Settings()))
A, B = Did("ska:a"), Did("ska:B@c")
BOTH = f'{{"{A}", "{B}"}}'
LONG = [Did(f"lofar:L667000_SAP000_SB{band:03}_uv") for band in range(244)]
LISTED = "{" + ",".join(f'"{did}"' for did in LONG) + "}"
NUMBERS = ("DataLocalityMaxWait", "DataLocalityMaxAge", "DataLocalityExpectedSeconds")
OWN = ("RequiredDatasets", "DataLocality", "DataLocalityMaxWait", "DataLocalityMaxAge")
OWN += ("DataLocalityExpectedSeconds", "DataLocalityKey", "DataLocalityKeyFor", "DataLocalityTransformed")
OWN += ("DataLocalityRefused", "DataLocalityHere")


def made(datasets: str | None = BOTH, schedd: ScheddText = SCHEDD, **more: str):
    given = {} if datasets is None else {"RequiredDatasets": datasets}
    return schedd.transformed({**given, **more})


SENTENCES = {
    "list": "RequiredDatasets must be a list of strings",
    "names": "every name in RequiredDatasets must be scope:name",
    "values": "whole seconds of up to 8 digits",
    "alone": "is RequiredDatasets spelled right",
    "universe": "jobs of the java, parallel and vm universes",
    "local": "has no effect here",
    "transform": "the schedd did not transform this job",
}


def fault(ad, schedd: ScheddText = SCHEDD) -> str | None:
    """Return the key of the sentence that the user of the transformed *ad* is told; None if it is taken."""
    if schedd.refused_by(ad) is None:
        return None
    return next(key for key, words in SENTENCES.items() if words in schedd.reason(ad))


def refused(datasets: str | None = BOTH, schedd: ScheddText = SCHEDD, **more: str) -> str | None:
    return fault(made(datasets, schedd, **more), schedd)


def text(value: str) -> str:
    return f'"{value}"'


# --- the list


@pytest.mark.parametrize(
    "datasets",
    [BOTH, f'"{A},{B}"', f'"{A}, {B}"', f'split("{A} {B}")', f'{{"{A},{B}"}}', f'split("{A},{B}")'],
)
def test_list_and_string_with_commas_become_the_same_list_with_the_key_of_its_names(datasets):
    """Snakemake and others put each value in quotes (cases/submit.md, S31)."""
    ad = made(datasets)
    assert (ad["RequiredDatasets"], ad["DataLocalityKey"]) == ([A, B], names_key([A, B]))
    assert SCHEDD.refused_by(ad) is None
    assert str(ad.lookup("Requirements")) == "(TARGET.Cpus > 1 || false) && (MY.DataLocalityHere isnt false)"
    assert str(ad.lookup("DataLocalityHere")) == str(ExprTree(HERE["auto"]))
    own = made(JobFactoryId="12", ClusterId="12", DataLocalityRank="5")  # as $(ClusterId) gives it
    assert fault(own) == "transform"
    assert str(ad.lookup("DataLocalityRank")) == str(ExprTree(JOB_RANK))
    assert ad["DataLocalityTransformed"] is True
    assert not {"DataLocalityRefused", "DataLocalityKeyFor"} & set(ad)


def test_clause_that_condor_submit_appends_is_shared_by_the_jobs_of_a_cluster():
    """The schedd stores a clause of the transform in each job, 6 kB a job."""
    [appended] = re.findall(r"^APPEND_REQUIREMENTS = (.*)", SCHEDD.text, re.MULTILINE)
    requirements = appended.replace("$(APPEND_REQUIREMENTS:true)", "TARGET.Cpus > 1")
    ad = made(Requirements=requirements)
    assert str(ad.lookup("Requirements")) == str(ExprTree(requirements))
    assert ExprTree(requirements).eval(job_ad({}), ClassAd({"Cpus": 2})) is True, "without datasets"
    assert "APPEND_REQUIREMENTS" not in schedd_config(Settings(), rank_only=True)


@pytest.mark.parametrize(
    "did", ["a/b:c/d", "a::b", "a:b@c=d+e~f-g.h_i", f"a:{'x' * 498}"], ids=lambda did: did[:12]
)
def test_every_did_that_the_model_accepts_is_taken(did):
    assert refused(f'{{"{did}"}}') is None


LISTS = {
    "list": [
        "ska",
        "5",
        "{}",
        '{"ska:a", 5}',
        '{{"ska:a"}}',
        '""',
        r'{"ska:\"a"}',
        '{"x:a", y}',
        '{"ska:é"}',
    ],
    "names": [
        '{"ska:a b"}',
        '{"ska:a#b"}',
        '{"a"}',
        '{""}',
        '{"ska:a", ""}',
        '{":a"}',
        '{"ska:"}',
        f'{{"ska:{"x" * 497}"}}',
        '","',
    ],
}


@pytest.mark.parametrize(
    ("name", "datasets"), [(name, each) for name, lists in LISTS.items() for each in lists], ids=repr
)
def test_list_that_is_not_of_datasets_is_refused_by_the_rule_of_its_fault(name, datasets):
    ad = made(datasets)
    assert fault(ad) == name
    assert "DataLocalityHere" not in ad


def test_illegal_character_is_named():
    """CMS's blocks have a number sign (cases/submit.md, S9)."""
    reason = SCHEDD.reason(made('{"cms:/A/B/RAW#12ac-3", "x:b"}'))
    assert "not with #: cms:/A/B/RAW#12ac-3,x:b" in reason


@pytest.mark.parametrize("name", OWN)
def test_attribute_that_refers_to_itself_is_evaluated_by_nothing(name):
    """The engine of 23.9 evaluates it without end (S5); here it would become undefined."""
    endless = f"false ? {{}} : {name}"
    ad = made(**{name: endless})
    if name in {"RequiredDatasets", "DataLocality", *NUMBERS}:
        assert str(ad.lookup(name)).startswith("false ? ")
        assert fault(ad) == ("list" if name == "RequiredDatasets" else "values")
    else:
        assert ad["DataLocalityKey"] == names_key([A, B]), "the transform makes its own"
        assert fault(ad) is None


def test_nothing_evaluates_an_attribute_of_a_user_before_its_text_was_looked_at():
    """Outside unparse(…) only what the schedd makes is named, or what a guard has passed."""
    transform = SCHEDD.transform.partition("if $(dl_good)")[0]
    guards = [
        *re.findall(r"EVALMACRO dl_(?:gpu|copy|factory|wrong) (.*)", transform),
        re.findall(r"EVALMACRO dl_until (.*) \? ", transform)[0],
        re.findall(r"EVALMACRO dl_good (.*) && regexp", transform)[0],
        *(SCHEDD.macros[f"SUBMIT_REQUIREMENT_{name}"] for name in SCHEDD.requirements),
        SCHEDD.macros["SUBMIT_REQUIREMENT_DataLocalityTransform_REASON"],
    ]
    assert len(guards) == 10
    for guard in guards:
        assert attributes_in(SCHEDD.expand(guard, {"dl_copy": "true"})) <= {"true"}, guard
    passed = {"RequiredDatasets", "DataLocality", *NUMBERS, "DataLocalityKey", "ClusterId", "ProcId"}
    for macro in (
        "dl_names",
        "dl_other",
        "dl_hash",
        "dl_cluster",
        "dl_ends",
        "dl_here",
        "dl_for",
    ):
        for text in re.findall(rf"EVALMACRO {macro} (.*)", SCHEDD.transform):
            assert attributes_in(SCHEDD.expand(text, dict.fromkeys(SCHEDD_MACROS, "0"))) <= passed, macro
    for name, text in re.findall(r"EVALSET (\w+) (.*)", SCHEDD.transform):
        assert attributes_in(SCHEDD.expand(text, dict.fromkeys(SCHEDD_MACROS, "0"))) <= passed, name


def test_slots_negotiator_and_start_evaluate_what_the_transform_makes_or_removes():
    """They reach a key, a lane and an age through the job's rank and clause only."""
    texts = (*SLOT_EXPRESSIONS.values(), negotiator_config(), START_CLAUSE)
    named = {name for text in texts for name in re.findall(r"TARGET\.(\w+)", text)}
    made_here = set(re.findall(r"(?:SET|DELETE) (\w+)", SCHEDD.transform))
    assert named <= made_here
    removed = set(re.findall(r"DELETE (\w+)", SCHEDD.transform.partition("if $(dl_good)")[0]))
    assert removed == {"DataLocalityRank", "DataLocalityHere", "DataLocalityAnyAfter", "GPUPreference"}


SCHEDD_MACROS = re.findall(r"EVALMACRO (\w+)", SCHEDD.transform)


def attributes_in(expression: str) -> set[str]:
    """Return the names in *expression* outside of texts and unparse(…), functions and TARGET left out."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", re.sub(r"unparse\(\w+\)", "", expression))
    return set(re.findall(r"\b[A-Za-z_]\w*\b(?!\()", bare)) - {"TARGET", "isnt", "undefined"}


HIDDEN = ("Refused", "Transformed", "Rank", "Here", "Lane", "AnyAfter", "MaxAge", "Start", "Key")


@pytest.mark.parametrize("name", [f"DataLocality{name}" for name in HIDDEN])
def test_job_without_datasets_keeps_no_attribute_that_slots_or_the_negotiator_evaluate(name):
    endless = f"false ? {{}} : {name}"
    ad = made(None, **{name: endless})
    assert fault(ad) == ("alone" if name == "DataLocalityMaxAge" else None)
    assert (name in ad) == (name not in {"DataLocalityRank", "DataLocalityHere", "DataLocalityAnyAfter"})


@pytest.mark.parametrize("mode", MODES)
def test_lane_and_end_of_a_wait_are_never_a_users(mode):
    ad = made(DataLocality=text(mode), DataLocalityLane="endless", DataLocalityAnyAfter="endless")
    assert isinstance(ad["DataLocalityLane"], int)
    assert isinstance(ad.get("DataLocalityAnyAfter", 0), int)


RANK_ONLY = ScheddText(schedd_config(Settings(), rank_only=True))


@pytest.mark.parametrize("schedd", [SCHEDD, RANK_ONLY], ids=["in force", "rank only"])
@pytest.mark.parametrize("name", ["Rank", "Here", "Lane", "AnyAfter", "Key"])
@pytest.mark.parametrize("datasets", [BOTH, None], ids=["with datasets", "without"])
def test_no_text_of_a_user_stays_for_slots_and_the_negotiator(schedd, name, datasets):
    """The negotiator and slots evaluate them: a text that refers to itself would not end on 23.9 (S5)."""
    name = f"DataLocality{name}"
    wanted = made(datasets, schedd)
    reached = {"DataLocalityRank", "DataLocalityHere", *([] if datasets is None else [name])}
    for wrong in (
        f"false ? {{}} : {name}",
        name,
        f"MY.{name}",
        f"TARGET.A + {name}",
        "tru",
        "'true'",
        "isE5",
        "time",
        "undef",
    ):
        ad = made(datasets, schedd, DataLocalityTransformed="true", **{name: wrong})
        assert fault(ad, schedd) is None
        assert texts(ad, reached) == texts(wanted, reached), wrong
        assert isinstance(ad.get("DataLocalityAnyAfter", 0), int)


def test_no_two_texts_together_look_like_one_that_a_transform_writes():
    said = {"DataLocalityKey": "undef", "DataLocalityLane": "ined"}
    ad = made(DataLocalityTransformed="true", **said)
    assert (ad["DataLocalityKey"], ad["DataLocalityLane"] in range(11)) == (names_key([A, B]), True)


def texts(ad: ClassAd, names: set[str]) -> dict[str, str]:
    return {name: str(ad.lookup(name)) for name in names - {"DataLocalityAnyAfter"} if name in ad}


CHOICES = [
    GpuChoice(SlotShare(2, 1000), SlotShare(16, 64_000), properties)
    for properties in ("", "Capability >= 8.0 && GlobalMemoryMb > 2e4", 'regexp("A100", DeviceName)')
]


@pytest.mark.parametrize("transformed", ["false", "true"])
@pytest.mark.parametrize("datasets", [BOTH, None], ids=["with datasets", "without"])
def test_preference_of_gpus_stays_only_if_nothing_in_it_refers_to_the_job(datasets, transformed):
    """The negotiator evaluates it for every job, and the properties with it."""
    said = {"DataLocalityTransformed": transformed}
    for choice in CHOICES:
        ad = made(datasets, **said, **choice.attributes)
        assert str(ad.lookup("GPUPreference")) == str(ExprTree(choice.attributes["GPUPreference"]))
    bare = CHOICES[0].attributes["GPUPreference"]
    properties = CHOICES[1].attributes["GPUPreference"]
    for preference, required in (
        ("false ? {} : GPUPreference", "true"),
        ("MY.GPUPreference", "true"),
        (f"{bare} + X", "true"),
        ("'GPUPreference'", "true"),
        ("Capability", "true"),
        ("1e300", "true"),
        (properties, "TARGET.gpupreference"),
        (properties, "regexp"),
        (properties, "false ? {} : RequireGPUs"),
        (properties, "MY.RequireGPUs"),
        (properties, "Capability > 1 && X"),
        (properties, "'X'"),
        (properties, r'"\"" + X + "\""'),
    ):
        ad = made(datasets, **said, GPUPreference=preference, RequireGPUs=required)
        assert "GPUPreference" not in ad, (preference, required)
        assert fault(ad) is None
        assert "RequireGPUs" in ad, "it is HTCondor's own"
    ad = made(datasets, **said, RequireGPUs="X > 1")
    assert "RequireGPUs" in ad


def test_row_without_datasets_is_taken_in_a_cluster_whose_first_row_has_them():
    """An attribute that a transform deletes from a row is undefined: the cluster's ad has it too."""
    first = {"RequiredDatasets": BOTH, "DataLocality": text("wait"), "DataLocalityAnyAfter": "5"}
    ad = SCHEDD.transformed(dict.fromkeys(first, "undefined"), first)
    assert str(ad.lookup("RequiredDatasets")) == "undefined"
    assert fault(ad) is None
    ad = SCHEDD.transformed({"RequiredDatasets": BOTH, "DataLocality": text("require")}, first)
    assert str(ad.lookup("DataLocalityAnyAfter")) == "undefined"
    assert fault(ad) is None
    again = SCHEDD.transformed({name: str(ad.lookup(name)) for name in ad})
    assert str(again) == str(ad)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("datasets", [BOTH, LISTED], ids=["names", "hash"])
def test_copy_of_a_job_router_stays_as_it_is_and_any_other_gets_what_its_list_needs(mode, datasets):
    key = submitted(LONG) if datasets == LISTED else {}
    ranked = ScheddText(schedd_config(Settings(), job_rank=True))
    once = made(datasets, ranked, DataLocality=text(mode), **key)
    texts = {name: str(once.lookup(name)) for name in once}
    routed = ranked.transformed(texts | {"RoutedFromJobId": text("7.0")})
    assert fault(routed) is None
    assert {name: str(routed.lookup(name)) for name in texts} == texts
    until = texts["DataLocalityAnyAfter"].replace("undefined", "0")
    late = ranked.transformed(texts | {"RoutedFromJobId": text("7.0"), "DataLocalityAnyAfter": "5" + until})
    assert str(late.lookup("DataLocalityAnyAfter")) == ("undefined" if mode == "require" else f"5{until}")
    forged = ranked.transformed(texts | {"DataLocalityAnyAfter": "5", "DataLocalityHere": "true"})
    assert fault(forged) is None
    assert (forged["DataLocalityKey"] == once["DataLocalityKey"]) == (datasets == BOTH)  # no text of the hash
    names = ("DataLocalityAnyAfter", "DataLocalityHere", "DataLocalityRank", "Rank", "Requirements")
    assert {name: str(forged.lookup(name)) for name in names} == {name: texts[name] for name in names}


@pytest.mark.parametrize("mode", MODES)
def test_attributes_of_another_job_give_no_job_its_key_or_its_freedom(mode):
    """S3, also with the mark of a transformed job: condor_q -long of one job, edited to another list."""
    other = made(f'{{"{B}"}}', DataLocality=text(mode))
    copied = {name: str(other.lookup(name)) for name in other if name.startswith("DataLocality")}
    for marks in (copied, {"DataLocalityTransformed": "true", "DataLocality": text(mode)}):
        ad = made(f'{{"{A}"}}', **marks)
        assert (fault(ad), ad["DataLocalityKey"]) == (None, names_key([A]))
        assert str(ad.lookup("DataLocalityHere")) == str(ExprTree(HERE[mode]))


def test_undefined_list_counts_as_absent():
    """So a site can set RequiredDatasets = undefined for all jobs (S32)."""
    ad = made("undefined")
    assert SCHEDD.refused_by(ad) is None
    assert "DataLocalityKey" not in ad
    assert str(ad.lookup("Requirements")) == "TARGET.Cpus > 1 || false"


@pytest.mark.parametrize(
    "more", [{"DataLocality": text("require")}, *({name: "60"} for name in NUMBERS)], ids=str
)
def test_options_without_datasets_are_refused_with_a_hint_at_the_spelling(more):
    """+RequiredDataset = … runs anywhere else (S12)."""
    ad = SCHEDD.transformed({"RequiredDataset": BOTH, **more})
    assert fault(ad) == "alone"


def test_job_without_datasets_stays_as_it_is():
    assert str(made(None)) == str(job_ad({}))
    assert refused(None) is None


def test_names_get_the_default_scope_before_the_key_is_made():
    scoped = ScheddText(schedd_config(Settings(daemon={"default_scope": "2lofar"})))
    for datasets in ('{"L1", "ska:a"}', '"L1,ska:a"'):
        ad = made(datasets, scoped)
        assert ad["RequiredDatasets"] == ["2lofar:L1", "ska:a"]
        assert ad["DataLocalityKey"] == names_key(["2lofar:L1", "ska:a"])
    assert refused('{"L1", ":b"}', scoped) == "names"


# --- the key


def submitted(dids: list[Did], **more: str) -> dict[str, str]:
    """Return what hydrator submit gives to a job with *dids*."""
    return {name: text(value) for name, value in key_attributes(dids).items()} | more


def test_long_list_of_hydrator_submit_has_its_hash():
    ad = made(LISTED, **submitted(LONG))
    assert ad["DataLocalityKey"] == hash_key(LONG)
    assert "DataLocalityKeyFor" not in ad


def test_long_list_without_a_hash_has_a_key_of_its_cluster():
    joined = len(",".join(LONG))
    assert made(LISTED)["DataLocalityKey"] == f"c12.{joined}@schedd@host.example"


@pytest.mark.parametrize(
    "change",
    [
        {"RequiredDatasets": LISTED.replace("SB007", "SB700")},
        {"RequiredDatasets": "{" + LISTED[1:-1].replace('"lofar:L667000_SAP000_SB000_uv",', "") + "}"},
        {"DataLocalityKeyFor": text("x:a")},
        {"DataLocalityKeyFor": "undefined"},
        {"DataLocalityKey": text("s" * 22)},
        {"DataLocalityKey": "5"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_key_that_did_not_come_with_its_list_is_not_kept(change):
    """A list overridden by a DAG, -append or a copied line cannot have another list's key (S1 to S3)."""
    ad = SCHEDD.transformed({"RequiredDatasets": LISTED, **submitted(LONG), **change})
    assert ad["DataLocalityKey"].startswith("c12.")


def test_names_that_must_not_be_published_are_no_part_of_a_key():
    scopes = [f"scope{n}:*" for n in range(50)]  # more than a line has room for
    never = ("embargo:*", "*.priv?te", *scopes, "e[m-n]:[!0-9]*")
    schedd = ScheddText(schedd_config(Settings(publish={"never": never})))
    for did in ("embargo:x", "ska:a.private", "scope0:a", "scope24:a", "scope49:a", "em:L1"):
        assert made(f'{{"ska:z", "{did}"}}', schedd)["DataLocalityKey"].startswith("c12.")
        assert made(LISTED, schedd, **submitted(LONG))["DataLocalityKey"] == hash_key(LONG)
    assert made('{"ska:embargo:x", "ska:a.privaate"}', schedd)["DataLocalityKey"].startswith("ska:")
    assert made('{"el:a", "em:1", "en:22"}', schedd)["DataLocalityKey"].startswith("el:")


# --- modes and times


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_has_its_clause_in_whatever_letter_case(mode):
    ad = made(DataLocality=text(mode.capitalize()))
    assert (ad["DataLocality"], str(ad.lookup("DataLocalityHere"))) == (mode, str(ExprTree(HERE[mode])))
    assert (ad["DataLocalityAnyAfter"] == Value.Undefined) == (mode == "require")
    assert ad["DataLocalityMaxAge"] == 20700


VALUES = [
    *(("DataLocality", value) for value in ('"maybe"', '"prefer"', "5", "require")),
    *(("DataLocalityMaxWait", value) for value in ("-1", "1.5", '"1h"', "hour", str(MAX_SECONDS + 1))),
    *(("DataLocalityMaxAge", value) for value in ("0", "1.5", "hour")),
    *(("DataLocalityExpectedSeconds", value) for value in ("0", "1.5", '"1h"', "hour", "60 * 60")),
]


@pytest.mark.parametrize(("option", "value"), VALUES)
def test_wrong_option_beside_the_list_is_refused(option, value):
    assert refused(**{option: value}) == "values"


def test_undefined_options_count_as_absent():
    """The bindings write them into the jobs of rows without them."""
    none = dict.fromkeys(("DataLocality", *NUMBERS), "undefined")
    ad = made(**none)
    assert SCHEDD.refused_by(ad) is None
    assert (ad["DataLocality"], ad["DataLocalityMaxAge"]) == ("auto", 20700)
    assert refused(None, **none) is None


def test_options_at_their_bounds_are_taken():
    bounds = {
        "DataLocalityMaxWait": "0",
        "DataLocalityMaxAge": "1",
        "DataLocalityExpectedSeconds": str(MAX_SECONDS),
    }
    ad = made(**bounds)
    assert SCHEDD.refused_by(ad) is None
    assert {name: str(ad[name]) for name in bounds} == bounds
    assert ad["DataLocalityAnyAfter"] <= time.time(), "the wait of 0 s is over"


@pytest.mark.parametrize(("mode", "lanes"), [("auto", [0, 1, 0, 2, 0, 1, 0, 4]), ("wait", [0] * 8)])
def test_lane_is_the_number_of_trailing_zeros_of_the_next_job(mode, lanes):
    made_lanes = [made(DataLocality=text(mode), ClusterId="8", ProcId=str(n)) for n in range(8)]
    assert [ad["DataLocalityLane"] for ad in made_lanes] == lanes


def test_lanes_end_at_10_but_for_one_job_of_4096():
    lanes = [made(ClusterId="0", ProcId=str(2**power - 1))["DataLocalityLane"] for power in range(12)]
    assert lanes == [*range(11), 10]


@pytest.mark.parametrize("wait", [2, 40, 600, 3600, 86400, 31536000])
def test_end_of_a_wait_is_rounded_up_by_half_a_twelfth_or_the_step(wait):
    before, ad, after = time.time(), made(DataLocalityMaxWait=str(wait)), time.time()
    step = max(wait // 12, min(wait // 2, 3600))
    assert ad["DataLocalityAnyAfter"] % step == 0
    assert before + wait - 1 <= ad["DataLocalityAnyAfter"] <= after + wait + step


def test_auto_jobs_of_an_hour_without_a_wait_of_their_own_have_two_ends():
    """Each end multiplies the autoclusters, which are one for each key and lane otherwise."""
    text = schedd_config(Settings())
    begun = 1_764_000_000
    ends = {
        now: made(schedd=ScheddText(text.replace("time()", str(now))))["DataLocalityAnyAfter"]
        for now in range(begun, begun + 3600, 300)
    }
    assert all(600 <= end - now <= 600 + 3600 for now, end in ends.items())
    assert len(set(ends.values())) == 2


# --- which jobs


@pytest.mark.parametrize(
    ("universe", "rule"),
    [
        *zip((10, 11, 13), itertools.repeat("universe")),
        (7, "local"),
        (12, "local"),
    ],
)
def test_universe_that_no_transform_reaches_is_told(universe, rule):
    more = {"JobUniverse": str(universe)}
    assert refused(**more) == rule
    assert refused(None, **more) is None
    assert refused(**more, Cmd='"/usr/bin/condor_dagman"') == (None if rule == "local" else rule)
    assert refused(JobUniverse="9") is None, "the schedd that a grid job goes to transforms it"
    assert ("SUBMIT_REQUIREMENT_DataLocalityLocal_IS_WARNING" in SCHEDD.macros) is True


@pytest.mark.parametrize("name", ["Requirements", "Rank"])
@pytest.mark.parametrize(
    "macro",
    [
        "$(MY.Requirements)",
        "$(SPOOL)",
        "$ENV(HOME)",
        "$$(MY.Rank)",
        "$(DOLLAR)(SPOOL)",
        "$RANDOM_CHOICE(S,S)",
    ],
)
def test_text_that_the_schedd_would_expand_is_refused(name, macro):
    """The first expands itself without end, and ended a schedd; others show what a user may not see."""
    assert refused(**{name: f'Arch =!= "{macro}"'}) == "values"
    assert refused(None, **{name: f'Arch =!= "{macro}"'}) is None
    assert refused(**{name: 'regexp("^(a|b)$", Machine) || Cost < "3$"'}) is None


def test_forged_factory_is_a_job():
    ad = made(JobFactoryId="1", DataLocalityRank="5", DataLocalityHere="true")
    assert (ad["DataLocalityKey"], str(ad.lookup("DataLocalityRank"))) == (
        names_key([A, B]),
        str(ExprTree(JOB_RANK)),
    )
    assert str(ad.lookup("DataLocalityHere")) == str(ExprTree(HERE["auto"]))


def test_forged_template_of_late_jobs_is_taken_without_texts_that_others_would_evaluate():
    said = {"JobFactoryId": "12", "JobMaterializeDigestFile": text("x"), "DataLocalityTransformed": "true"}
    ad = made(**said, DataLocalityRank="false ? 1 : DataLocalityRank", DataLocalityHere="f(1)")
    assert fault(ad) is None
    assert not {"DataLocalityRank", "DataLocalityHere", "DataLocalityAnyAfter"} & set(ad)


def test_job_that_no_transform_changed_is_refused():
    assert fault(job_ad({"RequiredDatasets": BOTH})) == "transform"


def test_late_job_with_a_bad_list_is_held_and_no_rule_drops_it():
    ad = made('{"a"}', JobMaterializeDigestFile=text("digest"))
    assert (ad["PeriodicHold"], ad["PeriodicHoldSubCode"], ad["Requirements"]) == (True, HOLD_SUBCODE, False)
    assert fault(ad) is None
    assert "must be scope:name" in ad["PeriodicHoldReason"]
    factory = made('{"$(x)"}', JobFactoryId="12", JobMaterializeDigestFile=text("digest"))
    assert "DataLocalityKey" not in factory
    assert SCHEDD.refused_by(factory) is None


def test_rank_only_gives_key_and_rank_and_changes_no_requirements():
    schedd = ScheddText(schedd_config(Settings(), rank_only=True))
    ad = made(schedd=schedd)
    assert (ad["DataLocalityKey"], "DataLocalityRank" in ad) == (names_key([A, B]), True)
    assert not {"DataLocalityHere", "DataLocality", "DataLocalityAnyAfter"} & set(ad)
    assert str(ad.lookup("Requirements")) == "TARGET.Cpus > 1 || false"
    warns = {schedd.macros.get(f"SUBMIT_REQUIREMENT_{name}_IS_WARNING") for name in schedd.requirements}
    assert warns == {"true"}
    assert "PeriodicHold" not in made('{"a"}', schedd, JobMaterializeDigestFile=text("digest"))


def test_job_rank_adds_the_rank_to_the_jobs_own():
    schedd = ScheddText(schedd_config(Settings(), job_rank=True))
    assert (
        str(made(schedd=schedd, Rank="TARGET.Mips").lookup("Rank")) == "(TARGET.Mips) + MY.DataLocalityRank"
    )
    assert str(made(schedd=schedd).lookup("Rank")).endswith(" + MY.DataLocalityRank")


def test_frontend_of_glideinwms_gets_the_names_as_one_text():
    schedd = ScheddText(schedd_config(Settings(jobs={"glideinwms": True})))
    assert made(schedd=schedd)["RequiredDatasetsCSV"] == f"{A},{B}"
    # the frontend's query evaluates it
    assert "RequiredDatasetsCSV" not in made(None, schedd, RequiredDatasetsCSV="endless")
