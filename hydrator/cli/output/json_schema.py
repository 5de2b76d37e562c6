"""What ``--json`` prints, command by command, as JSON Schema: a contract that tests keep and the docs show.

Keys are added; none is renamed or removed without a word in the CHANGELOG.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hydrator.domain.model import DatasetState

JsonSchema = Mapping[str, Any]
"""A JSON Schema."""

TEXT: JsonSchema = {"type": "string"}
COUNT: JsonSchema = {"type": "integer", "minimum": 0}
BYTES: JsonSchema = {"type": "integer", "minimum": 0, "title": "bytes"}
NUMBER: JsonSchema = {"type": "number"}
SHARE: JsonSchema = {"type": "number", "minimum": 0, "maximum": 1, "title": "share, 0 to 1"}
SECONDS: JsonSchema = {"type": "number", "title": "seconds"}
TIME: JsonSchema = {"type": "integer", "minimum": 0, "title": "Unix s"}
FLAG: JsonSchema = {"type": "boolean"}
ANY_VALUE: JsonSchema = {"title": "whatever it is"}


def enum_of(*words: str) -> JsonSchema:
    return {"enum": list(words), "title": ", ".join(words)}


def nullable(schema: JsonSchema) -> JsonSchema:
    """*shape*, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def array_of(schema: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": schema}


def map_by(key: str, schema: JsonSchema) -> JsonSchema:
    """An object whose keys are names of the kind *key*."""
    return {"type": "object", "additionalProperties": schema, "title": key}


def record(*optional: str, **keys: tuple[JsonSchema, str]) -> JsonSchema:
    """An object with just these *keys*, each a shape and what it means; all but the *optional*."""
    return {
        "type": "object",
        "properties": {key: {**shape, "description": meaning} for key, (shape, meaning) in keys.items()},
        "required": [key for key in keys if key not in optional],
        "additionalProperties": False,
    }


GENERATION = (nullable(COUNT), "of the ad, null where there is none")
AS_OF = (nullable(TIME), "when the ad's site was last read completely")
STATE = enum_of(*(state.value for state in DatasetState))

ACTION = record(
    publisher=(nullable(TEXT), "where to; null for what is held"),
    site=(TEXT, "whose ad"),
    action=(enum_of("publish", "refresh", "hold", "withdraw", "rest", "held"), "what is to be done"),
    why=(TEXT, "empty where nothing needs saying"),
    generation=GENERATION,
    as_of=AS_OF,
)
LEFT_OUT = map_by("SITE", array_of(record(
    datasets=(COUNT, "of the jobs that found no room in the site's ad"),
    first=(TEXT, "one of them"),
    jobs=(COUNT, "that name them"),
)))  # fmt: skip
OUTCOME = {
    "error": (nullable(TEXT), "why it failed"),
    "not_read_back": (array_of(TEXT), "sites sent, and not seen there afterwards"),
    "ads": (COUNT, "read back"),
}
UNSEEN = (map_by("DID", TEXT), "datasets that no catalogue could be asked about, with the reason")
REFUSED = (map_by("NAME", TEXT), "what jobs name and is no DID, with the reason")
CLASHES = (array_of(array_of(TEXT)), "datasets told apart by letter case alone, not advertised")
MISSPELT = (
    map_by("DID", array_of(TEXT)),
    "wanted datasets that no catalogue has, with those it has in other letter case",
)
RIVALS = (map_by("PUBLISHER", TEXT), "why another daemon seems to publish there too")
REJECTED = (map_by("PUBLISHER", map_by("NAME", TEXT)), "ads read back there and not adopted, with the reason")
IMPLAUSIBLE = (map_by("SITE", COUNT), "generations that hooks refuse: `hydrator renumber`")
ONCE = record(
    at=(TIME, "when the cycle began"),
    whole=(FLAG, "nothing of it failed"),
    catalogues=(map_by("CATALOGUE", nullable(TEXT)), "why it failed, null where it answered"),
    publishers=(map_by("PUBLISHER", record(**OUTCOME)), "how each went"),
    left_out=(LEFT_OUT, "for lack of room"),
    clashes=CLASHES,
    misspelt=MISSPELT,
    unseen=UNSEEN,
    refused=REFUSED,
    held=(
        map_by("SITE", TEXT),
        "sites whose ad stays as it is, with the reason: a change held, a rollback, an answer awaited",
    ),
    rejected=REJECTED,
    rivals=RIVALS,
    implausible_generations=IMPLAUSIBLE,
    plan=(array_of(ACTION), "what was done, as `hydrator plan`"),
)
TRUST = {
    "trust": (SHARE, "of audited facts that were true; 1 until audited"),
    "audited": (COUNT, "facts, in the audit's window"),
    "false": (COUNT, "of them"),
    "corrected": (COUNT, "datasets now shown otherwise than the catalogue says"),
    "last_audit": (nullable(TIME), "the last question"),
}
STATUS = record(
    last_cycle=(nullable(TIME), "when it began; null before the first"),
    whole=(nullable(FLAG), "nothing of it failed"),
    catalogues=(array_of(record(
        catalogue=(TEXT, "its name"),
        read=(nullable(TIME), "when it last answered"),
        sites=(array_of(TEXT), "that it speaks for"),
        datasets=(COUNT, "known of it"),
        failure=(nullable(TEXT), "why it failed last time"),
        unmapped=(array_of(TEXT), "storage elements without a site"),
    )), "each that is configured"),
    demand=(record(
        datasets=(COUNT, "that jobs, pins and patterns want"),
        jobs=(COUNT, "that name them"),
        refused=REFUSED,
        unseen=UNSEEN,
        clashes=CLASHES,
        misspelt=MISSPELT,
        nowhere=(array_of(TEXT), "datasets that no catalogue has at any site: is the name right?"),
        left_out=(LEFT_OUT, "for lack of room"),
    ), "what is wanted"),
    held=(array_of(record(
        site=(TEXT, "where a change is held"),
        since=(TIME, "when it was first seen"),
        cause=(TEXT, "site, catalogue or unnamed: what shrank"),
        datasets=(COUNT, "that would leave"),
        of=(COUNT, "that are there"),
        polls=(COUNT, "that confirmed it"),
        polls_needed=(nullable(COUNT), "until it is let go; null: only an operator can"),
        why=(TEXT, "in one sentence"),
    )), "`hydrator approve` lets them go"),
    rolled_back=(array_of(record(
        site=(TEXT, "that an operator returned"),
        since=(TIME, "when"),
        generation=(COUNT, "that it has now"),
        as_of=(TIME, "of what it shows"),
    )), "`hydrator rollback SITE --end` ends it"),
    publishers=(array_of(record(publisher=(TEXT, "its name"), **OUTCOME)), "how each went"),
    rejected=REJECTED,
    rivals=RIVALS,
    implausible_generations=IMPLAUSIBLE,
    trust=(map_by("SITE", record(**TRUST)), "what the audit found"),
    credentials=(array_of(record(
        credential=(TEXT, "its name"),
        until=(TIME, "when it ends"),
        since=(nullable(TIME), "when it began"),
        by=(TEXT, "who renews it"),
        recipe=(TEXT, "the section of docs/credentials.md"),
    )), "what ends some day"),
    reload=(nullable(record(
        at=(TIME, "when"),
        problems=(array_of(TEXT), "why"),
    )), "that was refused, so that an older configuration is in use; null when it is the last one"),
    private=(nullable(TEXT), "why names of private datasets may be lost; null where none is"),
    silent=(nullable(TEXT), "why the daemon counts as dead or hung; null where it works"),
)  # fmt: skip
SITE = record(
    site=(TEXT, "its name"),
    as_of=AS_OF,
    generation=GENERATION,
    truncated=(nullable(FLAG), "datasets were left out for lack of room"),
    held=(COUNT, "datasets whose leaving is held"),
    states=(map_by("STATE", COUNT), "wanted datasets by state"),
    **TRUST,
    read_back=(map_by("PUBLISHER", record(
        generation=(COUNT, "that it shows"),
        as_of=(TIME, "that it shows"),
    )), "where the ad was seen"),
)  # fmt: skip
DATASET = record(
    did=(TEXT, "scope:name"),
    jobs=(COUNT, "that name it"),
    wanted=(FLAG, "a job, pin or pattern wants it"),
    bytes=(nullable(BYTES), "its size, where known"),
    unseen=(nullable(TEXT), "why it could not be asked about"),
    clash=(FLAG, "letter case alone tells it from another"),
    misspelt=(array_of(TEXT), "where no catalogue has it: datasets it has in other letter case"),
    sites=(map_by("SITE", record(
        state=(STATE, "its state there"),
        fraction=(nullable(SHARE), "on disk there, where neither 0 nor 1"),
        as_of=(TIME, "when that was read"),
    )), "that know it"),
)  # fmt: skip
ORIGIN = record(
    "fraction", "storage", "call", "told",
    did=(TEXT, "scope:name"),
    catalogue=(TEXT, "who says so"),
    unseen=(nullable(TEXT), "why it could say nothing new last time"),
    site=(nullable(TEXT), "null: at none"),
    state=(nullable(STATE), "its state there"),
    as_of=(nullable(TIME), "when that was read"),
    why=(TEXT, "in one line"),
    fraction=(nullable(SHARE), "on disk there"),
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
HISTORY_ENTRY = record(
    at=(TIME, "when it was decided"),
    site=(TEXT, "for which site"),
    generation=(COUNT, "that the ad got"),
    as_of=(TIME, "of the ad"),
    published=(map_by("PUBLISHER", TIME), "since when each shows it"),
    changes=(array_of(record(
        did=(TEXT, "the dataset"),
        before=(nullable(TEXT), "its state before; null: not listed"),
        after=(nullable(TEXT), "its state after"),
        why=(TEXT, "in one sentence"),
    )), "what changed"),
)  # fmt: skip
FINDING = record(
    level=(enum_of("ok", "advice", "warn", "fail"), "with a `fail`, the exit status is 1"),
    subject=(TEXT, "what was looked at"),
    seen=(TEXT, "what was found"),
    todo=(TEXT, "what to do; empty where it is well"),
)
REMEDY = record(cost=(COUNT, "the smaller, the sooner one would do it"), text=(TEXT, "what would help"))
MISSING_DATASET = record(
    did=(TEXT, "the dataset, as the job names it"),
    lack=(TEXT, "why it does not count: state, stale, not yet, elsewhere…"),
    text=(TEXT, "in one sentence"),
    state=(nullable(TEXT), "that the slots or the daemon tell"),
    fraction=(nullable(SHARE), "on disk"),
    as_of=(nullable(TIME), "when that was read"),
    rule=(nullable(TEXT), "the catalogue's rule behind it"),
    because=(nullable(TEXT), "how the catalogue came to that state"),
    bytes=(nullable(COUNT), "that are still to come there, where its size is known"),
    ready_at=(nullable(TIME), "when it is expected to be whole"),
    near=(array_of(TEXT), "of one that exists nowhere: datasets whose names look like it"),
)
JOB = record(
    name=(TEXT, "CLUSTER.PROC"),
    schedd=(TEXT, "who has it"),
    alike=(COUNT, "jobs of the cluster that this one stands for"),
    status=(nullable(TEXT), "idle, running, held…"),
    datasets=(array_of(TEXT), "that it names"),
    refused=(map_by("NAME", TEXT), "names that are no DIDs, with the reason"),
    private=(array_of(TEXT), "private ones that it names in plain"),
    mode=(nullable(TEXT), "require, wait or prefer"),
    any_after=(nullable(TIME), "when it may run anywhere"),
    max_age=(nullable(COUNT), "seconds after which facts do not count for it"),
    transformed=(FLAG, "the schedd's transform has been there"),
    released=(FLAG, "`hydrator release` let it go anywhere"),
    opens_paths=(FLAG, "it opens paths at the site and cannot fetch"),
    missed=(
        array_of(
            record(
                site=(TEXT, "where"),
                did=(TEXT, "what"),
                when=(TIME, "when"),
            )
        ),
        "what it could not read where it ran, the oldest first",
    ),
    missed_sites=(array_of(TEXT), "sites that it keeps away from since"),
    missed_until=(nullable(TIME), "when it tries them again"),
    limits=(TEXT, "its ConcurrencyLimits"),
    uploads=(COUNT, "jobs of its user that send input files at its schedd, or wait to"),
    most_uploads=(nullable(COUNT), "from so many on the schedd asks for no slots for that user"),
    may_release=(FLAG, "whoever asks may let it go by `hydrator release`"),
    requests=(map_by("RESOURCE", NUMBER), "what it asks for"),
    words=(map_by("ATTRIBUTE", ANY_VALUE), "what its status is explained by"),
)
WHY = record(
    answers=(array_of(record(
        job=(JOB, "the job"),
        verdict=(TEXT, "in one sentence"),
        matches_at=(array_of(TEXT), "sites with a slot that matches now"),
        could_run=(FLAG, "it would match now, runs, or has run"),
        blocked=(nullable(TEXT), "the limit or priority that keeps it from slots that match"),
        notes=(array_of(TEXT), "what else to know"),
        wait=(nullable(TEXT), "until when it waits for its data"),
        funnel=(TEXT, "how many slots are left, condition by condition"),
        way_out=(nullable(TEXT), "what would help soonest"),
        sites=(array_of(record(
            site=(TEXT, "its name"),
            slots=(COUNT, "that it has"),
            matching=(COUNT, "of them"),
            reasons=(array_of(record(
                cause=(TEXT, "data, missed, cores, memory, disk, gpus, platform, path, requirement, start…"),
                ours=(FLAG, "it is about data"),
                slots=(COUNT, "that it keeps the job from"),
                text=(TEXT, "in one sentence"),
                clauses=(array_of(TEXT), "of the expressions, that are not true"),
                missing=(array_of(MISSING_DATASET), "datasets that do not count there"),
            )), "what keeps it from the others"),
            way_out=(nullable(REMEDY), "what would help there"),
            counts=(nullable(record(
                here=(COUNT, "datasets of the job that count there"),
                others=(map_by("WORD", COUNT), "the others, by what they are there"),
                missing_bytes=(nullable(COUNT), "still to come there, of those whose size is known"),
                all_sized=(FLAG, "the sizes of all of these are known"),
                ready_at=(nullable(TIME), "when all that is on its way is expected"),
            )), "null where all count"),
            held=(nullable(TEXT), "the change of the site's ad that the daemon holds back"),
            pool=(TEXT, "the collector of another pool, where the schedd flocks to one"),
        )), "each, with what keeps the job away"),
    )), "one for each kind of jobs"),
    more=(record(
        kinds=(COUNT, "of jobs that were not explained"),
        jobs=(COUNT, "of these kinds"),
        by_status=(map_by("STATUS", COUNT), "jobs"),
        whole=(map_by("SITE", COUNT), "idle jobs with all their data there"),
        apart=(COUNT, "idle jobs whose data is whole nowhere"),
        unknown=(COUNT, "idle jobs of whose data nothing is known"),
        example=(nullable(TEXT), "one of them"),
    ), "the rest of a large cluster, summed up"),
    unasked=(map_by("SCHEDD", TEXT), "schedds that could not be asked, with the reason"),
)  # fmt: skip
TALLY = {
    "jobs": (record(
        all=(COUNT, "all was there"),
        some=(COUNT, "some was"),
        none=(COUNT, "none was"),
        unknown=(COUNT, "not known"),
    ), "that named datasets, by how much of their data was at their site"),
    "share_of_jobs": (nullable(SHARE), "that found all"),
    "bytes_at_site": (BYTES, "that were there"),
    "bytes_elsewhere": (BYTES, "that were not"),
    "share_of_bytes": (nullable(SHARE), "that were there"),
    "jobs_that_missed": (COUNT, "what their slot had promised"),
}  # fmt: skip
WAITS = record(
    jobs=(COUNT, "that started"),
    median=(nullable(SECONDS), "from submission to the first start"),
    p90=(nullable(SECONDS), "the ninth decile"),
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
        added=(nullable(SECONDS), "the one median less the other"),
    ), "how long jobs waited"),
    sites=(array_of(record(site=(TEXT, "its name"), **TALLY)), "the same, site by site"),
    schedds=(array_of(record(
        schedd=(TEXT, "its name"),
        jobs=(nullable(COUNT), "in its history; null where it did not answer"),
        whole=(FLAG, "false: there were more than it told"),
        failure=(nullable(TEXT), "why it did not answer"),
    )), "that were asked"),
)  # fmt: skip
OUTLOOK = record(
    run=(TEXT, "its name"),
    datasets=(COUNT, "that it reads"),
    asked=(map_by("CATALOGUE", TEXT), "what each said"),
    sites=(array_of(record(
        site=(TEXT, "its name"),
        matches=(FLAG, "it would match now"),
        available=(COUNT, "of its datasets"),
        bytes_local=(nullable(BYTES), "of them, where sizes are known"),
        facts_age_seconds=(nullable(COUNT), "of the oldest fact"),
        has_paths=(FLAG, "a [[storage]] says where the data is there"),
        missing=(map_by("DID", TEXT), "what is not there, with its state"),
    )), "where it could run"),
)  # fmt: skip
JOB_AD = record(
    "RequiredBytes", "DataLocalityMaxWait",
    RequiredDatasets=(array_of(TEXT), "DIDs, sorted"),
    RequiredBytes=(map_by("DID", BYTES), "where sizes are known"),
    DataLocality=(enum_of("require", "wait", "prefer"), "the mode"),
    DataLocalityMaxWait=(COUNT, "seconds, where the user said so"),
    RapthorRun=(TEXT, "the run's name"),
)  # fmt: skip
TOKEN = record(
    key=(TEXT, "what `hydrator token revoke` takes"),
    made=(TEXT, "the day, as 2026-11-21"),
    role=(TEXT, "read, submit, event, or site:NAME"),
)
SCHEMAS: Mapping[str, JsonSchema] = {
    "once": ONCE,
    "plan": array_of(ACTION),
    "status": STATUS,
    "sites": array_of(SITE),
    "datasets": array_of(DATASET),
    "datasets --why": array_of(ORIGIN),
    "history": array_of(HISTORY_ENTRY),
    "rollback": record(
        site=(TEXT, "that is returned"), generation=(nullable(COUNT), "to which; null with --end")
    ),
    "approve": map_by("SITE", COUNT),
    "renumber": map_by("SITE", COUNT),
    "check": array_of(FINDING),
    "why": WHY,
    "report": REPORT,
    "release": map_by("SCHEDD", COUNT),
    "submit rapthor --dry-run": OUTLOOK,
    "submit rapthor --as ad": JOB_AD,
    "token list": array_of(TOKEN),
}
"""By command, and the option that changes what it prints."""


