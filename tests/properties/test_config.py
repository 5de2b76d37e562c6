"""Whatever stands in a configuration, it is Settings or a list of sentences; never a traceback."""

import copy
import datetime as dt
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hydrator.config import Settings, load, parse
from hydrator.domain.errors import ConfigError

EXAMPLE = (Path(__file__).parents[2] / "config.example.toml").read_text("utf-8")
DATA = tomllib.loads(EXAMPLE)
FULL = parse(DATA, folder=Path("/folder"), origin="x").model_dump(mode="json", exclude_none=True)
WORDS = sorted(
    {key for section in FULL.values() for key in (section if isinstance(section, dict) else ())} | set(FULL)
)

scalars = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", " ", "\n", "\0", "/", "~", "~nobody", "*", "[", "lofar:L1", "http://", "\ud7ff", "x" * 5000]
    ),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.datetimes().map(lambda at: at.replace(tzinfo=dt.UTC)),
    st.dates(),
    st.times(),
)
keys = st.sampled_from([*WORDS, "type", "name", "path", "site", "prefix", "match", "did"]) | st.text(
    max_size=8
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=8), values, max_size=6)

usual = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)


def judged(data: dict[str, Any], folder: Path) -> Settings | None:
    """Settings, or None after sentences; anything else that is raised is a bug."""
    try:
        return parse(data, folder=folder, origin="config.toml")
    except ConfigError as refused:
        sentences(refused)
        return None


def sentences(refused: ConfigError) -> None:
    assert refused.problems
    for problem in refused.problems:
        assert problem.strip()
        assert "\n" not in problem
        assert "Traceback" not in problem
        assert "pydantic" not in problem.lower()


@usual
@given(documents)
def test_any_document_is_settings_or_sentences(data):
    judged(data, Path("/folder"))


def places(data: Any, at: tuple = ()) -> list[tuple]:
    """Every place in *data*, as keys and numbers."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [at, *(place for key, value in inside for place in places(value, (*at, key)))]


PLACES = [place for place in places(FULL) if place]


@usual
@given(
    st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from(["drop", "swap", "add"]), keys, values), max_size=4
    )
)
def test_a_damaged_example_is_settings_or_sentences(changes):
    data: Any = copy.deepcopy(FULL)
    for place, how, key, value in changes:
        part = data
        try:
            for step in place[:-1]:
                part = part[step]
            if how == "drop":
                del part[place[-1]]
            elif how == "swap":
                part[place[-1]] = value
            else:
                part[place[-1]][key] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    judged(data, Path("/folder"))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("config") / "config.toml"


@usual
@given(data=st.data())
def test_a_damaged_text_is_settings_or_sentences(file, data):
    text = EXAMPLE.encode()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        drop = data.draw(st.integers(0, 30))
        text = text[:at] + data.draw(st.binary(max_size=10)) + text[at + drop :]
    file.write_bytes(text)
    try:
        load(file)
    except ConfigError as refused:
        sentences(refused)


BROKEN = {
    "no TOML": b"[daemon\n",
    "no text": b"\xff\xfe\x00",
    "unknown keys": b'[[catalogue]]\ntype = "file"\npath = "x"\n[damon]\npoll = 1\n',
    "deep": b"x = " + b"[" * 2000 + b"]" * 2000,
    "a folder": None,
}


@pytest.mark.parametrize("command", ["check", "plan", "once", "run", "status"])
@pytest.mark.parametrize("kind", BROKEN)
def test_no_command_shows_a_traceback_for_a_broken_configuration(
    tmp_path, capsys, monkeypatch, command, kind
):
    path = tmp_path / "config.toml"
    if BROKEN[kind] is None:
        path.mkdir()
    else:
        path.write_bytes(BROKEN[kind])
    from hydrator.cli import main

    monkeypatch.setattr("sys.argv", ["hydrator", command, "--config", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (2, "")
    assert all(line.startswith("hydrator: ") for line in shown.err.splitlines())
    assert shown.err
