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


UPLINK = '[[network.links]]\nsource = "DE"\ngbit_per_second = 10\n'


def test_sites_with_a_rate_are_those_of_links():
    network = parsed(UPLINK + LINK).network
    assert network.sites == {Site("UK"), Site("NL"), Site("DE")}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[network]\ndefault_gbit_per_second = 0\n",
            "network.default_gbit_per_second: input should be greater",
        ),
        ("[network]\ndefault = 1\n", "network.default: unknown key; known keys: default_gbit"),
        (UPLINK.replace("10", "-1"), "network.links[0].gbit_per_second: input should be gr"),
        (UPLINK + UPLINK, "network: the link from DE to all sites is there 2 times; keep one"),
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
