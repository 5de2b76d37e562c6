#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
""":"
# sh runs these lines only: they find a Python that works and start it in isolated mode. Without such a
# Python, or if sh fails, the job exits with 85 to run elsewhere. Python runs the code below.
trap 'exit 85' 0
shopt -s execfail 2>/dev/null  # bash as sh drops the trap at exec
export HYDRATOR_LC_CTYPE="${LC_CTYPE-}"
works='import contextlib, fnmatch, getopt, glob, json, re, select, shlex, shutil, signal, socket
import subprocess, sys, tarfile
sys.exit(sys.version_info < (3, 6))'
for python in python3 /usr/libexec/platform-python; do
    command -v "$python" >/dev/null 2>&1 &&
        "$python" -I -S -c "$works" </dev/null >/dev/null 2>&1 && exec "$python" -I -S "$0" "$@"
done
echo "hydrator: no working python3, 3.6 or later, on PATH=$PATH: the job ends with 85 to run elsewhere" >&2
exit 85
":"""

# Job wrapper: find the job's datasets at the site where the job starts, then exec the job's command.
#
#   job_start.py [--paths FILE] [--parset FILE] [--keep FOLDER] [--site NAME] [--] COMMAND [ARGUMENT...]
#
#   --paths FILE   the datasets and their paths at each site; default: hydrator-paths.json in the scratch
#                  folder
#   --parset FILE  a parset from "hydrator submit rapthor", which is filled in for COMMAND: {input_ms} is a
#                  list of this site's paths, {scratch} is the scratch folder, {cores} and {memory_gb} are the
#                  size of the slot ({cores:96}: at most 96). If FILE is not in the scratch folder, it stays
#                  unchanged, and an ARGUMENT that is FILE becomes a filled copy. COMMAND also gets a home in
#                  the scratch folder, and no address of another Dask scheduler or Prefect server
#   --keep FOLDER  Rapthor's working folder, which the schedd keeps when the job is evicted: the next start
#                  skips the finished operations in FOLDER and repeats the others
#   --site NAME    this site; default: DataLocalitySite of the machine ad, then its attributes that
#                  hydrator-paths.json names in "site_keys"
#
# COMMAND gets the paths of the datasets in $INPUT_1, $INPUT_2, ... and in $INPUT_<NAME>. NAME is a dataset's
# name with _ for all characters except letters and digits. The wrapper also replaces each ARGUMENT that is a
# dataset's name, its DID, or $INPUT_... by the path. $HYDRATOR_SITE has the name of the site.
#
# For a dataset of several files the wrapper makes a folder with links to the files in the scratch folder. It
# unpacks tar files there whose names match "unpack" in hydrator-paths.json.
#
# A miss is a dataset that the wrapper cannot read. If the job has a stage-in command, the wrapper fetches the
# dataset and writes its DID into the job attribute ChirpDataLocalityFetched. If the slot ad lists the dataset
# as AVAILABLE, the wrapper reports a miss too. It also writes the bytes and seconds of each fetch into
# ChirpDataLocalityReads, if it knows from which site the data came.
#
# Without a stage-in command the wrapper writes the miss into the job's ad (ChirpDataLocalityMisses and two
# more attributes, see hydrator/reconcile/misses.py) and exits with 85. Then the schedd tries another site.
# The wrapper also exits with 85 after a failure of the node: a full disk, a read-only scratch folder, no
# memory. The job avoids that site too.
#
# If the wrapper itself fails, it prints one line on stderr. Exit status 2: wrong usage, which is wrong on
# every node. 85: the job may run elsewhere. 126: the command is not executable. 127: the command does not
# exist.
#
# The wrapper is one file for Python 3.6 or later that needs the standard library only, because HTCondor
# copies it to the node as the job's executable.

import contextlib
import errno
import fnmatch
import getopt
import glob
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import time

TYPE_CHECKING = False  # `typing` costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    Environ = Mapping[str, str]
    # a file's name, its size if known, and the paths where it may be
    File = tuple[str, int | None, list[str]]
    # a name in a dataset's folder, its source, and the source as a tar file to unpack
    Entry = tuple[str, str, "Archive | None"]

