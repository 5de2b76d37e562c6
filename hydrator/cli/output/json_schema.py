"""What ``--json`` prints, command by command, as JSON Schema: a contract that tests keep and the docs show.

Keys are added; none is renamed or removed without a word in the CHANGELOG.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hydrator.domain.model import DatasetState

Shape = Mapping[str, Any]
"""A JSON Schema."""

TEXT: Shape = {"type": "string"}
COUNT: Shape = {"type": "integer", "minimum": 0}
BYTES: Shape = {"type": "integer", "minimum": 0, "title": "bytes"}
NUMBER: Shape = {"type": "number"}
SHARE: Shape = {"type": "number", "minimum": 0, "maximum": 1, "title": "share, 0 to 1"}
SECONDS: Shape = {"type": "number", "title": "seconds"}
TIME: Shape = {"type": "integer", "minimum": 0, "title": "Unix s"}
FLAG: Shape = {"type": "boolean"}
ANYTHING: Shape = {"title": "whatever it is"}


def one_of(*words: str) -> Shape:
    return {"enum": list(words), "title": ", ".join(words)}


def maybe(shape: Shape) -> Shape:
    """*shape*, or null."""
    return {"anyOf": [shape, {"type": "null"}]}


def rows(shape: Shape) -> Shape:
    return {"type": "array", "items": shape}


def by(key: str, shape: Shape) -> Shape:
    """An object whose keys are names of the kind *key*."""
    return {"type": "object", "additionalProperties": shape, "title": key}


def record(*optional: str, **keys: tuple[Shape, str]) -> Shape:
    """An object with just these *keys*, each a shape and what it means; all but the *optional*."""
    return {
        "type": "object",
        "properties": {key: {**shape, "description": meaning} for key, (shape, meaning) in keys.items()},
        "required": [key for key in keys if key not in optional],
        "additionalProperties": False,
    }


GENERATION = (maybe(COUNT), "of the ad, null where there is none")
AS_OF = (maybe(TIME), "when the ad's site was last read completely")
STATE = one_of(*(state.value for state in DatasetState))

ACTION = record(
    publisher=(maybe(TEXT), "where to; null for what is held"),
    site=(TEXT, "whose ad"),
    action=(one_of("publish", "refresh", "hold", "withdraw", "rest", "held"), "what is to be done"),
    why=(TEXT, "empty where nothing needs saying"),
    generation=GENERATION,
    as_of=AS_OF,
)
LEFT_OUT = by("SITE", rows(record(
    datasets=(COUNT, "of the jobs that found no room in the site's ad"),
    first=(TEXT, "one of them"),
    jobs=(COUNT, "that name them"),
)))  # fmt: skip
OUTCOME = {
    "error": (maybe(TEXT), "why it failed"),
    "not_read_back": (rows(TEXT), "sites sent, and not seen there afterwards"),
    "ads": (COUNT, "read back"),
}
UNSEEN = (by("DID", TEXT), "datasets that no catalogue could be asked about, with the reason")
REFUSED = (by("NAME", TEXT), "what jobs name and is no DID, with the reason")
CLASHES = (rows(rows(TEXT)), "datasets told apart by letter case alone, not advertised")
MISSPELT = (
    by("DID", rows(TEXT)),
    "wanted datasets that no catalogue has, with those it has in other letter case",
)
RIVALS = (by("PUBLISHER", TEXT), "why another daemon seems to publish there too")
REJECTED = (by("PUBLISHER", by("NAME", TEXT)), "ads read back there and not adopted, with the reason")
IMPLAUSIBLE = (by("SITE", COUNT), "generations that hooks refuse: `hydrator renumber`")
ONCE = record(
    at=(TIME, "when the cycle began"),
    whole=(FLAG, "nothing of it failed"),
    catalogues=(by("CATALOGUE", maybe(TEXT)), "why it failed, null where it answered"),
    publishers=(by("PUBLISHER", record(**OUTCOME)), "how each went"),
    left_out=(LEFT_OUT, "for lack of room"),
    clashes=CLASHES,
    misspelt=MISSPELT,
    unseen=UNSEEN,
    refused=REFUSED,
    held=(
        by("SITE", TEXT),
        "sites whose ad stays as it is, with the reason: a change held, a rollback, an answer awaited",
    ),
    rejected=REJECTED,
    rivals=RIVALS,
    implausible_generations=IMPLAUSIBLE,
    plan=(rows(ACTION), "what was done, as `hydrator plan`"),
)
TRUST = {
    "trust": (SHARE, "of audited facts that were true; 1 until audited"),
    "audited": (COUNT, "facts, in the audit's window"),
    "false": (COUNT, "of them"),
    "corrected": (COUNT, "datasets now shown otherwise than the catalogue says"),
    "last_audit": (maybe(TIME), "the last question"),
}
STATUS = record(
    last_cycle=(maybe(TIME), "when it began; null before the first"),
    whole=(maybe(FLAG), "nothing of it failed"),
    catalogues=(rows(record(
        catalogue=(TEXT, "its name"),
        read=(maybe(TIME), "when it last answered"),
        sites=(rows(TEXT), "that it speaks for"),
        datasets=(COUNT, "known of it"),
        failure=(maybe(TEXT), "why it failed last time"),
        unmapped=(rows(TEXT), "storage elements without a site"),
    )), "each that is configured"),
    demand=(record(
        datasets=(COUNT, "that jobs, pins and patterns want"),
        jobs=(COUNT, "that name them"),
        refused=REFUSED,
        unseen=UNSEEN,
        clashes=CLASHES,
        misspelt=MISSPELT,
        nowhere=(rows(TEXT), "datasets that no catalogue has at any site: is the name right?"),
        left_out=(LEFT_OUT, "for lack of room"),
    ), "what is wanted"),
    held=(rows(record(
        site=(TEXT, "where a change is held"),
        since=(TIME, "when it was first seen"),
        cause=(TEXT, "site, catalogue or unnamed: what shrank"),
        datasets=(COUNT, "that would leave"),
        of=(COUNT, "that are there"),
        polls=(COUNT, "that confirmed it"),
        polls_needed=(maybe(COUNT), "until it is let go; null: only an operator can"),
        why=(TEXT, "in one sentence"),
    )), "`hydrator approve` lets them go"),
    rolled_back=(rows(record(
        site=(TEXT, "that an operator returned"),
        since=(TIME, "when"),
        generation=(COUNT, "that it has now"),
        as_of=(TIME, "of what it shows"),
    )), "`hydrator rollback SITE --end` ends it"),
    publishers=(rows(record(publisher=(TEXT, "its name"), **OUTCOME)), "how each went"),
    rejected=REJECTED,
    rivals=RIVALS,
    implausible_generations=IMPLAUSIBLE,
    trust=(by("SITE", record(**TRUST)), "what the audit found"),
    credentials=(rows(record(
        credential=(TEXT, "its name"),
        until=(TIME, "when it ends"),
        since=(maybe(TIME), "when it began"),
        by=(TEXT, "who renews it"),
        recipe=(TEXT, "the section of docs/credentials.md"),
    )), "what ends some day"),
    reload=(maybe(record(
        at=(TIME, "when"),
        problems=(rows(TEXT), "why"),
    )), "that was refused, so that an older configuration is in use; null when it is the last one"),
    private=(maybe(TEXT), "why names of private datasets may be lost; null where none is"),
    silent=(maybe(TEXT), "why the daemon counts as dead or hung; null where it works"),
)  # fmt: skip
SITE = record(
    site=(TEXT, "its name"),
    as_of=AS_OF,
    generation=GENERATION,
    truncated=(maybe(FLAG), "datasets were left out for lack of room"),
    held=(COUNT, "datasets whose leaving is held"),
    states=(by("STATE", COUNT), "wanted datasets by state"),
    **TRUST,
    read_back=(by("PUBLISHER", record(
        generation=(COUNT, "that it shows"),
        as_of=(TIME, "that it shows"),
    )), "where the ad was seen"),
)  # fmt: skip
DATASET = record(
    did=(TEXT, "scope:name"),
    jobs=(COUNT, "that name it"),
    wanted=(FLAG, "a job, pin or pattern wants it"),
    bytes=(maybe(BYTES), "its size, where known"),
    unseen=(maybe(TEXT), "why it could not be asked about"),
    clash=(FLAG, "letter case alone tells it from another"),
    misspelt=(rows(TEXT), "where no catalogue has it: datasets it has in other letter case"),
    sites=(by("SITE", record(
        state=(STATE, "its state there"),
        fraction=(maybe(SHARE), "on disk there, where neither 0 nor 1"),
        as_of=(TIME, "when that was read"),
    )), "that know it"),
)  # fmt: skip
ORIGIN = record(
    "fraction", "storage", "call", "told",
    did=(TEXT, "scope:name"),
    catalogue=(TEXT, "who says so"),
    unseen=(maybe(TEXT), "why it could say nothing new last time"),
    site=(maybe(TEXT), "null: at none"),
    state=(maybe(STATE), "its state there"),
    as_of=(maybe(TIME), "when that was read"),
    why=(TEXT, "in one line"),
    fraction=(maybe(SHARE), "on disk there"),
    storage=(TEXT, "the storage element"),
    call=(TEXT, "what the catalogue was asked"),
    told=(record(
        "call", "storage", "reason", "rule", "account", "expires_at", "ready_at", "ready_error",
        call=(TEXT, "what the catalogue was asked"),
        storage=(TEXT, "the storage element"),
        reason=(TEXT, "for the state"),
        rule=(TEXT, "that holds or brings it"),
        account=(TEXT, "whose rule"),
        expires_at=(TIME, "when the rule ends"),
        ready_at=(TIME, "when it is expected to be whole"),
        ready_error=(SECONDS, "give or take"),
    ), "what else the catalogue knows"),
)  # fmt: skip
DECIDED = record(
    at=(TIME, "when it was decided"),
    site=(TEXT, "for which site"),
    generation=(COUNT, "that the ad got"),
    as_of=(TIME, "of the ad"),
    published=(by("PUBLISHER", TIME), "since when each shows it"),
    changes=(rows(record(
        did=(TEXT, "the dataset"),
        before=(maybe(TEXT), "its state before; null: not listed"),
        after=(maybe(TEXT), "its state after"),
        why=(TEXT, "in one sentence"),
    )), "what changed"),
)  # fmt: skip
FINDING = record(
    level=(one_of("ok", "advice", "warn", "fail"), "with a `fail`, the exit status is 1"),
    subject=(TEXT, "what was looked at"),
    seen=(TEXT, "what was found"),
    todo=(TEXT, "what to do; empty where it is well"),
)
WAY_OUT = record(cost=(COUNT, "the smaller, the sooner one would do it"), text=(TEXT, "what would help"))
LACKING = record(
    did=(TEXT, "the dataset, as the job names it"),
    lack=(TEXT, "why it does not count: state, stale, not yet, elsewhere…"),
    text=(TEXT, "in one sentence"),
    state=(maybe(TEXT), "that the slots or the daemon tell"),
    fraction=(maybe(SHARE), "on disk"),
    as_of=(maybe(TIME), "when that was read"),
    rule=(maybe(TEXT), "the catalogue's rule behind it"),
    because=(maybe(TEXT), "how the catalogue came to that state"),
    bytes=(maybe(COUNT), "that are still to come there, where its size is known"),
    ready_at=(maybe(TIME), "when it is expected to be whole"),
    near=(rows(TEXT), "of one that exists nowhere: datasets whose names look like it"),
)
JOB = record(
    name=(TEXT, "CLUSTER.PROC"),
    schedd=(TEXT, "who has it"),
    alike=(COUNT, "jobs of the cluster that this one stands for"),
    status=(maybe(TEXT), "idle, running, held…"),
    datasets=(rows(TEXT), "that it names"),
    refused=(by("NAME", TEXT), "names that are no DIDs, with the reason"),
    private=(rows(TEXT), "private ones that it names in plain"),
    mode=(maybe(TEXT), "require, wait or prefer"),
    any_after=(maybe(TIME), "when it may run anywhere"),
    max_age=(maybe(COUNT), "seconds after which facts do not count for it"),
    transformed=(FLAG, "the schedd's transform has been there"),
    released=(FLAG, "`hydrator release` let it go anywhere"),
    opens_paths=(FLAG, "it opens paths at the site and cannot fetch"),
    missed=(
        rows(
            record(
                site=(TEXT, "where"),
                did=(TEXT, "what"),
                when=(TIME, "when"),
            )
        ),
        "what it could not read where it ran, the oldest first",
    ),
    missed_sites=(rows(TEXT), "sites that it keeps away from since"),
    missed_until=(maybe(TIME), "when it tries them again"),
    limits=(TEXT, "its ConcurrencyLimits"),
    uploads=(COUNT, "jobs of its user that send input files at its schedd, or wait to"),
    most_uploads=(maybe(COUNT), "from so many on the schedd asks for no slots for that user"),
    may_release=(FLAG, "whoever asks may let it go by `hydrator release`"),
    requests=(by("RESOURCE", NUMBER), "what it asks for"),
    words=(by("ATTRIBUTE", ANYTHING), "what its status is explained by"),
)
WHY = record(
    answers=(rows(record(
        job=(JOB, "the job"),
        verdict=(TEXT, "in one sentence"),
        matches_at=(rows(TEXT), "sites with a slot that matches now"),
        could_run=(FLAG, "it would match now, runs, or has run"),
        blocked=(maybe(TEXT), "the limit or priority that keeps it from slots that match"),
        notes=(rows(TEXT), "what else to know"),
        wait=(maybe(TEXT), "until when it waits for its data"),
        funnel=(TEXT, "how many slots are left, condition by condition"),
        way_out=(maybe(TEXT), "what would help soonest"),
        sites=(rows(record(
            site=(TEXT, "its name"),
            slots=(COUNT, "that it has"),
            matching=(COUNT, "of them"),
            reasons=(rows(record(
                cause=(TEXT, "data, missed, cores, memory, disk, gpus, platform, path, requirement, start…"),
                ours=(FLAG, "it is about data"),
                slots=(COUNT, "that it keeps the job from"),
                text=(TEXT, "in one sentence"),
                clauses=(rows(TEXT), "of the expressions, that are not true"),
                missing=(rows(LACKING), "datasets that do not count there"),
            )), "what keeps it from the others"),
            way_out=(maybe(WAY_OUT), "what would help there"),
            counts=(maybe(record(
                here=(COUNT, "datasets of the job that count there"),
                others=(by("WORD", COUNT), "the others, by what they are there"),
                missing_bytes=(maybe(COUNT), "still to come there, of those whose size is known"),
                all_sized=(FLAG, "the sizes of all of these are known"),
                ready_at=(maybe(TIME), "when all that is on its way is expected"),
            )), "null where all count"),
            held=(maybe(TEXT), "the change of the site's ad that the daemon holds back"),
            pool=(TEXT, "the collector of another pool, where the schedd flocks to one"),
        )), "each, with what keeps the job away"),
    )), "one for each kind of jobs"),
    more=(record(
        kinds=(COUNT, "of jobs that were not explained"),
        jobs=(COUNT, "of these kinds"),
        by_status=(by("STATUS", COUNT), "jobs"),
        whole=(by("SITE", COUNT), "idle jobs with all their data there"),
        apart=(COUNT, "idle jobs whose data is whole nowhere"),
        unknown=(COUNT, "idle jobs of whose data nothing is known"),
        example=(maybe(TEXT), "one of them"),
    ), "the rest of a large cluster, summed up"),
    unasked=(by("SCHEDD", TEXT), "schedds that could not be asked, with the reason"),
)  # fmt: skip
TALLY = {
    "jobs": (record(
        all=(COUNT, "all was there"),
        some=(COUNT, "some was"),
        none=(COUNT, "none was"),
        unknown=(COUNT, "not known"),
    ), "that named datasets, by how much of their data was at their site"),
    "share_of_jobs": (maybe(SHARE), "that found all"),
    "bytes_at_site": (BYTES, "that were there"),
    "bytes_elsewhere": (BYTES, "that were not"),
    "share_of_bytes": (maybe(SHARE), "that were there"),
    "jobs_that_missed": (COUNT, "what their slot had promised"),
}  # fmt: skip
WAITS = record(
    jobs=(COUNT, "that started"),
    median=(maybe(SECONDS), "from submission to the first start"),
    p90=(maybe(SECONDS), "the ninth decile"),
)
REPORT = record(
    version=({"const": 1, "title": "1"}, "of this document"),
    since=(TIME, "jobs that ended after"),
    until=(TIME, "and before"),
    **TALLY,
    never_started=(COUNT, "jobs that named datasets"),
    datasets_without_size=(COUNT, "that nobody knows the size of"),
    missed_datasets=(COUNT, "over all jobs"),
    wait_seconds=(record(
        named=(WAITS, "jobs that named datasets"),
        unnamed=(WAITS, "jobs that named none"),
        added=(maybe(SECONDS), "the one median less the other"),
    ), "how long jobs waited"),
    sites=(rows(record(site=(TEXT, "its name"), **TALLY)), "the same, site by site"),
    schedds=(rows(record(
        schedd=(TEXT, "its name"),
        jobs=(maybe(COUNT), "in its history; null where it did not answer"),
        whole=(FLAG, "false: there were more than it told"),
        failure=(maybe(TEXT), "why it did not answer"),
    )), "that were asked"),
)  # fmt: skip
OUTLOOK = record(
    run=(TEXT, "its name"),
    datasets=(COUNT, "that it reads"),
    asked=(by("CATALOGUE", TEXT), "what each said"),
    sites=(rows(record(
        site=(TEXT, "its name"),
        matches=(FLAG, "it would match now"),
        available=(COUNT, "of its datasets"),
        bytes_local=(maybe(BYTES), "of them, where sizes are known"),
        facts_age_seconds=(maybe(COUNT), "of the oldest fact"),
        has_paths=(FLAG, "a [[storage]] says where the data is there"),
        missing=(by("DID", TEXT), "what is not there, with its state"),
    )), "where it could run"),
)  # fmt: skip
JOB_AD = record(
    "RequiredBytes", "DataLocalityMaxWait",
    RequiredDatasets=(rows(TEXT), "DIDs, sorted"),
    RequiredBytes=(by("DID", BYTES), "where sizes are known"),
    DataLocality=(one_of("require", "wait", "prefer"), "the mode"),
    DataLocalityMaxWait=(COUNT, "seconds, where the user said so"),
    RapthorRun=(TEXT, "the run's name"),
)  # fmt: skip
TOKEN = record(
    key=(TEXT, "what `hydrator token revoke` takes"),
    made=(TEXT, "the day, as 2026-11-21"),
    role=(TEXT, "read, submit, event, or site:NAME"),
)
SHAPES: Mapping[str, Shape] = {
    "once": ONCE,
    "plan": rows(ACTION),
    "status": STATUS,
    "sites": rows(SITE),
    "datasets": rows(DATASET),
    "datasets --why": rows(ORIGIN),
    "history": rows(DECIDED),
    "rollback": record(
        site=(TEXT, "that is returned"), generation=(maybe(COUNT), "to which; null with --end")
    ),
    "approve": by("SITE", COUNT),
    "renumber": by("SITE", COUNT),
    "check": rows(FINDING),
    "why": WHY,
    "report": REPORT,
    "release": by("SCHEDD", COUNT),
    "submit rapthor --dry-run": OUTLOOK,
    "submit rapthor --as ad": JOB_AD,
    "token list": rows(TOKEN),
}
"""By command, and the option that changes what it prints."""


def shape_of(command: str, options: list[str]) -> Shape:
    """What *command* prints with ``--json`` and these other *options*.

    Raises:
        KeyError: it prints no JSON.
    """
    special = [name for name in SHAPES if name.startswith(f"{command} -")]
    chosen = (name for name in special if name.removeprefix(f"{command} ").split()[0] in options)
    return SHAPES[next(chosen, command)]


def keys(shape: Shape, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Every key below *shape*: its path (``sites[].site``, ``trust.SITE.false``), its type and meaning."""
    inner = next((one for one in shape.get("anyOf", [shape]) if one.get("type") != "null"), shape)
    if "items" in inner:
        yield from keys(inner["items"], f"{path}[]")
    elif "properties" in inner:
        for key, value in inner["properties"].items():
            needed = key in inner["required"]
            here = f"{path}.{key}" if path else key
            yield here, kind(value) + ("" if needed else ", or left out"), value["description"]
            yield from keys(value, here)
    elif "additionalProperties" in inner:
        named = f"{path}.{inner['title']}" if path else str(inner["title"])
        yield from keys(inner["additionalProperties"], named)


def kind(shape: Shape) -> str:
    """A type in words."""
    if "anyOf" in shape:
        return f"{kind(shape['anyOf'][0])}, or null"
    if "items" in shape:
        return f"list of {kind(shape['items'])}"
    if "properties" in shape:
        return "object"
    if "additionalProperties" in shape:
        return f"{kind(shape['additionalProperties'])} by {shape['title']}"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    return str(shape.get("title") or words[str(shape["type"])])
