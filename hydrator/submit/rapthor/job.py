"""A Rapthor run as HTCondor sees it: what its parset reads, and the texts of the job that runs it.

Pure: text in, values and text out. What a parset means was taken from what
Rapthor does with it, and is compared with Rapthor's own reader in
tests/integration/test_rapthor_reader.py (rapthor 2.1.post1 from PyPI).
"""

import configparser
import io
import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hydrator.domain.classad import escape_macros, list_literal, string_literal
from hydrator.domain.errors import ConfigError
from hydrator.domain.misses import PATHS_ATTRIBUTE
from hydrator.domain.model import DatasetState as State
from hydrator.domain.model import Did, Site, SiteFacts
from hydrator.domain.text import format_count, shorten_list
from hydrator.submit.expressions import Mode
from hydrator.submit.gpus import GpuChoice, mebibytes
from hydrator.submit.retry import path_known_clause, retry_elsewhere
from hydrator.submit.submit_text import (
    line_problems,
    quote_arguments,
    unfit_name_reason,
    unfit_reason,
    unfit_value_reason,
)

from .parset import _UNSET_VALUES, Parset, _printable_line

JOB_PARSET = "run.parset"
WRAPPER_FILE = "hydrator-job-start.py"
WORKING_FOLDER = "rapthor"
RESULT_FOLDERS = ("images", "logs", "plots", "regions", "skymodels", "solutions")
"""What comes back of Rapthor's working folder: all but ``pipelines``, its copies of the data."""

SUBMIT_ATTRS = "_CONDOR_SUBMIT_ATTRS"
TOIL_PARAMS = "TOIL_HTCONDOR_PARAMS"
MAX_VARIABLE_BYTES = 131_071
"""Of one string of the environment, name and ``=`` included (Linux, MAX_ARG_STRLEN, less its NUL)."""

_MACHINE_OPTIONS = (
    *("batch_system", "max_nodes", "cpus_per_task", "mem_per_node_gb", "max_cores", "max_threads"),
    *("deconvolution_threads", "parallel_gridding_threads"),
    *("dir_local", "local_scratch_dir", "global_scratch_dir"),
)


# --- the job ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunResources:
    """What the run needs of its slot; GB are 1e9 bytes, as in the configuration.

    ``gpu``, where there is one, decides on cores and memory by the slot.
    """

    cpus: int
    memory_gb: float
    disk_gb: float
    container: str | None = None
    gpu: GpuChoice | None = None

    @property
    def requests(self) -> dict[str, str]:
        """The submit commands."""
        plain = {"request_cpus": str(self.cpus), "request_memory": str(mebibytes(self.memory_gb))}
        taken = self.gpu.requests if self.gpu else plain
        return {**taken, "request_disk": str(_kibibytes(self.disk_gb))}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user says beyond the parset; *requirements* and *rank* are ClassAd expressions that parse."""

    mode: Mode = "require"
    max_wait_seconds: int | None = None
    requirements: str = ""
    rank: str = ""
    extra_lines: tuple[str, ...] = ()
    """More lines of the submit description."""


@dataclass(frozen=True, slots=True)
class RapthorRun:
    """A Rapthor run whose measurement sets are known as datasets.

    ``name`` becomes RapthorRun, which no other run should have; ``label``,
    by default the same, is what people see: the batch and the job's files.
    """

    name: str
    dids: tuple[Did, ...]
    sizes: Mapping[Did, int] = field(default_factory=dict)
    options: RunOptions = field(default_factory=RunOptions)
    label: str = ""

    def with_pseudonyms(self, pseudonyms: Mapping[Did, Did]) -> "RapthorRun":
        """The same run with its datasets under other *names*, as the pool knows private ones."""
        sizes = {pseudonyms.get(did, did): size for did, size in self.sizes.items()}
        return replace(self, dids=tuple(pseudonyms.get(did, did) for did in self.dids), sizes=sizes)

    @property
    def title(self) -> str:
        return self.label or self.name

    @property
    def attributes(self) -> dict[str, str]:
        """The job attributes of the contract, each with its ClassAd literal."""
        found = {"RequiredDatasets": dataset_list(self.dids)}
        known = {did: self.sizes[did] for did in sorted(set(self.dids)) if did in self.sizes}
        if known:
            found["RequiredBytes"] = "[" + ";".join(f"'{did}'={size}" for did, size in known.items()) + "]"
        found["DataLocality"] = string_literal(self.options.mode)
        if self.options.max_wait_seconds is not None:
            found["DataLocalityMaxWait"] = str(self.options.max_wait_seconds)
        found["RapthorRun"] = string_literal(self.name)
        return found


def dataset_list(dids: Sequence[Did]) -> str:
    """A ClassAd list of *dids*, sorted, without doubles: equal runs get equal text, so one autocluster."""
    return _sorted_list_literal(dids)


def _sorted_list_literal(texts: Sequence[str]) -> str:
    return list_literal(map(string_literal, sorted(set(texts))))


def run_name(text: str) -> str:
    """*text* as a name that needs no quoting anywhere: other characters become ``-``."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-")[:100] or "rapthor"