CONTRACT = 1
RETRY_STATUS = 85
"""Exit status with which the schedd tries the job elsewhere."""
CHECK_SECONDS = 120
"""Limit for the check of one file: a dead file server never answers."""
STAGE_SECONDS = 86400
"""Limit for fetching one dataset."""
KEEP_AWAY_SECONDS = 3600
"""Time for which the job avoids sites where it missed; rounded up to ROUNDING_SECONDS, for autoclusters."""
ROUNDING_SECONDS = 1800
MIN_REPORTED_BYTES = 100000000
"""Smallest fetched dataset whose rate the wrapper reports; a smaller one measures delays, not the link."""
MAX_VALUE_BYTES = 800
"""Longest value that the wrapper writes into the job's ad; HTCondor takes about 990 bytes with its name."""
MOST_MISSES = 10
NOT_FOUND = (errno.ENOENT, errno.ENOTDIR)
NOT_EXECUTABLE = (errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR)
ENDING_SIGNALS = [getattr(signal, f"SIG{name}") for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")]
DID = re.compile(r"[A-Za-z0-9._/@=+~][A-Za-z0-9._/@=+~-]*:[A-Za-z0-9._:/@=+~-]+\Z")
"""The grammar of hydrator/domain/model.py, without a leading ``-``: that would be an option of the stage-in
command."""
OTHER_SERVICES = re.compile(r"DASK_SCHEDULER|PREFECT_(API|SERVER|PROFILE)")
"""Variables with which Rapthor would use a scheduler, a server or a port that other runs use too."""
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
MAGIC = b"\xbe\xbe\xbe\xbe"
SET_OR_PACKED = re.compile(r"/table\.dat\Z|/[^./][^/]*\.(ms|tgz|zip|tar|tar\.(gz|bz2|xz|zst))\Z", re.I)
"""Paths that show a measurement set, or a file in the place of one."""
FOLDER = "hydrator-inputs"
"""Folder in the scratch folder; HTCondor transfers no folder back that is not in the job's output list."""


class WrapperError(Exception):
    """An error of the wrapper: its text is one line for stderr, ``status`` is the exit status.

    With RETRY_STATUS it is a miss: ``dids`` are not readable on this node.
    """

    def __init__(self, text: str, status: int = 2, *dids: str) -> None:
        super().__init__(text)
        self.status = status
        self.dids = list(dids)


# ---------------------------------------------------------------- hydrator-paths.json


class Dataset:
    """One dataset of the job, from *entry* of hydrator-paths.json; *number* counts from 1.

    ``files`` has the name and the size of each file; the size is None if it is not known. By the name of a
    layout and the number of a file, ``layouts`` has the file's path below a folder.

    Raises:
        ValueError: the DID is not safe in a shell, or a path leads out of the dataset's folder.
    """

    def __init__(self, number: int, entry: "Any") -> None:
        self.did = str(entry["did"])
        if not DID.match(self.did) or ".." in re.split("[:/]", self.did):
            raise ValueError("no valid did")
        self.number = number
        self.name = str(entry.get("name") or self.did.partition(":")[2]).rstrip("/")
        basename = os.path.basename(self.name) or self.did
        self.variables = (f"INPUT_{number}", "INPUT_" + re.sub(r"[^A-Za-z0-9]", "_", basename))
        # use no character with a meaning in a shell: a stage-in command may pass the name to a shell
        base = re.sub(r"[^A-Za-z0-9._:@=+~-]", "_", basename).lstrip("-~")
        self.safe_basename = base if base not in ("", ".", "..") else "data"
        self.bytes_total = entry.get("bytes")
        self.files = [(require_below(name), size) for name, size in entry.get("files") or []]
        self.layouts = {
            layout: {at: require_below(path) for at, path in enumerate(paths) if path is not None}
            for layout, paths in (entry.get("layouts") or {}).items()
        }

    def files_at(self, shelves: "list[tuple[str, str]]") -> "Iterator[File]":
        """Yield each file; it may be in each folder of *shelves*, which have a layout each."""
        for at, (name, size) in enumerate(self.files):
            paths = [(folder, self.layouts.get(layout, {}).get(at)) for folder, layout in shelves]
            yield name, size, [os.path.join(to_native_path(folder), path) for folder, path in paths if path]


class JobInputs:
    """The content of hydrator-paths.json: datasets, their paths at each site, and the stage-in command.

    A place of a dataset at a site is one path, or pairs of a folder and the name of a layout. The datasets of
    a Rapthor run are measurement sets.
    """

    is_rapthor = False

    def __init__(self, path: str) -> None:
        if not os.path.lexists(path):
            raise WrapperError(f"cannot read {path}: add the file to transfer_input_files")
        try:
            with open(path, "rb") as file:
                content = json.loads(file.read().decode("utf-8"))
            if content["version"] != CONTRACT or not content["datasets"]:
                raise ValueError(f"version {content['version']} or no dataset; this wrapper reads {CONTRACT}")
            self.datasets = [Dataset(at, each) for at, each in enumerate(content["datasets"], 1)]
            self.places = dict(content["sites"])
        except (ValueError, TypeError, LookupError, AttributeError) as trouble:
            text = f"{path} is not valid ({describe(trouble)}): submit the job again"
            raise WrapperError(text) from trouble
        self.site_keys = [str(key) for key in content.get("site_keys") or []]
        self.stage_in = str(content.get("stage_in") or "").strip()
        self.unpack_patterns = [str(pattern).lower() for pattern in content.get("unpack") or []]


def require_below(path: "Any") -> str:
    """Return *path* if it is a relative path without empty, ``.`` or ``..`` parts; else raise ValueError."""
    if not isinstance(path, str) or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"a name that leads out of its folder: {path!r:.200}")
    return to_native_path(path)


def to_native_path(path: str) -> str:
    """Convert *path* so that, in any locale, Python opens the file whose name is *path* in UTF-8."""
    return os.fsdecode(path.encode("utf-8", "surrogateescape"))


# ---------------------------------------------------------------- the site


def read_ad(path: str) -> "dict[str, str]":
    """Return the literals in the ad file *path* by name in lower case; empty if the file cannot be read."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        lines = [line.partition(" = ") for line in file]
        return {name.strip().lower(): value.strip() for name, equals, value in lines if equals}
    return {}


def parse_strings(literal: str) -> "list[str]":
    """Return the strings in *literal*, a ClassAd string or list; leave out strings with a backslash."""
    return re.findall(r'"([^"\\]*)"', literal)


def find_site(keys: "Iterable[str]", environ: "Environ") -> str:
    """Return the site by DataLocalitySite of the machine ad, else by one of *keys*; else empty."""
    machine = read_ad(environ.get("_CONDOR_MACHINE_AD", ""))
    sites = ["".join(parse_strings(machine.get(key.lower(), ""))[:1]) for key in ["DataLocalitySite", *keys]]
    return next((site.strip() for site in sites if site.strip() not in ("", "None")), "")


# ---------------------------------------------------------------- checks of files


def check_all(datasets: "list[tuple[Dataset, Any]]", seconds: float = CHECK_SECONDS) -> "list[Any]":
    """Run :func:`check_dataset` in a child process for each dataset and its place; return the answers.

    A read from a dead file server never returns, so a child process reads the files. It writes one line for
    each dataset, and an empty line for each file. After *seconds* without a line, this process kills the
    child.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            with os.fdopen(writer, "w", 1) as pipe:
                for dataset, place in datasets:
                    pipe.write(json.dumps(check_dataset(dataset, place, lambda: pipe.write("\n"))) + "\n")
        finally:
            os._exit(0)  # the child must not continue with the code of the parent below
    os.close(writer)
    text = b""
    while select.select([reader], [], [], seconds)[0]:
        piece = os.read(reader, 65536)
        text += piece
        if not piece:
            break
    os.close(reader)
    answers = [json.loads(line.decode("ascii")) for line in text.split(b"\n")[:-1] if line]
    os.kill(child, signal.SIGKILL)
    # a read that hangs cannot be killed
    os.waitpid(child, 0 if len(answers) == len(datasets) else os.WNOHANG)
    return answers + [[f"no answer within {seconds:g} s", []]] * (len(datasets) - len(answers))


