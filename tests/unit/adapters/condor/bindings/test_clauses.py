"""Clauses of a Requirements expression, as HTCondor prints them."""

import pytest

from adapters.condor.bindings.match_calls import find_names, split_conjunction, split_into_clauses


def of(text: str, whole=(), **others: str) -> list[str]:
    texts = {"requirements": text, **{name.lower(): other for name, other in others.items()}}
    return split_into_clauses("Requirements", lambda name: texts.get(name.lower()), whole)


def test_clauses_inside_outer_parentheses_are_split():
    assert of("((A && (B)) && C)") == ["A", "B", "C"]


@pytest.mark.parametrize(
    "text",
    ["A && B || C", "A ? B && C : D", "A ?: B && C", 'x == "a && b"', "f(A && B)", "'A && B'", "!(A && B)"],
)
def test_operands_of_weaker_operators_or_inside_brackets_are_not_split(text):
    assert of(text) == [text]


def test_is_and_isnt_operators_are_not_read_as_conditionals():
    assert of("A =?= B && C =!= D") == ["A =?= B", "C =!= D"]


def test_quotes_inside_strings_do_not_end_them():
    assert split_conjunction(r'x == "a\"&&" && y') == [r'x == "a\"&&"', "y"]


def test_attribute_of_the_ad_is_replaced_by_its_clauses():
    assert of("MY.Start && Limits", Start="(true) && (X)", Limits="A > 1 && B") == ["true", "X", "A > 1", "B"]


def test_atomic_attribute_or_literal_stays_a_reference():
    assert of("(A) && MY.Here && Start", whole=["HERE"], Here="X && Y", Start="false") == [
        "A",
        "MY.Here",
        "Start",
    ]


def test_attributes_that_refer_to_each_other_do_not_loop():
    assert of("A && C", A="B && X", B="A && Y") == ["A", "Y", "X", "C"]


def test_missing_requirements_are_the_clause_undefined():
    assert split_into_clauses("Requirements", lambda name: None, ()) == ["undefined"]


def test_names_inside_strings_are_not_attributes():
    assert find_names("TARGET.Cpus >= RequestCpus && X == \"Y Z\" && 'Q'") == {
        "TARGET",
        "Cpus",
        "RequestCpus",
        "X",
        "Q",
    }
