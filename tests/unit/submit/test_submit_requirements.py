"""The schedd's text on classad2: which jobs its rules take, and which rule refuses the others."""

import re
from collections.abc import Mapping

import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ClassAd, ExprTree

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from hydrator.submit.expressions import SUBMITTED_HERE
from hydrator.submit.pool_config import SUBMIT_REQUIREMENTS, PoolPolicy, schedd_config

A, B = Did("ska:a"), Did("ska:b")
TEXT = schedd_config(PoolPolicy(), {}).replace("\\\n", " ")
SCOPED_TEXT = schedd_config(PoolPolicy(default_scope="lofar"), {}).replace("\\\n", " ")
WORD = "undefined"
"""The string that the transform stores for a value that is a word without quotes."""


def macros(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+) = ?(.*)$", text, re.MULTILINE))


def expression(text: str, value: str) -> ExprTree:
    """Expand the macros of *text* in *value*, as HTCondor's configuration does."""
    known = macros(text)
    while "$(" in value:
        value = re.sub(r"\$\((\w+)\)", lambda macro: known[macro[1]], value)
    return ExprTree(value)


def job(datasets: object, **more: object) -> ClassAd:
    ad = ClassAd({"JobUniverse": 5, "Cmd": "/bin/true"})
    for name, value in {"RequiredDatasets": datasets, **more}.items():
        ad[name] = value
    return ad


def refused_by(ad: ClassAd, text: str = TEXT) -> str | None:
    """Return the first submit requirement that *ad* fails; the last one needs a transform that ran."""
    for name in SUBMIT_REQUIREMENTS[:-1]:
        if expression(text, macros(text)[f"SUBMIT_REQUIREMENT_{name}"]).eval(ad, ad) is not True:
            return name
    return None


def is_transformed(ad: ClassAd, text: str = TEXT) -> bool:
    return expression(text, "$(DATALOCALITY_GOOD)").eval(ad, ad) is True


LISTS = {
    "DataLocalityList": [WORD, "ska:a", 5],
    "DataLocalityEmpty": [[]],
    "DataLocalityStrings": [["ska:a", 5], ["ska:a", True], ["ska:a", None], [["ska:a"]]],
    "DataLocalityText": [["ska:a b"], ['ska:"a'], [r"ska:a\b"], ["ska:é"], ["ska:a,ska:b"], [","]],
    "DataLocalityScope": [["a"], [""], ["ska:a", ""], ["ska:a,"], ["ska:a,ska:b", ""], [":a"], ["ska:"]],
    "DataLocalityLength": [[f"ska:{'x' * 497}"]],
}


@pytest.mark.parametrize(
    ("name", "datasets"), [(name, each) for name, lists in LISTS.items() for each in lists], ids=repr
)
def test_list_that_is_not_of_datasets_is_refused_by_the_rule_of_its_fault(name, datasets):
    assert refused_by(job(datasets)) == name
    assert not is_transformed(job(datasets))


@pytest.mark.parametrize(
    "datasets", [[A], [A, B], ["a/b:c/d"], ["a::b"], ["a:b@c=d+e~f-g.h_i"], [f"a:{'x' * 498}"]], ids=repr
)
def test_list_of_any_dids_that_the_model_accepts_is_taken(datasets):
    assert refused_by(job(datasets)) is None
    assert is_transformed(job(datasets))


def test_name_without_a_scope_is_taken_where_there_is_a_default_scope():
    assert (refused_by(job(["L1", A]), SCOPED_TEXT), is_transformed(job(["L1", A]), SCOPED_TEXT)) == (
        None,
        True,
    )
    assert refused_by(job(["L1", ":b"]), SCOPED_TEXT) == "DataLocalityScope"


YEAR = 366 * 86400
OPTIONS = {
    "DataLocalityMode": [("DataLocality", value) for value in ("maybe", "prefer", 5, WORD)],
    "DataLocalitySeconds": [
        *(("DataLocalityMaxWait", value) for value in (-1, 1.5, "1h", WORD, YEAR)),
        *(("DataLocalityMaxAge", value) for value in (0, 1.5, WORD, 99999999999)),
        *(("DataLocalityExpectedSeconds", value) for value in (0, 1.5, "1h", 31536001, WORD)),
    ],
}


@pytest.mark.parametrize(
    ("name", "option", "value"), [(name, *each) for name, cases in OPTIONS.items() for each in cases]
)
def test_wrong_option_beside_the_list_is_refused_by_its_rule(name, option, value):
    assert refused_by(job([A], **{option: value})) == name
    assert not is_transformed(job([A], **{option: value}))