def check_dataset(dataset: Dataset, place: "Any", tick: "Callable[[], object]") -> "tuple[str, list[str]]":
    """Return why *dataset* is not readable at *place* ("" if readable), and its paths at *place*."""
    if place is None:
        return "hydrator-paths.json has no path for this dataset", []
    if isinstance(place, str):
        path = to_native_path(place)
        return check_files(list_files(path), dataset.bytes_total, tick)[0], [path]
    return check_files(dataset.files_at(place), dataset.bytes_total, tick)


def list_files(path: str) -> "Iterator[File]":
    """Yield each file of the folder *path* and of the folders that links in it name, or the file *path*.

    The table.dat of a measurement set is yielded also if it does not exist. A measurement set has a folder
    ANTENNA; or it is called ``*.ms``, is below *path*, and has no archives or other measurement sets.
    """
    if not os.path.isdir(path):
        yield "", None, [path]
        return
    parts = os.path.realpath(path).split("/")
    seen = {"/".join(parts[:count]) or "/" for count in range(1, len(parts) + 1)}  # a link may lead up
    for folder, folders, names in os.walk(path, onerror=raise_error, followlinks=True):
        seen.add(os.path.realpath(folder))  # a link may lead back
        folders[:] = [name for name in folders if os.path.realpath(os.path.join(folder, name)) not in seen]
        inside = str(names + folders).lower()
        is_set = folder[len(path) :].lower().endswith(".ms") and not re.search(r"\.(ms|tar|tgz)", inside)
        for name in {*names, "table.dat"} if is_set or "ANTENNA" in folders else names:
            file = os.path.join(folder, name)
            yield os.path.relpath(file, path), None, [file]


def raise_error(trouble: OSError) -> None:
    raise trouble


def check_files(
    files: "Iterable[File]", bytes_total: "int | None", tick: "Callable[[], object]"
) -> "tuple[str, list[str]]":
    """Return the reason why *files* cannot be read ("" if readable), and the path of each readable file.

    The first readable path of a file counts. A file is readable if it opens and has its size. All files
    together have at least *bytes_total*. Casacore tables are complete as far as :func:`table_problem` can
    see. The function calls *tick* before each file.
    """
    paths = []
    missing = []
    size_found = 0
    tables = {}  # type: dict[str, dict[str, str]]
    try:
        for name, size, options in files:
            problem = "hydrator-paths.json has no path for this file at this site"
            for path in options:
                tick()
                problem, size_read = read_file(path, size)
                if not problem:
                    paths.append(path)
                    size_found += size_read
                    tables.setdefault(os.path.dirname(name), {})[os.path.basename(name)] = path
                    break
            missing += [problem] if problem else []
        problems = [table_problem(folder, tables) for folder in sorted(tables)]
    except (OSError, ValueError) as trouble:
        return describe(trouble), []
    if missing:
        total = len(missing) + len(paths)
        return f"{len(missing)} of the dataset's {total} files cannot be read; the first: {missing[0]}", []
    if bytes_total is not None and size_found < bytes_total:
        problems.append(f"has only {size_found} of {bytes_total} bytes")
    nothing = "" if size_found or bytes_total == 0 else "has no files or only empty ones"
    return next(filter(None, problems), nothing), paths


def read_file(path: str, size: "int | None") -> "tuple[str, int]":
    """Read one byte of *path*; return why the file is not readable ("" if readable), and its size."""
    try:
        with open(path, "rb") as file:
            file.read(1)
            size_found = os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as trouble:
        return f"{path}: {getattr(trouble, 'strerror', None) or trouble}", 0
    return "" if size in (None, size_found) else f"{path}: has {size_found} of {size} bytes", size_found


def table_problem(folder: str, tables: "dict[str, dict[str, str]]") -> str:
    """Return why *folder* of *tables* is a broken casacore table; empty if not broken.

    *tables* has the paths of the files by folder and name. casacore keeps the description of a table in
    table.dat, and the columns in table.f0, table.f0i, table.f1_TSM0, … or in table.mf. Beside rows a column
    file has a header, so it is not empty, except a ``_TSM`` file of TiledCellStMan that has no value yet
    (tried with casacore 3.8). This function cannot see that a column file is short.
    """
    paths = tables[folder]
    columns = sorted(name for name in paths if re.match(r"table\.(f\d+(i|_TSM\d+)?|mf.*)\Z", name))
    path = paths.get("table.dat")
    if path is None:
        return f"{paths[columns[0]]} is data of a casacore table without table.dat" if columns else ""
    with open(path, "rb") as file:
        description = file.read()
    is_table = description[:4] in (b"", MAGIC) or columns or os.path.join(folder, "ANTENNA") in tables
    if not is_table:
        return ""  # the file of another program
    # the description begins with a magic number, its length, "Table", a version, and the number of rows
    length = int.from_bytes(description[4:8], "big")
    if description[:4] + description[12:17] != MAGIC + b"Table" or len(description) - 4 < length:
        return f"{path} is empty, cut or not the description of a casacore table"
    rows = any(description[21 : 29 if description[20:21] == b"\3" else 25])
    for name in columns if rows else ():
        if not os.stat(paths[name]).st_size and not ("_TSM" in name and b"TiledCellStMan" in description):
            return f"{paths[name]} is empty, and the table has rows"
    # a table that refers to rows of others, or is in memory, has no column files
    if rows and not columns and not re.search(b"(Ref|Concat)Table|MemoryStMan", description):
        return f"{path} describes rows, but there is no column file"
    # the names of the subtables; casacore never needs SORTED_TABLE
    for name in re.findall(r"\./\./(?!SORTED_TABLE)(\w+)", description.decode("latin-1")):
        if "table.dat" not in tables.get(os.path.join(folder, name), {}):
            return f"{path} has a subtable {name}, which is missing"
    return ""


