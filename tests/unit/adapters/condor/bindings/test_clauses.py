"""Clauses of a Requirements expression, as HTCondor prints them."""

import pytest

from adapters.condor.bindings.match_calls import find_names, split_into_clauses


def of(text: str | None, whole=(), **others: str) -> list[str]:
    texts = {"requirements": text, **{name.lower(): other for name, other in others.items()}}
    return split_into_clauses("Requirements", lambda name: texts.get(name.lower()), whole)


@pytest.mark.parametrize(
    ("text", "others", "clauses"),
    [
        ("((A && (B)) && C)", {}, ["A", "B", "C"]),
        ("A =?= B && C =!= D", {}, ["A =?= B", "C =!= D"]),
        (r'x == "a\"&&" && y', {}, [r'x == "a\"&&"', "y"]),
        ("MY.Start && B", {"Start": "(true) && (X)", "B": "C > 1 && D"}, ["true", "X", "C > 1", "D"]),
        ("(A) && MY.Here && Start", {"Here": "X && Y", "Start": "false"}, ["A", "MY.Here", "Start"]),
        ("A && C", {"A": "B && X", "B": "A && Y"}, ["A", "Y", "X", "C"]),
        (None, {}, ["undefined"]),
    ],
    ids=[
        *(
            "parentheses",
            "no conditionals",
            "a quote in a text",
            "attributes of the ad",
            "an atom, a literal",
        ),
        *("attributes that refer to each other", "no requirements"),
    ],
)
def test_conjunction_is_split_into_clauses_with_those_of_the_ads_attributes(text, others, clauses):
    assert of(text, whole=["HERE"], **others) == clauses


@pytest.mark.parametrize(
    "text",
    ["A && B || C", "A ? B && C : D", "A ?: B && C", 'x == "a && b"', "f(A && B)", "'A && B'", "!(A && B)"],
)
def test_operands_of_weaker_operators_or_inside_brackets_are_not_split(text):
    assert of(text) == [text]


def test_names_inside_strings_are_not_attributes():
    names = find_names("TARGET.Cpus >= RequestCpus && X == \"Y Z\" && 'Q'")
    assert names == {"TARGET", "Cpus", "RequestCpus", "X", "Q"}
