"""DAG files by DAGMan's own grammar: HTCondor 25's ``dag_parser.cpp``, 23's ``parse.cpp``."""

from pathlib import Path

import pytest

from hydrator.submit.submit_files.dag import Dag, is_dag, read_dag, read_node
from hydrator.submit.submit_files.datasets import add_datasets_to_dag, input_names
from hydrator.submit.submit_files.description import SubmitFileError


def read(text: str) -> Dag:
    return read_dag(text.encode())


@pytest.mark.parametrize(
    "first",
    [
        *("// a comment", "PRE_SKIP A 3", "pre-skip A 3", "DONE A", "WEAK PARENT A CHILD B", "FINAL A a.sub"),
        *("Service A a.sub", "PROVISIONER A a.sub", "NODE A a.sub", "TOLERANCE A 3", "SAVE_POINT_FILE A"),
        *("ABORT-DAG-ON A 3", "submit_description D {", "INCLUDE other.dag", "\\\nJOB A a.sub"),
    ],
)
def test_dag_is_recognized_by_each_statement_that_can_begin_it(first):
    assert is_dag(f"{first}\nJOB A a.sub\n".encode())


@pytest.mark.parametrize(
    "first",
    [
        *(
            "include : common.sub",
            "include ifexist : a",
            "include command : /bin/x",
            "include command into c : x",
        ),
        *("priority = 3", "priority=3", "retry @=end", "queue", "env = a", "config =x", "include: a"),
    ],
)
def test_submit_description_is_never_read_as_a_dag(first):
    assert not is_dag(f"{first}\nexecutable = x\n".encode())


@pytest.mark.parametrize("kind", ["JOB", "node", "FINAL", "Provisioner", "SERVICE"])
def test_dag_reader_reads_every_kind_of_node(kind):
    (node,) = read(f"{kind} A a.sub DIR d\n").nodes
    assert (node.name, node.file) == ("A", "d/a.sub")
    assert node.kind == ("JOB" if kind == "node" else kind.upper())


@pytest.mark.parametrize(
    ("opens", "closes"), [("{", "}"), ("@=end", "@end"), ("@=EOF", "@EOF"), ("{", "}  "), ("@=x", "@x DONE")]
)
@pytest.mark.parametrize("kind", ["JOB", "FINAL", "SERVICE"])
def test_dag_reader_reads_an_inline_description_to_its_end(kind, opens, closes):
    dag = read(f'{kind} A {opens}\n  +RequiredDatasets = {{"o:1"}}\n  # JOB X x.sub\n{closes}\nJOB B b.sub\n')
    inline = b'  +RequiredDatasets = {"o:1"}\n  # JOB X x.sub\n'
    assert [(node.name, node.text) for node in dag.nodes] == [("A", inline), ("B", None)]


def test_lines_of_an_inline_description_are_not_statements_of_the_dag():
    text = "JOB A @=end\nJOB Z z.sub\n}\nSPLICE S s.dag\n@end DIR d\nJOB B { \nexecutable = x\n} DONE\n"
    dag = read(text)
    assert [node.name for node in dag.nodes] == ["A", "B"]
    assert dag.references == ()


def test_shared_description_belongs_to_each_node_that_names_it():
    dag = read("SUBMIT_DESCRIPTION d @=x\na=1\n@x\nJOB A d\nFINAL F d\nJOB B e\n")
    assert [node.text for node in dag.nodes] == [b"a=1\n", b"a=1\n", None]


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ('JOB A "my file.sub"', "my file.sub"),
        ("JOB A 'my file.sub' DONE", "my file.sub"),
        ('JOB A my" "x', "my x"),
    ],
)
def test_quoted_file_name_keeps_its_blanks(line, file):
    (node,) = read(line).nodes
    assert node.file == file


def test_quoted_folder_and_dag_file_are_read_and_replaced():
    text = '# x\nSPLICE S "a b.dag" DIR "c d"\nSUBDAG EXTERNAL D \'e.dag\'\nINCLUDE "i j.dag"\n'
    dag = read(text)
    assert [(one.file, one.folder) for one in dag.references] == [
        ("a b.dag", "c d"),
        ("e.dag", ""),
        ("i j.dag", ""),
    ]
    copies = {one.start: one.file.replace(".dag", ".new.dag") for one in dag.references}
    done = add_datasets_to_dag(text.encode(), {}, dag, {}, "x", copies=copies)
    assert done.text.decode() == (
        '# x\nSPLICE S "a b.new.dag" DIR "c d"\nSUBDAG EXTERNAL D e.new.dag\nINCLUDE "i j.new.dag"\n'
    )


def test_dag_file_name_in_a_continued_statement_is_replaced():
    text = "SPLICE \\\n  # s.dag\n\n   s.dag \\\n  s.dag DIR s.dag\n"
    dag = read(text)
    done = add_datasets_to_dag(text.encode(), {}, dag, {}, "x", copies={dag.references[0].start: "new.dag"})
    assert done.text.decode() == "SPLICE s.dag new.dag DIR s.dag\n"


