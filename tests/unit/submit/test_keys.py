"""DataLocalityKey in submit descriptions and DAG files."""

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from hydrator.submit.submit_files.dag import read_dag
from hydrator.submit.submit_files.dag_datasets import add_datasets_to_dag
from hydrator.submit.submit_files.datasets import FilterResult, add_datasets
from hydrator.submit.submit_files.keys import CLAUSE_LINES

A, B = Did("lofar:a"), Did("lofar:b")
AB = set_key([A, B])
LIST = '+RequiredDatasets = {"lofar:b", "lofar:a"}\n'
CLAUSE = "".join(f"{line}\n" for line in CLAUSE_LINES)
ITEMS = '+RequiredDatasets = {"lofar:$(x)", "lofar:b"}\n'


def added(text: str, *dids: Did, is_complete: bool = True, **files: str) -> FilterResult:
    read = {name: content.encode() for name, content in files.items()}.get
    return add_datasets(text.encode(), dids, "x.sub", read, is_complete=is_complete)


def test_several_datasets_have_a_key_and_one_dataset_has_none():
    assert f'+DataLocalityKey = "{AB}"\n' in added("queue\n", A, B).text.decode()
    assert b"DataLocalityKey" not in added("queue\n", A, A).text


def test_own_list_of_a_description_gets_its_key_only():
    done = added(f"{LIST}queue\n", A)
    assert done.text.decode() == f'{LIST}+DataLocalityKey = "{AB}"\n{CLAUSE}queue\n'
    assert done.notes == ("x.sub has RequiredDatasets already: only the key of this list is added",)
    assert added(done.text.decode()).text == done.text


def test_wrong_key_of_the_user_is_replaced_with_a_note():
    done = added(f'+DataLocalityKey = "mine"\n{LIST}queue\n')
    assert done.insertion.decode() == f'+DataLocalityKey = "{AB}"\n{CLAUSE}'
    assert done.notes[1] == (
        f'x.sub: DataLocalityKey = "mine" is not the key of RequiredDatasets: "{AB}" replaces it'
    )
    assert added(f'My.DataLocalityKey = "{AB}"\nqueue\n', A, B).text.count(b"DataLocalityKey") == 1


def test_each_item_has_the_key_of_its_own_datasets():
    done = added(f"{ITEMS}queue 2 x from [1:] (\n a\n# no\n c \n)\narguments = 1\n")
    ac = set_key([Did("lofar:c"), B])
    assert done.text.decode() == (
        f'{ITEMS}+DataLocalityKey = "$(hydrator_key)"\n{CLAUSE}'
        f"queue 2 hydrator_key, x from [1:] (\n{AB},a\n{ac},c\n)\narguments = 1\n"
    )
    assert done.has_new_items
    assert done.item_lists == (("lofar:a", "lofar:b"), ("lofar:c", "lofar:b"))


def test_items_with_one_key_need_no_variable():
    done = added(f"n = 1\n{LIST}queue x in (1 2)\n")
    assert not done.has_new_items
    assert f'"{AB}"' in done.text.decode()


@pytest.mark.parametrize(
    "text",
    [
        ITEMS + "queue x from ./script |\n",
        ITEMS + "queue x matching files *.ms\n",
        ITEMS + "queue x from (\n a\n\n c\n)\n",
        ITEMS + "queue 5\n",
        "if $(y)\nx = a\nendif\n" + ITEMS + "queue\n",
        ITEMS + "queue\nx = a\n",
        LIST + "include : more.sub\nqueue\n",
        LIST + LIST.replace("lofar:a", "lofar:c") + "queue\n",
        'if true\n+RequiredDatasets = {"lofar:$(x)", "lofar:b"}\nqueue x in (a c)\nendif\n',
        '+RequiredDatasets = split("lofar:a,lofar:b", ",")\nqueue\n',
    ],
)
def test_list_that_only_condor_submit_can_read_has_no_key(text):
    assert b"DataLocalityKey" not in added(text).text


def test_names_without_a_scope_have_no_key_and_a_note():
    done = added('+RequiredDatasets = {"a", "lofar:b"}\nqueue\n')
    assert b"DataLocalityKey" not in done.text
    assert "DataLocalityKey is left out" in done.notes[1]
    assert "it has no scope" in done.notes[1]


def test_settings_on_the_command_line_can_change_the_list_so_it_has_no_key():
    assert b"DataLocalityKey" not in added(f"{LIST}queue\n", is_complete=False).text


def test_own_list_of_a_node_gets_its_key_by_vars():
    text = b'JOB A a.sub\nVARS A x="a"\nJOB B b.sub\nVARS B +RequiredDatasets="{\\"lofar:a\\"}"\n'
    dag = read_dag(text, {"a.sub": f"{ITEMS}queue\n".encode()}.get)
    done = add_datasets_to_dag(text, {}, dag, "x.dag")
    assert done.insertion.decode() == f'VARS A +DataLocalityKey="\\"{AB}\\""\n'
    again = add_datasets_to_dag(done.text, {}, read_dag(done.text, {"a.sub": ITEMS.encode()}.get), "x.dag")
    assert again.text == done.text
