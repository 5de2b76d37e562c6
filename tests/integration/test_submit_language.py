"""Hostile names and commands in the real condor_submit: each arrives unchanged, or is rejected."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hydrator.config import SubmitSettings
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Did
from hydrator.submit.rapthor.job import RapthorRun, RunOptions, job_lines, submit_description
from hydrator.submit.submit_files.datasets import add_datasets
from hydrator.submit.submit_files.description import read_description
from hydrator.submit.submit_files.values import quote_arguments
from testbed.cached import Unavailable
from testbed.dryrun import DryRun, Rejected, text_of, words_of
from testbed.files import write_program
from toil_batch_system_classad_hydrator.job import (
    SubmitParameterError,
    ToilJob,
    WorkflowSettings,
    build_submit_description,
    quote_words,
)

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

PIECES = [*"$()[]\"'\n\r\\;=#%, \tab\0\x01\x0b\x1f\x7f", "$(X)", "$$(Y)", "$$([1])", "$$", "$ENV(HOME)"]
PIECES += ["\nqueue\n", '\n+Owner = "root"\n', "é", "\u2028", "\udcff", "$INT(1)", "@", "://", "\\\n"]
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
WORDS = st.lists(HOSTILE, min_size=1, max_size=3)
TRIES = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=["trixie", "sid"])
def submit(request: pytest.FixtureRequest) -> Iterator[DryRun]:
    try:
        yield DryRun(request.param)
    except Unavailable as reason:
        pytest.skip(f"{reason}: condor_submit was not tried")


def rapthor(
    command: "list[str]",
    inputs: "list[str]",
    *,
    origin: str = "x",
    container: str | None = None,
    wish: RunOptions,
) -> str:
    run = RapthorRun("run-1", "run-1", (Did("lofar:L1.ms"),), options=wish)
    lines = job_lines(
        run,
        SubmitSettings(cpus=1, memory_gb=1, disk_gb=1, container=container),
        origin=origin,
        input_files=inputs,
        command=command,
        site_attributes=["GLIDEIN_Site"],
    )
    text = submit_description(lines, wish.extra_lines)
    return text.replace("executable = hydrator-job-start.py\n", "executable = /bin/true\n")


PLAIN = RunOptions()


@TRIES
@given(command=WORDS, origin=HOSTILE)
@example(command=["sh", "-c", "echo $$(Y) $$ $(X) $$$(Z)"], origin="a\nqueue 2\n.parset")
@example(command=["\\"], origin="\\")
def test_command_arrives_unchanged_or_is_rejected(submit: DryRun, command: list[str], origin: str):
    usual = submit.ad(rapthor(["true"], ["a"], wish=PLAIN))
    try:
        text = rapthor(command, ["a"], origin=origin, wish=PLAIN)
    except ConfigError:
        assert any(not word.isprintable() for word in command)
        return
    ad = submit.ad(text)
    assert words_of(text_of(ad["Arguments"])) == ["--parset", "run.parset", "--", *command]
    assert set(ad) == set(usual)


@TRIES
@given(name=HOSTILE)
@example(name="a\n+Injected = true")
@example(name="$(X)")
@example(name="a\\")
@example(name='a\\"b')
def test_file_name_arrives_unchanged_or_is_rejected(submit: DryRun, name: str):
    usual = submit.ad(rapthor(["true"], ["/d/a"], wish=PLAIN))
    try:
        text = rapthor(["true"], [f"/d/{name}x{name}"], wish=PLAIN)
    except ConfigError:
        return
    ad = submit.ad(text)
    assert text_of(ad["TransferInput"]) == f"/d/{name}x{name}"
    assert set(ad) == set(usual)


@pytest.mark.parametrize("name", ["a$(X)b", "$a", "a b", "a;b=c#d%e", "é", "a'b", 'a"b', "a\\b"])
def test_name_that_a_submit_description_can_have_is_accepted(submit: DryRun, name: str):
    ad = submit.ad(rapthor(["true"], [f"/d/{name}"], wish=PLAIN))
    assert text_of(ad["TransferInput"]) == f"/d/{name}"


@TRIES
@given(text=HOSTILE)
def test_container_image_arrives_unchanged_or_is_rejected(submit: DryRun, text: str):
    image = f"docker://x{text}y"
    try:
        description = rapthor(["true"], ["a"], container=image, wish=PLAIN)
    except ConfigError:
        return
    assert text_of(submit.ad(description)["ContainerImage"]) == image


@TRIES
@given(line=HOSTILE, requirements=HOSTILE)
def test_submit_line_or_expression_of_the_user_stays_one_line(submit: DryRun, line: str, requirements: str):
    wish = RunOptions(requirements=f'Name != "a{requirements}"', extra_lines=(f"+Mine = {line}",))
    try:
        text = rapthor(["true"], ["a"], wish=wish)
    except ConfigError:
        return
    assert text.count("\nqueue") == 1
    assert not any(written.endswith("\\") for written in text.splitlines())
    try:
        ad = submit.ad(text)
    except Rejected:
        return
    assert "root" not in ad.get("Owner", "")


def toil_step(name: str) -> SimpleNamespace:
    """What the batch system reads of Toil's JobDescription."""
    size = {"cores": 1, "memory": 2**20, "disk": 2**10, "accelerators": ()}
    return SimpleNamespace(jobName=name, unitName=name, displayName="", **size)


