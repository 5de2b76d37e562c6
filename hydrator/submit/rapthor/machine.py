"""The parset of a job: the options that speak of a machine or a cluster are set for one slot. Pure.

The table has the options of Rapthor 2 (CWL, Toil) and 3 (Prefect, Dask). Each version warns of an option that
only the other one has. So the job gets such an option only if the user wrote it.
"""

import configparser
import difflib
import io
import re
from collections import defaultdict
from collections.abc import Mapping

from hydrator.domain.errors import ConfigError
from hydrator.domain.redaction import SECRET_PLACEHOLDER

from .parset import FILE_OPTIONS, UNSET_VALUES, Parset, lexical_cast, printable_line

WORKING_FOLDER = "rapthor"

_REMOVE, _KEEP = "remove", "keep"
_CLUSTER_RULES = {
    "batch_system": "single_machine",
    "max_nodes": "1",
    **dict.fromkeys(("cpus_per_task", "max_cores", "max_threads", "filter_skymodel_ncores"), "{cores}"),
    **dict.fromkeys(("dp3_max_threads", "wsclean_max_threads", "deconvolution_threads"), "{cores}"),
    **dict.fromkeys(("parallel_gridding_threads", "parallel_gridding_tasks"), "{cores}"),
    "local_dask_workers": "{cores}",
    "mem_per_node_gb": "{memory_gb}",
    "local_scratch_dir": "{scratch}",
    "global_scratch_dir": "{scratch}",
    "dir_local": _REMOVE,  # the older name of local_scratch_dir
    "use_container": "False",  # an error in version 3; in version 2 a container in the job's container
    **dict.fromkeys(("dask_scheduler", "dask_dashboard_address", "prefect_api_url"), _REMOVE),
    **dict.fromkeys(("prefect_api_mode", "prefect_task_runner"), _REMOVE),
    **dict.fromkeys(("allow_internet_access", "container_type", "cwl_runner", "debug_workflow"), _KEEP),
    **dict.fromkeys(("keep_temporary_files", "prefect_command_profile", "prefect_log_commands"), _KEEP),
    **dict.fromkeys(("prefect_fits_preview_clip_percentile", "prefect_publish_fits_previews"), _KEEP),
    **dict.fromkeys(("prefect_postage_stamp_preview_count", "prefect_postage_stamp_preview_size_px"), _KEEP),
    **dict.fromkeys(("prefect_publish_postage_stamp_previews", "prefect_retries"), _KEEP),
    **dict.fromkeys(("prefect_run_tags", "prefect_stream_output"), _KEEP),
}
"""The value of each option of [cluster] in a job. The slot limits ``{cores}`` and ``{memory_gb}``."""
MACHINE_OPTIONS = {"cluster": _CLUSTER_RULES, "imaging": {"mem_gb": "{memory_gb}", "use_mpi": "False"}}
"""The rules for the options that speak of a machine or a cluster, by section."""
_ALWAYS_SET = (
    *("batch_system", "max_nodes", "cpus_per_task", "max_cores", "max_threads", "mem_per_node_gb"),
    "local_scratch_dir",
)
"""Options of [cluster] that both versions have; if they are unset, Rapthor takes the whole node."""
_LOCAL_SERVICES = ("auto", "ephemeral", "local_dask", "sync")
"""Values of the options of services, which are removed, that speak of the job's own machine."""
_MACHINE_WORD = re.compile(
    "(?:^|_)(?:address|cluster|container|n?core|n?cpu|dask|gpu|host|mem|memory|mpi|node|port|prefect|scheduler"
    "|scratch|slurm|(?:n|num|max)?thread|tmp|url|worker)s?(?:_|$)"
)
"""A word in the name of an option, in any section, that makes it an option of a machine."""
_PLACEHOLDER = re.compile(r"\{(?:input_ms|scratch|(?:cores|memory_gb)(?:/\d+)?(?::\d+)?)\}")
"""A text that the job wrapper fills in, wherever it stands."""


_SECTIONS = ("global", "calibration", "imaging", "cluster")
_SECTION_BY_OPTION = {
    **dict.fromkeys(("dir_working", "input_ms"), "global"),
    **FILE_OPTIONS,
    **{option: section for section, rules in MACHINE_OPTIONS.items() for option in rules},
}
"""The options that the job depends on; Rapthor itself warns of all that it does not have."""
_NEAR_OPTION, _NEAR_SECTION = 0.87, 0.7
"""Least similarity of a misspelt name (difflib); other options of Rapthor have up to 0.82."""


def spelling_questions(parset: Parset) -> list[str]:
    """Return one question for each misspelt or misplaced option that the job depends on, and each section."""
    questions = []
    for section, options in parset.sections.items():
        if section not in _SECTIONS:
            near = difflib.get_close_matches(section.lower(), _SECTIONS, 1, _NEAR_SECTION)
            questions += [f"[{section}]: did you mean [{near[0]}]?"] if near else []
            continue
        for option in options:
            near = difflib.get_close_matches(option, _SECTION_BY_OPTION, 1, _NEAR_OPTION)
            places = [f"{name} in [{_SECTION_BY_OPTION[name]}]" for name in near]
            if places and places[0] != f"{option} in [{section}]":
                questions.append(f"{option} in [{section}]: did you mean {places[0]}?")
    return questions


