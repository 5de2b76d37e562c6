"""The map of the code: its picture has the steps of today's code, and a name that is gone ends its build."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from scripts import architecture
from scripts.architecture import CORE, ROOTS, NameGoneError, Step, cycle_steps


def step_names(steps: tuple[Step, ...] | list[Step]) -> list[str]:
    return [name for step in steps for name in (step.function.name, *step_names(step.inside))]


def test_cycle_has_the_steps_of_evaluate_before_the_plan_and_the_sending():
    names = step_names(cycle_steps())
    order = ["query_schedds", "read_back", "evaluate", "plan", "apply"]
    assert [name for name in names if name in order] == order
    assert names.index("plan") - names.index("evaluate") > 5


def test_picture_is_an_svg_with_a_box_for_each_step():
    picture = ET.fromstring(architecture.cycle_picture())
    texts = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert len(texts) == len(step_names(cycle_steps()))
    assert any(text.startswith("evaluate") for text in texts)


@pytest.mark.parametrize("function", [*ROOTS, CORE], ids=lambda function: function.name)
def test_map_names_the_function_that_is_gone(function):
    renamed = replace(function, name="renamed")
    roots = [renamed if root == function else root for root in ROOTS]
    with pytest.raises(NameGoneError, match=rf"renamed in {function.path} does not exist any more: correct"):
        cycle_steps(roots, renamed if function == CORE else CORE)


def test_map_names_the_file_that_is_gone():
    with pytest.raises(NameGoneError, match=r"hydrator/moved\.py does not exist any more"):
        cycle_steps(core=replace(CORE, path="hydrator/moved.py"))


def test_map_rejects_a_core_that_the_cycle_does_not_call():
    uncalled = replace(CORE, path="hydrator/reconcile/result.py", name="history_entries")
    with pytest.raises(
        NameGoneError, match=r"Reconciler\.refresh_demand in .* does not call history_entries"
    ):
        cycle_steps(ROOTS[:1], uncalled)


def test_map_has_every_folder_and_module_with_a_sentence():
    text = architecture.markdown()
    for folder, sentence in architecture.folder_rows():
        assert f"| `{folder}` | {sentence} |" in text
        assert [name for name, words in architecture.module_rows(folder) if not words] == []
        assert sentence, f"{folder}/__init__.py has no docstring"
    assert "| `evaluate.py` | Evaluation of one cycle" in text


def test_first_sentence_is_one_line_of_markdown():
    docstring = "Build ``ads`` as\n    :func:`draft` does: fast. Second.\n\n    More."
    assert architecture.first_sentence(docstring) == "Build `ads` as `draft` does: fast."
    assert architecture.first_sentence(None) == ""