def find_schema(command: str, options: list[str]) -> JsonSchema:
    """What *command* prints with ``--json`` and these other *options*.

    Raises:
        KeyError: it prints no JSON.
    """
    special = [name for name in SCHEMAS if name.startswith(f"{command} -")]
    chosen = (name for name in special if name.removeprefix(f"{command} ").split()[0] in options)
    return SCHEMAS[next(chosen, command)]


def walk_keys(schema: JsonSchema, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Every key below *shape*: its path (``sites[].site``, ``trust.SITE.false``), its type and meaning."""
    inner = next((one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"), schema)
    if "items" in inner:
        yield from walk_keys(inner["items"], f"{path}[]")
    elif "properties" in inner:
        for key, value in inner["properties"].items():
            needed = key in inner["required"]
            here = f"{path}.{key}" if path else key
            yield here, type_text(value) + ("" if needed else ", or left out"), value["description"]
            yield from walk_keys(value, here)
    elif "additionalProperties" in inner:
        named = f"{path}.{inner['title']}" if path else str(inner["title"])
        yield from walk_keys(inner["additionalProperties"], named)


def type_text(schema: JsonSchema) -> str:
    """A type in words."""
    if "anyOf" in schema:
        return f"{type_text(schema['anyOf'][0])}, or null"
    if "items" in schema:
        return f"list of {type_text(schema['items'])}"
    if "properties" in schema:
        return "object"
    if "additionalProperties" in schema:
        return f"{type_text(schema['additionalProperties'])} by {schema['title']}"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    return str(schema.get("title") or words[str(schema["type"])])