# ---------------------------------------------------------------- files into one folder


class Archive:
    """A tar file of the dataset *did* to unpack, which may have regular files and folders only.

    The wrapper rejects an archive with a link, a device, or a name that leads out of its folder.
    """

    max_members = 200000

    def __init__(self, path: str, did: str) -> None:
        self.path = path
        self.did = did

    def size(self) -> int:
        """Return the disk space in bytes that the unpacked archive needs, in blocks of 4096 bytes.

        Raises:
            WrapperError: the archive is not a tar file that can be unpacked.
        """
        members = [(name, member.size if member.isreg() else 1) for _, member, name in self._members()]
        if not any(os.path.basename(name) == "table.dat" for name, _ in members):
            raise self._miss("has no measurement set")
        return sum((size + 4095) // 4096 * 4096 for _, size in members)

    def unpack(self, folder: str) -> None:
        """Unpack the members of the archive into *folder*; never replace an existing file.

        Raises:
            WrapperError: the archive is incomplete.
            FileExistsError, NotADirectoryError: the archive has two members of the same name.
        """
        for tar, member, name in self._members():
            path = os.path.join(folder, name)
            os.makedirs(path if member.isdir() else os.path.dirname(path), exist_ok=True)
            content = tar.extractfile(member)
            if content is not None:  # a folder has None
                with open(path, "xb") as copy:  # follows no link
                    shutil.copyfileobj(content, copy, 1 << 20)
                    if copy.tell() != member.size:
                        raise self._miss(f"is incomplete: it ends within its member {name!r:.200}")

    def _members(self) -> "Iterator[tuple[tarfile.TarFile, tarfile.TarInfo, str]]":
        """Yield the open archive, the member and the member's name, for each member of the archive.

        Raises:
            WrapperError: the archive is incomplete, or has a member that must not be unpacked.
        """
        try:
            with tarfile.open(self.path, "r:", encoding="utf-8", errors="surrogateescape") as tar:
                for _ in range(self.max_members):
                    # without this test, Python before 3.11 would seek to byte -1 of an empty archive
                    member = tar.next() if tar.offset else None
                    if member is None:
                        break
                    tar.members = []  # type: ignore[attr-defined]  # else tarfile keeps all members in memory
                    name = re.sub(r"^(\./)+(?=.)|(?<=.)/+$", "", member.name)  # tar adds ./ and /
                    if member.size < 0 or not (member.isreg() or member.isdir()):
                        raise ValueError(f"it has a member that is neither file nor folder: {name!r:.200}")
                    if name != "." or not member.isdir():
                        yield tar, member, require_below(name)
                else:
                    raise ValueError(f"it has more than {self.max_members} members, which is the limit")
                tar.fileobj.seek(tar.offset)
                # tarfile mistakes a damaged header for the end of the archive
                if tar.fileobj.read(512) != b"\0" * 512:
                    raise ValueError(f"it is damaged or breaks off at byte {tar.offset}")
        except (tarfile.TarError, EOFError, ValueError) as trouble:
            raise self._miss(f"is not a tar file that can be unpacked: {trouble}") from trouble

    def _miss(self, text: str) -> WrapperError:
        return WrapperError(f"{self.did} ({self.path} {text})", RETRY_STATUS, self.did)


def list_entries(dataset: Dataset, paths: "list[str]", patterns: "list[str]") -> "list[Entry]":
    """Return the entries for the folder of a dataset.

    *paths* are the paths of the dataset's files, or one path of a folder. A folder without archives becomes
    one entry. A folder with archives becomes one entry for each name in the folder.
    """
    if len(paths) == 1 and os.path.isdir(paths[0]):
        sources = [(name, os.path.join(paths[0], name)) for name in sorted(os.listdir(paths[0]))]
        if not any(is_packed(path, name, patterns) for name, path in sources):
            sources = [(dataset.safe_basename, paths[0])]
    else:
        names = [name for name, _ in dataset.files]
        sources = list(zip(names if len(names) == len(paths) else map(os.path.basename, paths), paths))
    return [
        (name, path, Archive(path, dataset.did) if is_packed(path, name, patterns) else None)
        for name, path in sources
    ]


def is_packed(path: str, name: str, patterns: "list[str]") -> bool:
    """Return whether *path* is a file, and its own name or *name* matches one of *patterns*."""
    names = [os.path.basename(each).lower() for each in (path, name)]
    return os.path.isfile(path) and any(fnmatch.filter(names, pattern) for pattern in patterns)


def build_dataset_folders(job: JobInputs, found: "list[list[str]]", scratch: str) -> "list[str]":
    """Return one path for each dataset: a folder in the scratch folder, or the dataset's original path.

    The folder has links to the files of the dataset, and the unpacked archives. A dataset that is a single
    file or folder, and not an archive, stays at its original path.

    Raises:
        WrapperError: an archive cannot be unpacked, what it unpacks to is broken, or a dataset of a
            Rapthor run does not consist of measurement sets.
        OSError: the scratch folder has too little space.
    """
    entries = [list_entries(each, paths, job.unpack_patterns) for each, paths in zip(job.datasets, found)]
    needed = sum(archive.size() for each in entries for _, _, archive in each if archive)
    free = shutil.disk_usage(scratch).free
    if needed > free:
        text = f"unpacking needs {needed} bytes, but {scratch} has only {free}: request more disk"
        raise OSError(errno.ENOSPC, text)
    ready = [build_dataset_folder(dataset, each, scratch) for dataset, each in zip(job.datasets, entries)]
    for dataset, path, each in zip(job.datasets, ready, entries):
        problem = check_files(list_files(path), None, int)[0] if any(packed for _, _, packed in each) else ""
        for table in measurement_sets(path) or [path] if job.is_rapthor and not problem else ():
            if not os.path.isfile(os.path.join(table, "ANTENNA", "table.dat")):
                problem = f"{table} is neither a measurement set with antennas nor a tar file in `unpack`"
        if problem:
            raise WrapperError(f"{dataset.did} ({each[0][1]}: {problem})", RETRY_STATUS, dataset.did)
    return ready


def build_dataset_folder(dataset: Dataset, entries: "list[Entry]", scratch: str) -> str:
    """Build the folder with the *entries* of *dataset*; return the dataset's path."""
    archives = [archive for _, _, archive in entries if archive]
    if len(entries) == 1 and not archives:
        return entries[0][1]
    folder = make_folder(scratch, f"{dataset.number}-files", dataset.safe_basename)
    try:
        for archive in archives:  # unpack first: an archive could write through a link
            archive.unpack(folder)
        for name, path, packed in entries:
            if packed is None:
                link = os.path.join(folder, name)
                os.makedirs(os.path.dirname(link), exist_ok=True)
                os.symlink(os.path.abspath(path), link)
    except (FileExistsError, NotADirectoryError) as trouble:
        text = f"{dataset.did} (two of its files have the same name: {trouble.filename})"
        raise WrapperError(text, RETRY_STATUS, dataset.did) from trouble
    sets = measurement_sets(folder) if len(archives) == len(entries) == 1 else []
    return sets[0] if len(sets) == 1 else folder


def measurement_sets(path: str) -> "list[str]":
    """Return the outermost casacore tables in the folder *path*, which may be a table itself.

    A file in the place of a measurement set, such as an archive, is in the list too.
    """
    files = [file for _, _, (file,) in list_files(path) if SET_OR_PACKED.search(file)]
    found = []  # type: list[str]
    # with a slash at its end, a table comes just before its subtables
    for each in sorted(re.sub(r"table\.dat\Z", "", file) for file in files):
        if not (found and found[-1].endswith("/") and each.startswith(found[-1])):
            found.append(each)
    return [each.rstrip("/") for each in found]


def make_folder(scratch: str, *names: str) -> str:
    """Make nested folders *names* below FOLDER in *scratch*; raise OSError if *scratch* does not exist."""
    os.stat(scratch)
    folder = os.path.join(scratch, FOLDER, *names)
    os.makedirs(folder, exist_ok=True)
    return folder


# ---------------------------------------------------------------- fetching


def fetch(dataset: Dataset, stage_in: str, scratch: str, seconds: float = STAGE_SECONDS) -> "tuple[str, str]":
    """Fetch *dataset* into the scratch folder; return its path there, and the site that it came from or "".

    The function replaces ``{path}`` in the command *stage_in* by a new, empty folder, and runs the command.
    The path is the entry of that folder with the dataset's name, else the only entry, else the folder itself.

    The command finds a file name in $HYDRATOR_SOURCE_FILE, and may write there the site that it read from.

    Raises:
        WrapperError: the command failed, took too long or wrote nothing.
    """
    folder = make_folder(scratch, str(dataset.number), dataset.safe_basename)
    source_file = os.path.join(scratch, FOLDER, f".source-{dataset.number}")
    environ = dict(os.environ, HYDRATOR_SOURCE_FILE=source_file)
    try:
        words = [
            word.replace("{did}", dataset.did).replace("{path}", folder) for word in shlex.split(stage_in)
        ]
        status, signals = run_child(words, environ, seconds, stdin=subprocess.DEVNULL, stdout=2)
        for number in signals:
            os.kill(os.getpid(), number)
        problem = f"ended with status {status}" if status else ""
    except subprocess.TimeoutExpired:
        problem = f"took over {seconds:g} s"
    except (OSError, ValueError, subprocess.SubprocessError) as trouble:
        problem = f"cannot be started: {describe(trouble)}"
    names = os.listdir(folder) if os.path.isdir(folder) else []
    if not problem and not names and not os.path.isfile(folder):
        problem = "left nothing in {path}"
    if problem:
        text = f"{dataset.did} was not fetched: the stage-in command {stage_in.split(None, 1)[0]} {problem}"
        raise WrapperError(text, RETRY_STATUS)
    named = [name for name in names if name == dataset.safe_basename] or names
    source = ""
    with contextlib.suppress(OSError), open(source_file, "rb") as file:
        source = file.read(200).decode("utf-8", "replace").strip()
    return os.path.join(folder, named[0]) if len(named) == 1 else folder, source


def run_child(
    words: "list[str]", environ: "Environ", seconds: "float | None" = None, **streams: "Any"
) -> "tuple[int, list[int]]":
    """Run the command *words* in a process group of its own; return its status and this process's signals.

    Each of ENDING_SIGNALS that this process gets meanwhile goes to that group.

    Raises:
        subprocess.TimeoutExpired: the command took more than *seconds*, and the group was killed.
        OSError, ValueError: the command cannot be started.
    """
    signals = []  # type: list[int]
    children = []  # type: list[subprocess.Popen[bytes]]

    def forward(number: int, _frame: object = None) -> None:
        signals.append(number)
        for child in children:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, number)

    before = [(number, signal.signal(number, forward)) for number in ENDING_SIGNALS]
    try:
        children.append(subprocess.Popen(words, env=environ, start_new_session=True, **streams))
        for number in set(signals):  # those that arrived before the command started
            forward(number)
        return children[0].wait(seconds), signals
    except subprocess.TimeoutExpired:
        forward(signal.SIGKILL)
        children[0].wait()
        raise
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def read_report(did: str, job: JobInputs, source: str, site: str, path: str, seconds: float) -> "list[str]":
    """Return ``SOURCE:BYTES:SECONDS:WHEN:SITE`` about a fetched dataset; empty if it would say nothing.

    Without *source*, SOURCE is the only other site that has the dataset.
    """
    others = [each for each in job.places if each != site and did in job.places[each]]
    names = [to_plain_text(name) for name in [*([source] if source else others), site]]
    is_known = len(names) == 2 and names[0] != names[1] and all(name and ":" not in name for name in names)
    with contextlib.suppress(OSError):
        size = sum(os.lstat(file).st_size for _, _, files in list_files(path) for file in files)
        if is_known and size >= MIN_REPORTED_BYTES:
            return [f"{names[0]}:{size}:{max(seconds, 0.1):.1f}:{int(time.time())}:{names[1]}"]
    return []


