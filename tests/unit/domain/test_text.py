"""Texts for people."""

from hydrator.domain.text import shorten_list


def test_shortened_list_has_the_first_items_and_the_number_of_the_others():
    assert shorten_list([]) == ""
    assert shorten_list(["a", "b", "c"]) == "a, b, c"
    assert shorten_list(["a", "b", "c", "d", "e"]) == "a, b, c, and 2 more"
    assert shorten_list(["a", "b", "c"], "; ", limit=2) == "a; b; and 1 more"