def job_parset(parset: Parset, files: Mapping[str, str]) -> str:
    """The parset that travels with the job: works in the job's own folder, on one machine.

    For ``{scratch}`` the wrapper puts the folder that the job wakes up in, and
    it rewrites input_ms by hydrator-paths.json. Comments are not kept.

    Args:
        parset: the user's.
        files: options of [global] whose files travel with the job, each with its name there.
    """
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_dict(parset.sections)
    parser["global"]["dir_working"] = f"{{scratch}}/{WORKING_FOLDER}"
    for option, file in files.items():
        parser["global"][option] = f"{{scratch}}/{file}"
    if not parser.has_section("cluster"):
        parser.add_section("cluster")
    parser["cluster"]["batch_system"] = "single_machine"
    text = io.StringIO()
    parser.write(text)
    return f"# the job's copy of {_printable_line(parset.origin)}, by `hydrator submit rapthor`\n{text.getvalue()}"


def machine_options(parset: Parset) -> dict[str, str]:
    """Return the options of [cluster] for which the job sets what its slot has, as the parset gives them.

    The job's start does it (job_start.py, ``fitted``), because no slot is known yet.
    """
    given = parset.sections.get("cluster", {})
    return {
        name: _printable_line(given[name])
        for name in _MACHINE_OPTIONS
        if given.get(name, "").strip() not in (*_UNSET_VALUES, "0", "single_machine")
    }


def submit_description(
    run: RapthorRun,
    resources: RunResources,
    *,
    origin: str,
    input_files: Sequence[str],
    command: Sequence[str],
    site_attributes: Sequence[str],
    path_sites: Sequence[Site] | None = None,
    data_sites: Sequence[Site] = (),
    should_keep_folder: bool = False,
) -> str:
    """The submit description of the whole run as one job.

    Args:
        run: what it reads and wishes.
        resources: what it needs.
        origin: the user's parset, for people.
        inputs: files that travel with the job, besides the wrapper.
        command: what the wrapper starts once the data is found.
        site_attributes: where a slot says its site.
        path_sites: the sites where every dataset has a path; the job goes to no other. None: it can fetch.
        data_sites: those of them that have all of its data now; a job that misses at all of them is held.
        keep: the schedd keeps Rapthor's working folder when the job is evicted.

    Raises:
        ConfigError: a name, the image or a line of the user's would not stay one value of the description.
    """
    _refuse_unfit(resources.container, input_files, command)
    container = (
        ["universe = container", f"container_image = {escape_macros(resources.container)}"]
        if resources.container
        else ["universe = vanilla"]
    )
    gpu = resources.gpu
    rank = gpu.rank_expression(run.options.rank) if gpu else run.options.rank
    reachable = "" if path_sites is None else path_known_clause(site_attributes)
    clauses = [run.options.requirements, gpu.requirement if gpu else "", reachable]
    given = [clause for clause in clauses if clause.strip()]
    requirements = " && ".join(f"({clause})" for clause in given) if len(given) > 1 else "".join(given)
    datasets = format_count(len(set(run.dids)), "dataset")
    kept = ("--keep", WORKING_FOLDER) if should_keep_folder else ()
    outputs = (
        [WORKING_FOLDER] if should_keep_folder else [f"{WORKING_FOLDER}/{part}" for part in RESULT_FOLDERS]
    )
    lines = [
        f"# {_printable_line(origin)} as one job: {datasets}; by `hydrator submit rapthor`",
        *container,
        f"executable = {WRAPPER_FILE}",
        f"arguments = {quote_arguments(('--parset', JOB_PARSET, *kept, '--', *command))}",
        f"transfer_input_files = {', '.join(escape_macros(name) for name in input_files)}",
        "should_transfer_files = YES",
        f"when_to_transfer_output = {'ON_EXIT_OR_EVICT' if should_keep_folder else 'ON_EXIT'}",
        f"transfer_output_files = {', '.join(outputs)}",
        f"output = {run.title}.out",
        f"error = {run.title}.err",
        f"log = {run.title}.log",
        f"batch_name = {run.title}",
        *(f"{name} = {value}" for name, value in resources.requests.items()),
        "",
        "# what it reads; the schedd's transform makes requirements and rank of it",
        *(f"+{name} = {literal}" for name, literal in run.attributes.items()),
        *(f"+{name} = {value}" for name, value in (gpu.attributes if gpu else {}).items()),
        *([] if path_sites is None else [f"+{PATHS_ATTRIBUTE} = {_sorted_list_literal(path_sites)}"]),
        *([f"rank = {rank}"] if rank else []),
        "",
        "# where the data is not what the catalogue says, the wrapper ends the job and it tries elsewhere",
        *retry_elsewhere(
            requirements, site_attributes=site_attributes, data_sites=data_sites or path_sites or ()
        ),
        *(["", *run.options.extra_lines] if run.options.extra_lines else []),
        "",
        "queue",
        "",
    ]
    if problems := line_problems(lines):
        raise ConfigError(problems)
    return "\n".join(lines)