# ---------------------------------------------------------------- reports in the job's ad


def avoidance_attributes(site: str, environ: "Environ", now: int) -> "list[tuple[str, str]]":
    """Return the attributes with which the job avoids *site* for KEEP_AWAY_SECONDS."""
    until = (now + KEEP_AWAY_SECONDS + ROUNDING_SECONDS - 1) // ROUNDING_SECONDS * ROUNDING_SECONDS
    missed = prepend_items("ChirpDataLocalityMissed", [to_plain_text(site)], environ)
    return [missed, ("ChirpDataLocalityMissedUntil", str(until))]


def prepend_items(attribute: str, items: "list[str]", environ: "Environ") -> "tuple[str, str]":
    """Return *attribute* and its new value: *items*, then the other strings of its list in the job's ad.

    The value is a ClassAd list of the first ones, at most MOST_MISSES and in MAX_VALUE_BYTES bytes.
    """
    ad = read_ad(environ.get("_CONDOR_JOB_AD", ""))
    others = [old for old in parse_strings(ad.get(attribute.lower(), "")) if old not in items]
    first = [*items, *others][:MOST_MISSES]
    while len(first) > 1 and sum(len(item) + 3 for item in first) + 2 > MAX_VALUE_BYTES:
        first.pop()
    return attribute, "{" + ",".join([f'"{item}"' for item in first]) + "}"


