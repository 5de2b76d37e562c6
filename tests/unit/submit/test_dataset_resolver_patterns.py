"""Dataset resolver: what needs no answer of a catalogue."""

import pytest

from hydrator.domain.errors import ConfigError
from tests.unit.submit.test_dataset_resolver import expanded, found


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ({"match": "(", "did": "a:b"}, "submit.patterns[0].match"),
        ({"match": "(x)", "did": "a:\\2"}, "submit.patterns[0].did"),
        ({"match": "(?P<n>x)", "did": "a:\\g<m>"}, "submit.patterns[0].did"),
    ],
)
def test_invalid_name_pattern_is_a_configuration_error(pattern, told):
    with pytest.raises(ConfigError, match=r"submit\.patterns") as refused:
        found("x", patterns=[pattern])
    assert told in str(refused.value)


def test_pattern_that_gives_an_invalid_did_names_the_measurement_set():
    with pytest.raises(ConfigError, match=r"gives an invalid DID for a b\.ms"):
        found("a b.ms", patterns=[{"match": "(.*)", "did": "a:\\1"}])


def test_glob_with_local_matches_gives_these():
    here = expanded("/d/*.ms", local=lambda _: ["/d/b.ms", "/d/a.ms"], dids=["a:c.ms"])
    assert here.names == ("/d/a.ms", "/d/b.ms")
    assert here.catalogue_matches == {}


def test_name_without_wildcards_gives_itself():
    assert expanded("/d/L1.ms", "/d/L0.ms/").names == ("/d/L0.ms/", "/d/L1.ms")