def _refuse_unfit(container: str | None, inputs: Sequence[str], command: Sequence[str]) -> None:
    """Refuse what the submit language cannot hold, all of it at once."""
    problems = [
        f"{name!r} cannot travel with the job: {why}: rename it"
        for name in inputs
        if (why := unfit_name_reason(name))
    ]
    if container and (why := unfit_value_reason(container)):
        problems.append(f"the container {container!r} cannot be written: {why}")
    problems += [
        f"the command's word {word!r} cannot be written: {why}"
        for word in command
        if (why := unfit_reason(f"{word}'"))  # as it ends in the description
    ]
    if problems:
        raise ConfigError(problems)


def _kibibytes(gigabytes: float) -> int:
    return max(1, round(gigabytes * 1e9 / 2**10))


# --- the environment of a run whose steps Toil submits ------------------------------------------------


def export_lines(
    run: RapthorRun,
    environment: Mapping[str, str],
    current_values: Mapping[str, str | None],
    *,
    toil: bool = True,
) -> str:
    """Shell lines that give the datasets to every job submitted below that shell.

    HTCondor's clients read configuration from ``_CONDOR_…`` variables. A value
    with ``;`` is lost on the nodes of a DAG, so the sizes, a record, are left
    out unless there is one dataset only. *toil* adds TOIL_HTCONDOR_PARAMS, for
    a Toil that does not listen to the others.

    Args:
        run: what it reads.
        environment: of the shell; what stands there is extended.
        present: HTCondor's own values of SUBMIT_ATTRS, APPEND_REQ_VANILLA and
            APPEND_RANK_VANILLA on this host, which such variables replace.
        toil: whether to print TOIL_HTCONDOR_PARAMS too.

    Raises:
        ConfigError: a value cannot be merged, or is too long for an environment.
    """
    attributes = {name: text for name, text in run.attributes.items() if ";" not in text}
    words = (
        (environment.get(SUBMIT_ATTRS) or current_values.get("SUBMIT_ATTRS") or "").replace(",", " ").split()
    )
    ours = {name.lower() for name in attributes}
    listed = [word for word in words if word.lower().removeprefix("+") not in ours]
    values = {SUBMIT_ATTRS: " ".join([*listed, *attributes])}
    values |= {f"_CONDOR_{name}": literal for name, literal in attributes.items()}
    for name, joint, new in (
        ("APPEND_REQ_VANILLA", "&&", run.options.requirements),
        ("APPEND_RANK_VANILLA", "+", run.options.rank),
    ):
        old = environment.get(f"_CONDOR_{name}") or current_values.get(name)
        if new:
            values[f"_CONDOR_{name}"] = f"({old}) {joint} ({new})" if old and old != new else new
    if toil:
        values[TOIL_PARAMS] = toil_params(attributes, environment.get(TOIL_PARAMS, ""))
    problems = [
        f"{name} would hold a ';', which is lost on the way to the job: {value[:100]}"
        for name, value in values.items()
        if ";" in value and name != TOIL_PARAMS
    ]
    problems += [
        f"{name} would take {size} bytes, an environment has room for {MAX_VARIABLE_BYTES};"
        " submit the whole run as one job instead"
        for name, value in values.items()
        if (size := len(f"{name}={value}".encode())) > MAX_VARIABLE_BYTES
    ]
    if problems:
        raise ConfigError(problems)
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def toil_params(attributes: Mapping[str, str], current_value: str) -> str:
    """TOIL_HTCONDOR_PARAMS: what was there, then ours; Toil splits it at each ``;`` and first ``=``.

    Raises:
        ConfigError: a part that is there already has no ``=``: Toil would end with a traceback.
    """
    ours = {f"+{name}".lower() for name in attributes} | {f"my.{name}".lower() for name in attributes}
    kept = []
    for part in current_value.split(";"):
        if not part.strip():
            continue
        key, equals, _ = part.partition("=")
        if not equals:
            raise ConfigError([f"{TOIL_PARAMS}: {part.strip()[:100]!r} has no '=': Toil would fail on it"])
        if key.strip().lower() not in ours:
            kept.append(part.strip())
    return ";".join([*kept, *(f"+{name}={literal}" for name, literal in attributes.items())])