def fetched_attributes(
    site: str, dids: "list[str]", reads: "list[str]", environ: "Environ", now: int
) -> "list[tuple[str, str]]":
    """Return the attributes with the fetched *dids*, and *reads* from :func:`read_report`.

    If the slot ad lists a fetched DID as AVAILABLE, the slot ad is wrong: this DID is a miss too.
    """
    states = read_ad(environ.get("_CONDOR_MACHINE_AD", "")).get("datasetstates", "")
    available = r"(?:^|[\[;\s])'%s'\s*=\s*\"AVAILABLE\""
    advertised = [did for did in dids if re.search(available % re.escape(did), states)]
    values = {
        "ChirpDataLocalityFetched": [miss_text(site, dids, now)],
        "ChirpDataLocalityMisses": [miss_text(site, advertised, now)] if advertised else [],
        "ChirpDataLocalityReads": reads,
    }
    return [prepend_items(name, items, environ) for name, items in values.items() if items]


def miss_text(site: str, dids: "list[str]", now: int) -> str:
    """Return ``WHEN DID,DID,+N SITE`` of up to 650 bytes, with at least one DID.

    WHEN is the Unix time in seconds. N is the number of DIDs that are left out for lack of room.
    """
    count = 1
    max_chars = 650 - len(to_plain_text(site))
    while count < len(dids) and len(",".join(dids[: count + 1])) < max_chars:
        count += 1
    more = [f"+{len(dids) - count}"] if count < len(dids) else []
    return f"{now} {','.join(dids[:count] + more)} {to_plain_text(site)}"


def to_plain_text(text: str) -> str:
    """Return *text* without the characters that need an escape in a ClassAd string."""
    return "".join(letter for letter in text if " " <= letter <= "~" and letter not in '"\\')[:100]


def set_job_attributes(values: "list[tuple[str, str]]", environ: "Environ", what: str) -> str:
    """Set the attributes *values* in the job's ad; return "", or that *what* could not be written there.

    The function speaks the Chirp protocol with the starter, as condor_chirp does, because images seldom have
    condor_chirp. A request is one line of words; a backslash escapes special characters. The answer is one
    line with a number, 0 or more on success.
    """
    default_file = os.path.join(environ.get("_CONDOR_SCRATCH_DIR", "."), ".chirp.config")
    try:
        with open(environ.get("_CONDOR_CHIRP_CONFIG", default_file)) as file:
            host, port, cookie = file.read().split()[:3]
        with socket.create_connection((host, int(port)), 30) as peer, peer.makefile("rwb") as stream:
            for words in [("cookie", cookie), *(("set_job_attr_delayed", *pair) for pair in values)]:
                line = " ".join([re.sub(r"([\\ \t\r\n])", r"\\\1", word) for word in words])
                stream.write(f"{line}\n".encode())
                stream.flush()
                if int(stream.readline(80) or b"-1") < 0:
                    raise ValueError(f"HTCondor refuses {words[0]}")
    except Exception as trouble:  # noqa: BLE001 - no failure of a report changes what the job does
        return f"; {what} could not be written into the job's ad: {describe(trouble)}"
    return ""


def fill_missing_outputs(environ: "Environ") -> None:
    """Create a Unix socket in place of each missing file of transfer_output_files.

    If an output file is missing, HTCondor holds the job, and the schedd cannot try another site. HTCondor's
    file transfer skips sockets, so a socket overwrites no file at the submit host. For a missing ``folder/``
    the function makes an empty folder.
    """
    scratch = environ.get("_CONDOR_SCRATCH_DIR", "")
    outputs = parse_strings(read_ad(environ.get("_CONDOR_JOB_AD", "")).get("transferoutput", ""))
    for name in re.split(r"\s*,\s*", outputs[0].strip()) if scratch and outputs else []:
        path = os.path.join(scratch, name)
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)  # all of ``folder/``
            if not name.endswith("/"):
                os.mknod(path, stat.S_IFSOCK | 0o600)  # fails if the file exists


# ---------------------------------------------------------------- parset and environment of the command


