"""The clauses of a Requirements expression, as HTCondor prints them."""

import pytest

from adapters.condor.bindings.clauses import find_names, split_conjunction, split_into_clauses


def of(text: str, whole=(), **others: str) -> list[str]:
    texts = {"requirements": text, **{name.lower(): other for name, other in others.items()}}
    return split_into_clauses("Requirements", lambda name: texts.get(name.lower()), whole)


def test_parentheses_around_a_chain_are_looked_into():
    assert of("((A && (B)) && C)") == ["A", "B", "C"]


@pytest.mark.parametrize(
    "text",
    ["A && B || C", "A ? B && C : D", "A ?: B && C", 'x == "a && b"', "f(A && B)", "'A && B'", "!(A && B)"],
)
def test_what_is_weaker_or_inside_something_is_not_cut(text):
    assert of(text) == [text]


def test_is_and_isnt_operators_are_no_conditionals():
    assert of("A =?= B && C =!= D") == ["A =?= B", "C =!= D"]


def test_quotes_inside_strings_do_not_end_them():
    assert split_conjunction(r'x == "a\"&&" && y') == [r'x == "a\"&&"', "y"]


def test_an_attribute_of_the_ad_is_replaced_by_what_it_is_made_of():
    assert of("MY.Start && Limits", Start="(true) && (X)", Limits="A > 1 && B") == ["true", "X", "A > 1", "B"]


def test_an_attribute_that_counts_as_a_whole_or_is_a_literal_stays():
    assert of("(A) && MY.Here && Start", whole=["HERE"], Here="X && Y", Start="false") == [
        "A",
        "MY.Here",
        "Start",
    ]


def test_attributes_that_refer_to_each_other_end():
    assert of("A && C", A="B && X", B="A && Y") == ["A", "Y", "X", "C"]


def test_no_requirements_are_undefined():
    assert split_into_clauses("Requirements", lambda name: None, ()) == ["undefined"]


def test_names_stand_outside_strings():
    assert find_names("TARGET.Cpus >= RequestCpus && X == \"Y Z\" && 'Q'") == {
        "TARGET",
        "Cpus",
        "RequestCpus",
        "X",
        "Q",
    }