@pytest.mark.parametrize("node", ["all_nodes", "ALL_NODES", "All_Nodes"])
def test_vars_of_all_nodes_apply_to_each_node_except_the_final_one(node):
    dag = read(f"JOB A a\nSERVICE S s\nFINAL F f\nVARS {node} +RequiredDatasets='{{\"o:1\"}}'\n")
    assert [list(node.defaults) for node in dag.nodes] == [["+RequiredDatasets"], ["+RequiredDatasets"], []]


@pytest.mark.parametrize(
    ("pairs", "values"),
    [
        ('x="1" y="a b"', {"x": "1", "y": "a b"}),
        ("x='1' y = 'a \"b\"'", {"x": "1", "y": 'a "b"'}),
        (r'x="a \"b\" \\c" z=plain', {"x": r'a "b" \c', "z": "plain"}),
        ('PREPEND x="1"', {"x": "1"}),
        ('append="1"', {"append": "1"}),
        ("x=L1.ms,L2.ms", {"x": "L1.ms,L2.ms"}),
    ],
)
def test_vars_values_are_read_in_both_quotes_and_without_quotes(pairs, values):
    (node,) = read(f"JOB A a.sub\nVARS A {pairs}\n").nodes
    assert node.variables == values


@pytest.mark.parametrize(
    "given", ["+RequiredDatasets='{}'", 'My.requireddatasets="{}"', "APPEND MY.RequiredDatasets = {}"]
)
def test_node_with_datasets_in_its_vars_keeps_them(given):
    (node,) = read(f"VARS A {given}\nJOB A {{\n}}\n").nodes
    assert read_node(node, Path.cwd()).dataset_list == "{}"


def test_description_overrides_vars_and_appended_vars_override_it():
    text = "JOB A {\n+RequiredDatasets = $(x)\n}\nVARS A +RequiredDatasets=a x=b\n"
    for appended, expected in (("", "b"), ("VARS A APPEND +RequiredDatasets=c\n", "c")):
        (node,) = read(text + appended).nodes
        assert read_node(node, Path.cwd()).expand("MY.RequiredDatasets", {}) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("JOB A gone.sub\n", "gone.sub cannot be read here"),
        ("JOB A a.sub\nSCRIPT PRE A make\n", "its PRE script may change a.sub"),
        ("JOB A a.sub\nSCRIPT DEFER 1 2 PRE all_nodes make\n", "its PRE script may change a.sub"),
        ("JOB A a.sub\nSCRIPT POST A make\nSCRIPT PRE B make\n", ""),
        ("JOB A {\na=1\n}\nSCRIPT PRE A make\n", ""),
        ("JOB A {\ninclude command : x\n}\n", "it has include command : x"),
    ],
)
def test_description_that_can_change_before_its_submission_is_not_read(tmp_path, text, reason):
    (tmp_path / "a.sub").write_text("executable = x\n")
    (node,) = read(text).nodes
    assert read_node(node, tmp_path).unread == reason


def test_environment_of_this_process_is_not_that_of_a_node(monkeypatch):
    """Case S7 of cases/submit.md."""
    monkeypatch.setenv("OBS", "1")
    text = 'JOB A {\narguments = $ENV(OBS) b\n}\nVARS A +RequiredDatasets="{\\"o:$ENV(OBS)\\", \\"o:2\\"}"\n'
    (node,) = read(text).nodes
    description = read_node(node, Path.cwd())
    done = add_datasets_to_dag(text.encode(), {}, read(text), {"A": description}, "x")
    assert done.text.decode() == text
    assert "differs from job to job" in done.notes[-1]
    assert input_names(description) == (["b"], ["1"])


def test_comment_and_blank_line_inside_a_continued_line_are_skipped():
    dag = read("JOB \\\n# JOB X x\n\n// y\n A a.sub\n//JOB Z z.sub\nJOB B b.sub\n")
    assert [node.name for node in dag.nodes] == ["A", "B"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("JOB A {\nexecutable = x\n", "node A: its inline description has no end: add the line }"),
        ("JOB A @=\nqueue\n", "node A: write a word after @="),
        ('JOB A "a.sub\n', 'the quote " is not closed'),
        ("JOB A a.sub\nPARENT A \\\n", "the DAG file ends in a backslash"),
    ],
)
def test_dag_that_dagman_rejects_gives_one_sentence(text, sentence):
    with pytest.raises(SubmitFileError) as refused:
        read(text)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("name", ['a"b.dag', "a\\b.dag"])
def test_copy_name_that_a_dag_file_cannot_contain_is_rejected(name):
    dag = read("SPLICE S s.dag\n")
    with pytest.raises(SubmitFileError, match="a DAG file cannot contain this file name"):
        add_datasets_to_dag(b"SPLICE S s.dag\n", {}, dag, {}, "x", copies={0: name})