@TRIES
@given(command=HOSTILE, variables=st.dictionaries(st.sampled_from("AB"), HOSTILE, max_size=2), name=HOSTILE)
@example(command="echo $$(Y) $$ $(X)", variables={"A": "$$(B)"}, name="$$(X)$(Y)")
def test_step_of_a_stand_in_for_toil_arrives_unchanged_or_is_rejected(
    submit: DryRun, command: str, variables: dict[str, str], name: str
):
    work = ToilJob(1, toil_step(name), command, variables)
    plain = ToilJob(1, toil_step("n"), "true")
    logs = {"output": "/o", "error": "/e", "log": "/l"}

    def ad(work: ToilJob) -> dict[str, str]:
        description = build_submit_description(work, logs, WorkflowSettings("w"))
        return submit.ad("".join(f"{key} = {value}\n" for key, value in description.items()) + "queue\n")

    try:
        found = ad(work)
    except SubmitParameterError:
        assert not all(text.isprintable() for text in (command, *variables.values()))
        return
    assert words_of(text_of(found["Arguments"])) == ["-c", command]
    assert sorted(words_of(text_of(found["Environment"]))) == sorted(
        f"{key}={value}" for key, value in variables.items()
    )
    assert set(found) == set(ad(plain))


def test_doubled_dollar_signs_reach_a_real_job_unchanged(pool):
    words = ["$$(Name)", "a$$b", "$$$(X)", "$$$$([1])", "$(HOME)", "it's", 'a "b"']
    variable = "$$(Name) $(HOME) $$$"
    folder = pool.user_home("alice")
    script = write_program(folder / "show", '#!/bin/sh\nprintf \'%s\\n\' "$@" "$ODD"\n')
    cluster = pool.submit(
        f"executable = {script}\narguments = {quote_arguments(words)}\n"
        f"environment = {quote_words([f'ODD={variable}'])}\noutput = {folder}/shown\n"
        "should_transfer_files = YES\nrequest_memory = 10\nrequest_disk = 1\nqueue\n"
    )
    pool.wait(lambda: pool.done(cluster), f"job {cluster} to end")
    assert (folder / "shown").read_text().splitlines() == [*words, variable]


QUEUES = [
    "queue x in (a b, c)",
    "queue 2 x in [1:] (a b c)",
    "queue x from (\n a\n# no\n  b  \n)",
    "queue x, y from (\na one, two\nb,\nc\n)",
    "queue 3",
    "queue from (\na\nb\n)",
]


def filtered(text: str) -> str:
    description = read_description(text.encode(), Path.cwd())
    return add_datasets(text.encode(), description, [], "x.sub").text.decode()


@pytest.mark.parametrize("queue", QUEUES)
def test_each_job_of_a_filtered_file_has_the_key_of_its_own_list(submit, queue):
    variable = "Item" if queue.startswith("queue from") else "x"
    scope = f"lofar:{'x' * 60}_"
    names = f'"{scope}b", "{scope}z"' if queue == "queue 3" else f'"{scope}$({variable})", "{scope}z"'
    text = f'executable = /bin/true\n+RequiredDatasets = {{{names}}}\n+Note = "$(y:none)"\n{queue}\n'
    plain, keyed = submit.ads(text), submit.ads(filtered(text))
    assert len(plain) == len(keyed) > 1
    last: dict[str, str] = {}
    for before, after in zip(plain, keyed, strict=True):
        last |= after
        dids = re.findall(r'"([^"]+)"', last["RequiredDatasets"])
        assert text_of(last["DataLocalityKey"]) == set_key(dids)
        assert text_of(last["DataLocalityKeyFor"]) == ",".join(dids)
        assert (before.get("RequiredDatasets"), before.get("Note")) == (
            after.get("RequiredDatasets"),
            after.get("Note"),
        )


@pytest.mark.parametrize(
    ("names", "queue", "first"),
    [
        ('"x:SB$INT(Process,%03d)"', "queue 3", '{ "x:SB000" }'),
        ('"x:$Fn(f)"', "queue f in (a/1.ms, b/2.ms)", '{ "x:1" }'),
        ('"x:$(Process)", "x:$(n)"', "n = $(Step)\nqueue 2", '{ "x:0","x:0" }'),
        ('"x:$RANDOM_CHOICE(a,a)"', "queue 2", '{ "x:a" }'),
        ('"x:a$(x)", "x:z"', "queue x from (\na\n\nb\n)", '{ "x:aa","x:z" }'),
        ('"x:$(L)"', "L = a\nL = $(L)$(L)\nqueue 2", '{ "x:aa" }'),
    ],
)
def test_list_that_differs_per_job_stays_as_the_user_wrote_it(submit, names, queue, first):
    """Cases S6, S7 of cases/submit.md."""
    text = f"executable = /bin/true\n+RequiredDatasets = {{{names}}}\n{queue}\n"
    done = filtered(text)
    assert done == text
    ads = submit.ads(done)
    assert (len(ads), ads[0]["RequiredDatasets"]) == (len(submit.ads(text)), first)