def as_ad(run: RapthorRun) -> str:
    """The attributes as ClassAd text, one a line."""
    return "".join(f"{name} = {literal}\n" for name, literal in run.attributes.items())


def as_json(run: RapthorRun) -> str:
    """The attributes as JSON: lists and numbers, and sizes as an object."""
    body: dict[str, object] = {"RequiredDatasets": sorted(set(run.dids))}
    if run.sizes:
        body["RequiredBytes"] = {did: run.sizes[did] for did in sorted(run.sizes)}
    body["DataLocality"] = run.options.mode
    if run.options.max_wait_seconds is not None:
        body["DataLocalityMaxWait"] = run.options.max_wait_seconds
    body["RapthorRun"] = run.name
    return json.dumps(body, indent=2) + "\n"


# --- what would match now -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SiteOutlook:
    """What one site could do for the run now."""

    site: Site
    available_count: int
    missing_states: Mapping[Did, str]
    local_bytes: int | None
    oldest_age_seconds: int | None
    has_paths: bool
    """Whether [[storage]] says where jobs find the datasets there."""
    can_fetch: bool = False
    """Whether the job can fetch what it has no path to."""

    @property
    def can_run(self) -> bool:
        return not self.missing_states and (self.has_paths or self.can_fetch)


def rank_sites(
    run: RapthorRun,
    sites: Mapping[Site, SiteFacts],
    paths: Mapping[Site, Collection[Did]],
    *,
    now: float,
    can_fetch: bool = False,
) -> tuple[SiteOutlook, ...]:
    """Every site, the best first: most bytes (datasets, where sizes are not known) on disk there.

    Args:
        run: what it reads.
        sites: what is held true of them; facts that are too old read UNKNOWN there.
        paths: by site, the datasets that have a local path there.
        now: Unix s.
        fetches: whether the job has a stage-in command.
    """
    wanted = sorted(set(run.dids))
    sized = all(did in run.sizes for did in wanted)
    found = []
    for site, known in sites.items():
        states = {did: known.facts[did].state for did in wanted if did in known.facts}
        here = [did for did in wanted if states.get(did) is State.AVAILABLE]
        times = [known.facts[did].as_of.timestamp() for did in here]
        found.append(
            SiteOutlook(
                site,
                len(here),
                {did: str(states.get(did, "absent")) for did in wanted if did not in here},
                sum(run.sizes[did] for did in here) if sized else None,
                int(now - min(times)) if times else None,
                all(did in paths.get(site, {}) for did in wanted),
                can_fetch,
            )
        )
    return tuple(sorted(found, key=lambda o: (-(o.local_bytes or 0), -o.available_count, o.site)))


def explain_no_qualified_site(run: RapthorRun, sites: Sequence[SiteOutlook]) -> str:
    """Return one sentence on why no site can start the run now; empty where one can."""
    if any(site.can_run for site in sites):
        return ""
    whole = [site.site for site in sites if not site.missing_states]
    if whole:
        return f"all data is at {shorten_list(whole)}, but no [[storage]] says where it is there"
    wanted = len(set(run.dids))
    each = []
    for site in sites:
        if site.available_count or any(state != "absent" for state in site.missing_states.values()):
            lacks = shorten_list([f"{did} {state}" for did, state in site.missing_states.items()])
            each.append(f"{site.site} has {site.available_count} of {wanted} ({lacks})")
    where = shorten_list(each, "; ") or "no site has any of it"
    return f"no site has all of its data now: {where}"