def fill_parset(
    parset: bytes, paths: "list[str]", scratch: str, machine: "Environ"
) -> "tuple[bytes, list[str]]":
    """Return *parset* with the values of this site and slot, and ``NAME = OLD is now NEW`` for each limit.

    ``{input_ms}`` becomes a list of *paths*, ``{scratch}`` the scratch folder. ``{cores}`` and
    ``{memory_gb}`` become the size of the slot with the ad *machine*. ``{cores:96}`` is at most 96;
    ``{cores/8:96}`` is an eighth of the cores, at most 96 and at least 1.

    Raises:
        WrapperError: the parset has no ``{input_ms}``.
    """
    if b"{input_ms}" not in parset:
        raise WrapperError("the parset has no {input_ms}: write it with hydrator submit rapthor")
    cores = parse_whole_number(machine.get("cpus")) or os.cpu_count() or 1
    mebibytes = parse_whole_number(machine.get("memory"))
    gigabytes = max(1, mebibytes // 1024) if mebibytes else 0  # 0 means all memory to Rapthor
    changes = []  # type: list[str]

    def fill_size(match: "re.Match[bytes]") -> bytes:
        option, size, parts, limit_text = match.groups()
        limit = int(limit_text or 0)
        value = max(1, cores // int(parts or 1)) if size == b"cores" else gigabytes
        if 0 < value < limit:
            changes.append(f"{option.decode()} = {limit} is now {value}")
        elif limit:
            value = limit
        return b"%s = %d" % (option, value)

    sized_option = rb"^(\w+) = \{(cores|memory_gb)(?:/(\d+))?(?::(\d+))?\}$"
    sets = json.dumps([glob.escape(path) for path in paths], ensure_ascii=False)
    text = re.sub(sized_option, fill_size, parset, flags=re.MULTILINE)
    text = text.replace(b"{scratch}", os.fsencode(scratch))
    return text.replace(b"{input_ms}", sets.encode("utf-8", "surrogateescape")), changes


def parse_whole_number(text: "str | None") -> int:
    """Return *text* as a whole number, rounded down; 0 if it is not a number."""
    match = re.match(r"\s*(\d{1,9})(\.\d*)?\s*\Z", text or "")
    return int(match.group(1)) if match else 0


def write_parset(parset: str, paths: "list[str]", scratch: str, machine: "Environ") -> str:
    """Fill in *parset* for this site and the slot with the ad *machine*; return the path of the new text.

    The new text replaces the file in the scratch folder, because a script may name it. A file elsewhere may
    be shared with other jobs: it stays, and gets a copy.

    Raises:
        WrapperError: the file does not exist, or it has no ``{input_ms}``.
    """
    if not os.path.lexists(parset):
        raise WrapperError(f"cannot fill in the parset {parset}: it does not exist")
    with open(parset, "rb") as file:
        content, changes = fill_parset(file.read(), paths, scratch, machine)
    if changes:
        print_error(f"{parset} does not fit this slot: {', '.join(changes)}")
    if os.path.dirname(os.path.realpath(parset)) != os.path.realpath(scratch):
        parset = os.path.join(make_folder(scratch), os.path.basename(parset))
    with open(parset, "wb") as file:
        file.write(content)
    return parset


def isolate(environ: "dict[str, str]", scratch: str) -> None:
    """Give a Rapthor run a home below *scratch*; remove the services of another machine from *environ*."""
    removed = sorted(filter(OTHER_SERVICES.match, environ))
    if removed:  # not their values: one may be a password
        print_error(f"the run starts its own services, without the variables {', '.join(removed)}")
    for name in removed:
        del environ[name]
    environ["HOME"] = make_folder(scratch, "home")
    environ["PREFECT_HOME"] = make_folder(scratch, "home", ".prefect")


def replace_arguments(words: "list[str]", variables: "Environ", path_by_name: "Environ") -> "list[str]":
    """Return the command *words* with paths in place of datasets' names, DIDs and ``$INPUT_...``."""

    def one(word: str) -> str:
        if word in path_by_name or re.search(r"\s", word):
            return path_by_name.get(word, word)  # a word with spaces is a shell script: no change
        return VARIABLE.sub(lambda found: variables.get(found[1] or found[2], found[0]), word)

    return words[:1] + [one(word) for word in words[1:]]


def build_environment(environ: "Environ", site: str, variables: "Environ") -> "dict[str, str]":
    """Return the command's environment: *environ*, the datasets' *variables* and HYDRATOR_SITE."""
    # exec rejects a variable with an empty name
    ours = {**{name: text for name, text in environ.items() if name}, **variables, "HYDRATOR_SITE": site}
    # Python sets LC_CTYPE if no locale is set: restore the job's value
    job_lc_ctype = ours.pop("HYDRATOR_LC_CTYPE", "")
    ours.pop("LC_CTYPE", None)
    return {**ours, "LC_CTYPE": job_lc_ctype} if job_lc_ctype else ours


def start_command(words: "list[str]", environ: "Environ", pipelines: str) -> None:
    """Replace this process by the command *words*; with *pipelines*, run it to its end instead.

    Raises:
        WrapperError: the command cannot be executed: 127 or 126, as a shell does.
    """
    try:
        if pipelines:
            run_to_end(words, environ, pipelines)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(words[0], words, environ)
    except OSError as trouble:
        if trouble.errno not in NOT_FOUND + NOT_EXECUTABLE:
            raise
        status = 127 if trouble.errno in NOT_FOUND else 126
        raise WrapperError(f"cannot start {words[0]}: {trouble.strerror}", status) from trouble


def run_to_end(words: "list[str]", environ: "Environ", pipelines: str) -> None:
    """Run the command *words*, clean up *pipelines*, then exit with the command's status or signal.

    An eviction begins with a signal, which this process passes on to the command. HTCondor then transfers
    Rapthor's working folder to the schedd, and from there to the next start of the job. If the command ends
    without an eviction, that folder is the job's output. The function then removes *pipelines* from
    that folder, because *pipelines* has copies of the data.
    """
    operations = drop_unfinished(pipelines)
    if operations:
        print_error(f"the job was evicted before: Rapthor continues after {', '.join(operations)}")
    status, signals = run_child(words, environ)
    if signals:
        drop_unfinished(pipelines)
    else:
        shutil.rmtree(pipelines, ignore_errors=True)
    if status < 0:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


def drop_unfinished(pipelines: str) -> "list[str]":
    """Remove the folders of unfinished operations in *pipelines*; return the names of finished operations.

    Rapthor marks a finished operation by a file ``.done`` and skips that operation. An unfinished operation
    cannot continue: its Toil files have paths in the scratch folder of the earlier start.
    """
    folders = sorted(glob.glob(os.path.join(glob.escape(pipelines), "*")))
    done = [each for each in folders if os.path.isfile(os.path.join(each, ".done"))]
    for each in set(folders).difference(done):
        shutil.rmtree(each, ignore_errors=True)
    return [os.path.basename(each) for each in done]


# ---------------------------------------------------------------- main


def locate_datasets(job: JobInputs, site: str, scratch: str, environ: "Environ") -> "list[str]":
    """Return one path for each dataset: the data at the site, or else a fetched copy.

    For a dataset of several files, the path is a folder with links to the files.

    Raises:
        WrapperError: a dataset is not readable and was not fetched; the job's ad now has the miss, or the
            text says that it could not be written.
    """
    places = job.places.get(site, {})
    checked = check_all([(each, places.get(each.did)) for each in job.datasets])
    failures = [(dataset, problem) for dataset, (problem, _) in zip(job.datasets, checked) if problem]
    found = {dataset.did: paths for dataset, (_, paths) in zip(job.datasets, checked)}
    dids = [dataset.did for dataset, _ in failures]
    reads = []  # type: list[str]
    now = int(time.time())
    try:
        if failures and not job.stage_in:
            raise WrapperError("; ".join([f"{each.did} ({why})" for each, why in failures]), RETRY_STATUS)
        for dataset, _ in failures:
            begin = time.monotonic()
            path, source = fetch(dataset, job.stage_in, scratch)
            found[dataset.did] = [path]
            reads += read_report(dataset.did, job, source, site, path, time.monotonic() - begin)
        ready = build_dataset_folders(job, [found[each.did] for each in job.datasets], scratch)
    except WrapperError as miss:
        text = f"not readable at {site or 'a node without a site name'}: {miss!s:.2000}"
        if site:
            new = prepend_items("ChirpDataLocalityMisses", [miss_text(site, miss.dids or dids, now)], environ)
            text += set_job_attributes([*avoidance_attributes(site, environ, now), new], environ, "the miss")
        raise WrapperError(text, RETRY_STATUS) from miss
    if failures:
        values = fetched_attributes(site or "?", dids, reads, environ, now)
        print_error(f"fetched {', '.join(dids):.500}{set_job_attributes(values, environ, 'this')}")
    return ready


def start(options: "dict[str, str]", command: "list[str]", environ: "Environ") -> None:
    """Find the job's datasets, and replace this process by the job's *command*; put the site into *options*.

    Raises:
        WrapperError: the usage or an input file is wrong, or a dataset is not readable.
        Exception: the node failed.
    """
    scratch = environ.get("_CONDOR_SCRATCH_DIR") or os.getcwd()
    job = JobInputs(options.get("--paths") or os.path.join(scratch, "hydrator-paths.json"))
    site = options["--site"] = options.get("--site") or find_site(job.site_keys, environ)
    job.is_rapthor = "--parset" in options
    paths = locate_datasets(job, site, scratch, environ)
    pairs = list(zip(job.datasets, paths))[::-1]  # of two datasets with one name, the first counts
    variables = {name: path for dataset, path in pairs for name in dataset.variables}
    path_by_name = {name: path for each, path in pairs for name in (each.did, each.name, f"{each.name}/")}
    command_environment = build_environment(environ, site, variables)
    if job.is_rapthor:
        machine = read_ad(environ.get("_CONDOR_MACHINE_AD", ""))
        sets = [each for path in paths for each in measurement_sets(path)]
        path_by_name[options["--parset"]] = write_parset(options["--parset"], sets, scratch, machine)
        isolate(command_environment, scratch)
    pipelines = os.path.join(scratch, options["--keep"], "pipelines") if "--keep" in options else ""
    start_command(replace_arguments(command, variables, path_by_name), command_environment, pipelines)


def main(argv: "list[str]", environ: "dict[str, str]") -> int:
    """Replace this process by the job's command; return an exit status only if the command did not start."""
    options = {}  # type: dict[str, str]
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # else Python prints a traceback on SIGINT
        pairs, command = getopt.getopt(argv, "", ["paths=", "parset=", "site=", "keep="])
        options = dict(pairs)
        if not command:
            raise WrapperError("no command: give the job's command after the options")
        start(options, command, environ)
    except (getopt.GetoptError, WrapperError) as trouble:
        text, status = str(trouble), getattr(trouble, "status", 2)
    except Exception as trouble:  # noqa: BLE001 - after any error the job must stay in the queue
        text, status = f"this node cannot start the job: {describe(trouble)}", RETRY_STATUS
        with contextlib.suppress(Exception):
            site = options.get("--site") or find_site([], environ)
            if site:
                values = avoidance_attributes(site, environ, int(time.time()))
                text += set_job_attributes(values, environ, "the site to avoid")
    if status == RETRY_STATUS:
        text += f": the job ends with {status} to run elsewhere"
        with contextlib.suppress(Exception):
            # fetched and unpacked files may have filled the disk
            shutil.rmtree(os.path.join(environ["_CONDOR_SCRATCH_DIR"], FOLDER), ignore_errors=True)
            fill_missing_outputs(environ)
    print_error(text)
    return status


def describe(trouble: Exception) -> str:
    """Return the system's text for an OSError, else the exception's type and text."""
    if isinstance(trouble, OSError) and trouble.strerror:
        return f"{trouble.filename}: {trouble.strerror}" if trouble.filename else trouble.strerror
    return f"{type(trouble).__name__}: {trouble!s:.500}"


def print_error(text: str) -> None:
    """Write one line to stderr; ignore write errors."""
    line = "hydrator: " + re.sub(r"\s*[\n\r]\s*", " ", text) + "\n"
    with contextlib.suppress(Exception):
        os.write(2, line.encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    ended = RETRY_STATUS
    try:
        ended = main(sys.argv[1:], dict(os.environ))
    finally:
        os._exit(ended)  # Python's normal exit changes the status if stderr is not writable