_Changes = defaultdict[str, list[str]]
"""Options of the user's parset, as ``NAME = VALUE``, by what the job does with them."""
_REPLACED = "the job runs on one machine: "
_PLACED = "the job's scratch folder and the paths at its site replace "
_LIMITED = "the job gets at most what its slot (--cpus, --memory-gb) has of "
_UNKNOWN = "unknown options that may speak of another machine; they stay unchanged: "
_FILLED = "the job fills in {input_ms}, {scratch}, {cores} and {memory_gb}, also in "


def job_parset(parset: Parset, files: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the parset that HTCondor transfers with the job, and one sentence for each kind of change.

    The job wrapper fills in ``{input_ms}``, ``{scratch}``, ``{cores}`` and ``{memory_gb}`` at the start of
    the job, because the site and the slot are not known earlier. The new parset has no comments.

    Args:
        parset: the user's parset.
        files: the files that HTCondor transfers, as the parset names them, each with its name at the job.
    """
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_dict({"cluster": {}, **parset.sections})
    changes = _Changes(list)
    for section, options in parset.sections.items():
        for option, text in options.items():
            value = _slot_value(parset, section, option, text, changes)
            if value is None:
                parser.remove_option(section, option)
            else:
                parser[section][option] = value
            if value == text and _PLACEHOLDER.search(f"[{section}] {option} = {text}"):
                changes[_FILLED].append(f"[{section}] {_show(option, text)}")
    for option in _ALWAYS_SET:
        if parser["cluster"].get(option, "") in (*UNSET_VALUES, "0"):
            parser["cluster"][option] = _sized(parset, option, _CLUSTER_RULES[option], 0)
    values = {"dir_working": f"{{scratch}}/{WORKING_FOLDER}", "input_ms": "{input_ms}"}
    for option, named in parset.files.items():
        if not files.keys().isdisjoint(named):
            paths = [f"{{scratch}}/{files[file]}" if file in files else file for file in named]
            values[option] = repr(paths) if option == "normalization_skymodels" else paths[0]
    for option, value in values.items():
        section = FILE_OPTIONS.get(option, "global")
        changes[_PLACED].append(_show(option, parset.sections[section][option]))
        parser[section][option] = value
    written = io.StringIO()
    parser.write(written)
    origin = printable_line(parset.origin)
    sentences = [kind + ", ".join(texts) for kind, texts in changes.items()]
    return f"# the job's copy of {origin}, by `hydrator submit rapthor`\n{written.getvalue()}", sentences


def _slot_value(parset: Parset, section: str, option: str, text: str, changes: _Changes) -> str | None:
    """Return the value of an option in the job, None to remove it; note the change in *changes*."""
    rule = MACHINE_OPTIONS.get(section, {}).get(option)
    written = _show(option, text)
    if rule is None:
        if section == "cluster" or _MACHINE_WORD.search(option):
            changes[_UNKNOWN].append(f"[{section}] {written}")
        return text
    if rule == _KEEP or text.strip() in (*UNSET_VALUES, "0", *(_LOCAL_SERVICES if rule == _REMOVE else ())):
        return text
    if rule == _REMOVE:
        changes[_REPLACED].append(f"{written} is removed")
        return None
    if rule in ("{cores}", "{memory_gb}"):
        if not isinstance(lexical_cast(text), int | float):
            raise ConfigError([f"{parset.origin}: {written}: Rapthor needs a number here"])
        changes[_LIMITED].append(written)
        return _sized(parset, option, rule, _whole_number(text))
    if rule != text:
        value = "the job's scratch folder" if rule == "{scratch}" else rule
        hint = " (--container IMAGE runs the whole job in one)" if option == "use_container" else ""
        changes[_REPLACED].append(f"{written} is now {value}{hint}")
    return rule


def _show(option: str, text: str) -> str:
    """Return ``NAME = VALUE`` for a message, without the password that the value may be or have."""
    value = re.sub(r"(?<=://)[^/@\s]*(?=@)", SECRET_PLACEHOLDER, printable_line(text)[:100])
    is_secret = re.search("auth|credential|key|token|secret|passw", option)
    return f"{option} = {SECRET_PLACEHOLDER if is_secret else value}"


def _sized(parset: Parset, option: str, rule: str, limit: int) -> str:
    """Return a placeholder for a size of the slot, at most *limit*; 0 for no limit.

    Each Dask worker of Rapthor 3 runs one command, so it gets its part of the cores: version 3 refuses more.
    """
    workers = _whole_number(parset.sections.get("cluster", {}).get("local_dask_workers", ""))
    parts = f"/{workers}" if workers > 1 and rule == "{cores}" and option != "local_dask_workers" else ""
    return rule.replace("}", parts + (f":{limit}" if limit else "") + "}")


def _whole_number(text: str) -> int:
    """Return the number in *text*, rounded down; 0 if there is none or it is not positive."""
    value = lexical_cast(text)
    return int(value) if isinstance(value, int | float) and 1 <= value < 1e9 else 0
