"""The measures of HOUSE_STYLE.md: the tree shows the architecture, and its parts stay small."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from scripts import counts

ROOT = Path(__file__).parents[3]
TITLES = [count.title for count in counts.count_all(ROOT / "no such folder")]


@cache
def count_by_title() -> Mapping[str, counts.Count]:
    return {count.title: count for count in counts.count_all(ROOT)}


@pytest.mark.parametrize("title", TITLES)
def test_no_measure_of_the_code_is_above_its_limit(title: str) -> None:
    count = count_by_title()[title]
    assert count.total > 10
    if count.limit.endswith("%"):
        assert len(count.offenders) / count.total < float(count.limit.rstrip(" %")) / 100, count.offenders
    else:
        assert len(count.offenders) <= int(count.limit), count.offenders


def test_each_measure_finds_what_it_counts(tmp_path: Path) -> None:
    folder = tmp_path / "hydrator" / "big"
    folder.mkdir(parents=True)
    for number in range(14):
        (folder / f"m{number}.py").write_text('class Twice:\n    """Which is a clause."""\n')
    methods = "".join(f"    def m{n}(self): pass\n" for n in range(16))
    (folder / "m0.py").write_text(f"class Big:\n{methods}\ndef told():\n" + "    pass\n" * 400)
    found = {count.title.split(" ")[0]: count.offenders for count in counts.count_all(tmp_path)}
    assert found["modules"] == ("hydrator/big/m0.py 419",)
    assert found["classes"] == ("hydrator/big/m0.py Big 16",)
    assert "hydrator/big/m0.py told 401" in counts.count_all(tmp_path)[1].offenders
    assert found["docstrings"][0] == "hydrator/big/m1.py Twice"
    assert found["class"][0].startswith("Twice: hydrator/big/m1.py, ")
    assert found["folders"] == ("hydrator/big 14",)
    assert counts.count_all(tmp_path)[3].offenders == ("hydrator/big/m0.py told",)
    assert counts.count_tokens(tmp_path) > 500
