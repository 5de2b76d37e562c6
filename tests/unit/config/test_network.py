"""The section [network]: rates in bytes/s, and one sentence for each wrong value."""

import tomllib
from pathlib import Path

import pytest

from hydrator.config import Settings, parse
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Site

FILE = '[[catalogue]]\ntype = "file"\npath = "datasets.json"\n'
LINK = '[[network.links]]\nsource = "UK"\ndestination = "NL"\ngbit_per_second = 2\n'


def parsed(text: str) -> Settings:
    return parse(tomllib.loads(FILE + text), folder=Path("/"), origin="config.toml")


def test_sites_with_a_rate_are_those_of_links_and_uplinks():
    network = parsed("[network.uplinks.DE]\ngbit_per_second = 10\n" + LINK).network
    assert network.sites == {Site("UK"), Site("NL"), Site("DE")}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[network]\ndefault_gbit_per_second = 0\n",
            "network.default_gbit_per_second: input should be greater",
        ),
        ("[network]\ndefault = 1\n", "network.default: unknown key; known keys: default_gbit"),
        (
            "[network.uplinks]\nUK = 10\n",
            "network.uplinks.UK: give the unit too: write { gbit_per_second = 10 } (it is 10)",
        ),
        (
            "[network.uplinks.UK]\ngbit_per_second = -1\n",
            "network.uplinks.UK.gbit_per_second: input should be gr",
        ),
        ('[network.hosts]\n"a b" = "UK"\n', "network.hosts.a b"),
        (LINK.replace("NL", "UK"), "network.links[0]: source and destination are both UK"),
        (LINK + LINK, "network: the link from UK to NL is there 2 times; keep one"),
    ],
)
def test_wrong_value_is_named_in_one_sentence(text, sentence):
    with pytest.raises(ConfigError) as refused:
        parsed(text)
    (problem,) = refused.value.problems
    assert sentence in problem
