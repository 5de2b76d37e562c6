"""DataLocalityKey in submit descriptions and DAG files, as condor_submit would read them."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from hydrator.domain.ads.dataset_sets import hash_key
from hydrator.domain.model import Did
from hydrator.submit.submit_files.dag import read_dag, read_node
from hydrator.submit.submit_files.datasets import (
    FilterResult,
    add_datasets,
    add_datasets_to_dag,
    input_names,
    own_lists,
)
from hydrator.submit.submit_files.description import SubmitFileError, read_description


def lengthened(text: str) -> str:
    """Return *text* with names so long that two of them need a hash."""
    return re.sub("lofar:(?!x{60})", f"lofar:{'x' * 60}_", text)


A, B = Did(lengthened("lofar:a")), Did(lengthened("lofar:b"))
AB = hash_key([A, B])
LIST = '+RequiredDatasets = {"lofar:b", "lofar:a"}\n'
ITEMS = '+RequiredDatasets = {"lofar:$(x)", "lofar:b"}\n'


def added(text: str, *dids: Did, folder: Path | None = None, **settings: Sequence[str]) -> FilterResult:
    text = lengthened(text)
    settings = {name: [lengthened(line) for line in lines] for name, lines in settings.items()}
    description = read_description(text.encode(), folder or Path.cwd(), **settings)  # type: ignore[arg-type]
    return add_datasets(text.encode(), description, dids, "x.sub")


def test_long_list_has_a_hash_with_its_text_and_a_short_one_has_none():
    done = added("queue\n", B, A).text.decode()
    assert f'+DataLocalityKey = "{AB}"\n+DataLocalityKeyFor = "{A},{B}"\nqueue\n' in done
    assert b"DataLocalityKey" not in added("queue\n", A, A, Did("x:b")).text


@pytest.mark.parametrize(
    "own",
    [
        LIST,
        f'+DataLocalityKey = "copied"\n{LIST}',
        '+RequiredDatasets = {$(L)}\nL = "lofar:a"\nL = $(L), "lofar:b"\n',
        '+RequiredDatasets = {"lofar:$Fn(p)", "lofar:$BASENAME(q)"}\np = a.ms\nq = x/b\n',
        '+RequiredDatasets = {"lofar:$CHOICE(1,c,a)", "lofar:$SUBSTR(w,1,1)"}\nw = abc\n',
        '+RequiredDatasets = {"lofar:b", "lofar:$SUBSTR(e,0,-1)"}\ne = $DIRNAME(d)\nd = a/c\n',
    ],
)
def test_own_list_of_a_description_gets_its_key_only(own):
    """Cases S6, S7 of cases/submit.md."""
    done = added(f"{own}queue\n", A)
    head, key_for, rest = done.text.decode().partition("+DataLocalityKeyFor = ")
    assert head == f'{lengthened(own)}+DataLocalityKey = "{AB}"\n'
    assert rest in {f'"{B},{A}"\nqueue\n', f'"{A},{B}"\nqueue\n'}
    assert key_for
    assert done.notes == ("x.sub has RequiredDatasets already: only the key of this list is added",)
    assert added(done.text.decode()).text == done.text


@pytest.mark.parametrize(
    ("own", "names"),
    [
        ('{"lofar:a", "lofar:b", "lofar:a"}', f"{A},{B},{A}"),
        ('{"lofar:a,lofar:b"}', f"{A},{B}"),
        ('"lofar:b, lofar:a"', f"{B},{A}"),
        ('split("lofar:a lofar:b")', f"{A},{B}"),
    ],
)
def test_key_comes_with_the_names_as_the_schedd_joins_them(own, names):
    """The schedd takes a hash only with exactly these names; it splits texts at commas."""
    lines = added(f"+RequiredDatasets = {own}\nqueue\n").lines
    assert lines[:2] == (f'+DataLocalityKey = "{AB}"', f'+DataLocalityKeyFor = "{names}"')


def test_keys_of_items_that_were_edited_are_refused():
    done = added(f"{ITEMS}queue x from (\na\nc\n)\n")
    assert added(done.text.decode()).text == done.text
    with pytest.raises(SubmitFileError, match="hydrator_key of other datasets"):
        added(done.text.decode().replace(",c\n", ",d\n"))


@pytest.mark.parametrize("value", ["", "$(nothing)", "Undefined"])
def test_list_without_a_value_counts_as_absent(value):
    assert added(f"+RequiredDatasets = {value}\nqueue\n", A).lines[0].startswith("+RequiredDatasets = {")


def test_environment_and_an_included_file_name_datasets(monkeypatch, tmp_path):
    monkeypatch.setenv("OBS", "a")
    (tmp_path / "c.sub").write_text(lengthened('+RequiredDatasets = {"lofar:$ENV(OBS)", "lofar:$(x)"}\n'))
    assert f'"{AB}"' in added("x = b\ninclude : c.sub\nqueue\n", folder=tmp_path).text.decode()


def test_file_that_is_included_only_if_it_exists_may_be_absent(tmp_path):
    text = f"include ifexist : more.sub\n{LIST}queue\n"
    assert f'"{AB}"' in added(text, folder=tmp_path).text.decode()
    (tmp_path / "more.sub").write_text("include command : x\n")
    assert "is not read" in added(text, folder=tmp_path).notes[0]


@pytest.mark.parametrize(
    "queue",
    [
        "queue 2 x from [1:] (\n a\n# no\n c \n)",
        "queue 2 x in [1:] (a, c)",
        "queue 2 x from [1:] items.txt",
        "queue 2 x matching files [1:] [ac]",
    ],
)
def test_each_item_has_the_key_of_its_own_datasets(queue, tmp_path):
    """Case S8 of cases/submit.md."""
    (tmp_path / "items.txt").write_text("a\nc\n")
    for name in "ac":
        (tmp_path / name).touch()
    done = added(f"{ITEMS}{queue}\narguments = 1\n", folder=tmp_path)
    ac = hash_key([Did(lengthened("lofar:c")), B])
    assert done.text.decode() == lengthened(
        f'{ITEMS}+DataLocalityKey = "$(hydrator_key)"\n+DataLocalityKeyFor = "lofar:$(x),lofar:b"\n'
        f"queue 2 hydrator_key, x from [1:] (\n{AB},a\n{ac},c\n)\narguments = 1\n"
    )
    assert done.has_new_items
    lists = own_lists(read_description(lengthened(f"{ITEMS}{queue}\n").encode(), tmp_path))
    assert lists == ((A, B), (lengthened("lofar:c"), B))


@pytest.mark.parametrize(
    ("own", "items"),
    [
        ("{$(x)}", '"lofar:a", "lofar:b"\n"lofar:a"\n'),
        ("{$(no:$(x))}", '"lofar:a","lofar:b"\n"lofar:c","lofar:d"\n'),
        ('split("$(x)")', "lofar:a lofar:b\nlofar:b, lofar:a\n"),
        ('"$(x)"', "lofar:a, lofar:b\nlofar:c\n"),
        ('{"$(x)"}', "lofar:a,lofar:b\nlofar:c\n"),
        ('{"$(x)"}', 'lofar:a", "lofar:b\nlofar:c\n'),
    ],
)
def test_items_with_whole_lists_have_the_key_of_the_names_as_the_schedd_joins_them(own, items, tmp_path):
    (tmp_path / "i.txt").write_text(lengthened(items))
    done = added(f"+RequiredDatasets = {own}\nqueue 2 x from i.txt\n", folder=tmp_path)
    read = read_description(done.text, tmp_path)
    assert len(read.rows) == 2
    for row, names in zip(read.rows, own_lists(read), strict=True):
        assert read.expand("MY.DataLocalityKey", row) == f'"{hash_key(names)}"'
        assert read.expand("MY.DataLocalityKeyFor", row) == f'"{",".join(names)}"'
    assert added(done.text.decode(), folder=tmp_path).text == done.text


def test_line_with_a_hash_in_an_item_file_is_an_item(tmp_path):
    """Case S8 of cases/submit.md."""
    (tmp_path / "i.txt").write_text("#x y\na 1\nb 2\n")
    text = b'+RequiredDatasets = {"o:1", "o:2"}\nqueue a,b from i.txt\n'
    assert len(own_lists(read_description(text, tmp_path))) == 3


def test_items_with_one_key_need_no_variable():
    done = added(f"n = 1\n{LIST}queue x in (1 2)\n")
    assert not done.has_new_items
    assert f'"{AB}"' in done.text.decode()


PER_JOB = "differs from job to job"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ITEMS + "queue x from ./script |\n", PER_JOB),
        (ITEMS + "queue x from (\n a\n\n c\n)\n", PER_JOB),
        ('+RequiredDatasets = {"x:SB$INT(Process,%03d)", "x:b"}\nqueue 3\n', PER_JOB),
        ('n = $(Process)\n+RequiredDatasets = {"x:$(n)", "x:b"}\nqueue 3\n', PER_JOB),
        ('+RequiredDatasets = {"x:$(ClusterId)", "x:b"}\nqueue\n', PER_JOB),
        (f'+RequiredDatasets = {{"x:{"x" * 120}$(n:$(Process))"}}\nqueue 3\n', PER_JOB),
        ('a = b\nb = x:b\n+RequiredDatasets = {"$($(a))"}\nqueue\n', PER_JOB),
        ('+RequiredDatasets = {"x:$RANDOM_CHOICE(a,b)", "x:b"}\nqueue\n', PER_JOB),
        ('+RequiredDatasets = split("lofar:a,lofar:b", ",")\nqueue\n', "not a list of strings"),
        (LIST.replace("lofar:a", "a") + "queue\n", "it has no scope"),
        (ITEMS + "queue x from (\n a\n c\n)\nqueue x in (d)\n", PER_JOB),
        (LIST + "include : more.sub\nqueue\n", "include : more.sub"),
        (LIST + "error : no\nqueue\n", "HTCondor cannot read it"),
    ],
)
def test_list_that_is_not_known_before_the_submission_has_no_key(text, reason):
    """Case S7 of cases/submit.md."""
    done = added(text)
    assert done.text.decode() == lengthened(text)
    assert reason in done.notes[-1]
    assert not any("only the key of this list is added" in note for note in done.notes)


def test_macro_of_the_file_with_the_name_of_one_that_differs_per_job_is_known():
    text = LIST.replace("lofar:a", "lofar:$(day)") + "queue\n"
    assert f'"{AB}"' in added("day = a\n" + text).text.decode()
    assert PER_JOB in added(text).notes[-1]


def test_job_macros_are_still_those_of_jobs_after_their_values_were_tried():
    description = read_description(b"arguments = $(Process) b\nqueue 2\n", Path.cwd())
    assert input_names(description) == input_names(description) == (["b"], ["0", "1"])


@pytest.mark.parametrize("before", ["", LIST])
def test_key_comes_with_its_names_also_if_another_list_stands_between_queue_statements(before):
    """The schedd takes the key only for jobs with these names, so the second list needs no guard here."""
    done = added(before + 'queue\n+RequiredDatasets = {"o:1", "o:2"}\nqueue\n', A, B)
    assert f'+DataLocalityKey = "{AB}"\n' in done.text.decode().partition("queue\n")[0]
    assert not any("is left to the schedd" in note for note in done.notes)


def test_macro_in_its_own_value_is_its_value_before():
    """Case S6 of cases/submit.md: condor_submit takes no value for L at first."""
    text = 'L=$(L) $(L) $(L)\n+RequiredDatasets={"x:$(L)","x:b"}\nqueue\n'
    with pytest.raises(SubmitFileError, match="'x:  ' is not a DID"):
        added(text)


def test_macros_that_refer_to_each_other_are_refused():
    for macro in ("$F(L)", "$(N:$(L))", "$(N:$Fn(O:$(L)))", "$CHOICE($(N),$(L))"):
        text = f'L = $(M)\nM = {macro}\n+RequiredDatasets = {{"x:$(L)"}}\nqueue\n'
        with pytest.raises(SubmitFileError, match="the macros l and m refer to each other"):
            added(text)


def test_macros_that_grow_without_bound_are_refused():
    doubled = "".join(f"a{n + 1} = $(a{n})$(a{n})\n" for n in range(40))
    with pytest.raises(SubmitFileError, match="longer than 10 MB"):
        added(f'a0 = x\n{doubled}+RequiredDatasets = {{"x:$(a40)"}}\nqueue\n')


@pytest.mark.parametrize(
    "settings",
    [
        {"after": [LIST.strip()]},
        {"before": [LIST.strip().replace("+", "MY.")]},
        {"before": ["x=a"], "after": [ITEMS.strip()]},
    ],
)
def test_list_on_the_command_line_counts_as_the_file_s_own(settings):
    """Case S2 of cases/submit.md."""
    done = added("queue\n", Did("lofar:c"), **settings)
    assert done.lines[0] == f'+DataLocalityKey = "{AB}"'
    assert "already" in done.notes[0]


def test_own_list_of_a_node_gets_its_key_by_vars():
    def filtered(text: bytes) -> FilterResult:
        dag = read_dag(text)
        descriptions = {node.name: read_node(node, Path.cwd()) for node in dag.nodes}
        return add_datasets_to_dag(text, {}, dag, descriptions, "x.dag")

    text = lengthened(f'JOB A {{\n{ITEMS}}}\nVARS A x="a"\nJOB B {{\n}}\n').encode()
    text += b'VARS B +RequiredDatasets="{\\"lofar:a\\"}"\n'
    done = filtered(text)
    key, names = (
        f'VARS A APPEND +{name}="\\"{value}\\""\n'
        for name, value in (("DataLocalityKey", AB), ("DataLocalityKeyFor", f"{A},{B}"))
    )
    assert done.text == text + f"{key}{names}".encode()
    assert filtered(done.text).text == done.text