@pytest.mark.parametrize(
    "options",
    [
        {"DataLocality": "Require"},
        {"DataLocalityMaxWait": 0, "DataLocalityMaxAge": 1, "DataLocalityExpectedSeconds": 31536000},
    ],
    ids=repr,
)
def test_options_at_their_bounds_are_taken(options):
    assert (refused_by(job([A], **options)), is_transformed(job([A], **options))) == (None, True)


@pytest.mark.parametrize(
    ("universe", "name"),
    [
        (10, "DataLocalityUniverse"),
        (11, "DataLocalityUniverse"),
        (13, "DataLocalityUniverse"),
        (7, "DataLocalityLocal"),
        (12, "DataLocalityLocal"),
        (5, None),
    ],
)
def test_universe_that_no_transform_reaches_is_refused(universe, name):
    assert refused_by(job([A], JobUniverse=universe)) == name
    plain = job([A], JobUniverse=universe)
    del plain["RequiredDatasets"]
    assert refused_by(plain) is None
    dag = job([A], JobUniverse=universe, Cmd="/usr/bin/condor_dagman")
    assert refused_by(dag) == (None if name == "DataLocalityLocal" else name)


@pytest.mark.parametrize(
    ("transformed", "here", "is_taken"),
    [(True, True, True), (True, None, False), (None, True, False), (None, None, False)],
)
def test_job_that_no_transform_changed_is_refused(transformed, here, is_taken):
    attributes = {"DataLocalityTransformed": transformed, "DataLocalityHere": here}
    ad = job([A], **{name: value for name, value in attributes.items() if value is not None})
    rule = expression(TEXT, macros(TEXT)["SUBMIT_REQUIREMENT_DataLocalityTransform"])
    assert rule.eval(ad, ad) is is_taken


# --- the transforms


def transform_of(name: str) -> str:
    return re.findall(rf"JOB_TRANSFORM_{name} @=end\n(.*?)^@end", TEXT, re.DOTALL | re.MULTILINE)[0]


@pytest.mark.parametrize(
    "wrong",
    ['"ska:a"', '"s"', f'"{"s" * 22}"', f'"S{"a" * 20}"', f'"s{"1" * 20}"', "5", "word", "{}", "1/0"],
)
def test_key_that_is_not_one_of_several_datasets_is_not_kept(wrong):
    [test] = re.findall(r"EVALMACRO dl_hashed (.*)$", transform_of("DataLocality"), re.MULTILINE)
    for value, is_kept in ((wrong, False), (f'"{set_key([A, B])}"', True)):
        ad = job([A, B], DataLocalityKey=ExprTree(value))
        assert ExprTree(test).eval(ad, ad) is is_kept


def is_prepared(changes: Mapping[str, str]) -> bool:
    """Return whether the first transform takes a job that `hydrator submit` prepared, with *changes*."""
    expressions = {
        "JobUniverse": "5",
        "RequiredDatasets": '{"ska:a", "ska:b"}',
        "DataLocalityKey": f'"{set_key([A, B])}"',
        "DataLocalityHere": SUBMITTED_HERE,
        "Requirements": '(MY.DataLocalityHere) && (TARGET.Arch == "X86_64") && TARGET.HasFileTransfer',
        **changes,
    }
    [test] = re.findall(r"^ +REQUIREMENTS (.*)$", transform_of("DataLocalityPrepared"), re.MULTILINE)
    ad = ClassAd()
    for name, value in expressions.items():
        ad[name] = ExprTree(value)
    # there, a backslash escapes a quote only
    result = ExprTree(re.sub(r'\\(?!")', r"\\\\", test)).eval(ad, ad)
    assert isinstance(result, bool)
    return result


@pytest.mark.parametrize(
    "changes", [{}, *({"DataLocality": f'"{mode}"'} for mode in ("require", "Wait"))], ids=str
)
def test_prepared_job_is_taken_by_the_first_transform(changes):
    assert is_prepared(changes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Requirements", "MY.DataLocalityHere || true"),
        ("Requirements", "(MY.DataLocalityHere || true) && (TARGET.Cpus > 0)"),
        ("Requirements", "TARGET.Cpus > 0"),
        ("DataLocalityHere", "MY.DataLocalityTransformed isnt true || true"),
        ("DataLocalityKey", '"ska:a"'),
        ("DataLocalityMaxAge", "0"),
        ("DataLocalityMaxWait", "hour"),
        ("DataLocality", '"maybe"'),
        ("RequiredDatasets", '{"ska:a", "b"}'),
        ("DataLocalityTransformed", "true"),
    ],
)
def test_prepared_job_with_another_line_is_left_to_the_second_transform(name, value):
    assert not is_prepared({name: value})
