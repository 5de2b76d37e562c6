#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
""":"
# sh runs these lines only: they find a Python that works and start it in isolated mode. Without such a
# Python, or if sh fails, the job exits with 85 to run elsewhere. Python runs the code below.
trap 'exit 85' 0
shopt -s execfail 2>/dev/null  # bash as sh drops the trap at exec
HYDRATOR_LC_CTYPE=${LC_CTYPE-unset}
export HYDRATOR_LC_CTYPE
works='import contextlib, json, re, shlex, signal, sys; sys.exit(sys.version_info < (3, 6))'
for python in python3 /usr/libexec/platform-python; do
    command -v "$python" >/dev/null 2>&1 &&
        "$python" -I -S -c "$works" </dev/null >/dev/null 2>&1 && exec "$python" -I -S "$0" "$@"
done
echo "hydrator: no working python3, 3.6 or later, on PATH=$PATH: the job ends with 85 to run elsewhere" >&2
exit 85
":"""

__doc__ = """Job wrapper: find the job's datasets at the site where the job starts, then exec its command.

The wrapper is one file for Python 3.6 or later that needs the standard library only, because HTCondor copies
it to the node as the job's executable. ``--help`` lists the options.

A miss is a dataset that the wrapper cannot read. If the job has a stage-in command, the wrapper fetches the
dataset and writes its DID into the job attribute ``ChirpDataLocalityFetched``. If the slot ad lists the
dataset as AVAILABLE, the wrapper reports a miss too. It also writes the bytes and seconds of each fetch into
``ChirpDataLocalityReads``, if it knows from which site the data came.

Without a stage-in command the wrapper writes the miss into the job's ad (``ChirpDataLocalityMisses`` and two
more attributes, see hydrator/reconcile/misses.py) and exits with 85. Then the schedd tries another
site. The wrapper also exits with 85 after a failure of the node: a full disk, a read-only scratch folder, no
memory. The job avoids that site too.

If the wrapper itself fails, it prints one line on stderr. Exit status 2: wrong usage, which is wrong on every
node. 85: the job may run elsewhere. 126: the command is not executable. 127: the command does not exist.
"""

import contextlib
import errno
import json
import os
import re
import shlex
import signal
import sys
import time

TYPE_CHECKING = False  # `typing` costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from subprocess import Popen
    from tarfile import TarFile, TarInfo

VERSION = "0.1.0"
CONTRACT = 1
RETRY_STATUS = 85
"""Exit status with which the schedd tries the job elsewhere."""
SITE_KEYS = (
    "GLIDEIN_ResourceName",
    "GLIDEIN_CMSSite",
    "GLIDEIN_Site",
    "GLIDEIN_SiteResource",
    "SiteLocation",
)
CHECK_SECONDS = 120
"""Limit for the check of one file: a dead file server never answers."""
MOST_MEMBERS = 200000
"""Most files in one archive that the wrapper unpacks."""
STAGE_SECONDS = 86400
"""Limit for fetching one dataset."""
KEEP_AWAY_SECONDS = 3600
"""Time for which the job avoids sites where it missed; rounded up to ROUNDING_SECONDS, for autoclusters."""
ROUNDING_SECONDS = 300
MIN_REPORTED_BYTES = 100000000
"""Smallest fetched dataset whose rate the wrapper reports; a smaller one measures delays, not the link."""
MAX_VALUE_BYTES = 800
"""Longest value that the wrapper writes into the job's ad; HTCondor takes about 990 bytes with its name."""
MOST_MISSES = 10
STATUS_OF_EXEC = {
    errno.ENOENT: 127,
    errno.ENOTDIR: 127,
    errno.EACCES: 126,
    errno.EPERM: 126,
    errno.ENOEXEC: 126,
    errno.EISDIR: 126,
}
"""Exit status of a shell for a command that cannot start; other failures of exec may not occur elsewhere."""
ENDING_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
DID = re.compile(r"[A-Za-z0-9._/@=+~][A-Za-z0-9._/@=+~-]*:[A-Za-z0-9._:/@=+~-]+\Z")
"""The grammar of hydrator/domain/model.py, without a leading ``-``: that would be an option of the stage-in
command."""
OTHER_SERVICES = re.compile(r"DASK_SCHEDULER|PREFECT_(API|SERVER|PROFILE)")
"""Variables with which Rapthor would use a scheduler, a server or a port that other runs use too."""
FOLDER = "hydrator-inputs"
"""Folder in the scratch folder; HTCondor transfers no folder back that is not in the job's output list."""

HELP = """usage: job_start.py [--paths FILE] [--parset FILE] [--site NAME] [--] COMMAND [ARGUMENT...]

Finds the datasets of this job at the site where it runs, then becomes COMMAND.

  --paths FILE   the datasets and their paths at each site (hydrator-paths.json)
  --parset FILE  a parset from "hydrator submit rapthor": COMMAND gets a copy instead of FILE. In the copy
                 {input_ms} is a list of this site's paths, {scratch} is the scratch folder, {cores} and
                 {memory_gb} are the size of the slot ({cores:96}: at most 96). COMMAND also gets a home in
                 the scratch folder, and no address of another Dask scheduler or Prefect server
  --keep FOLDER  Rapthor's working folder, which the schedd keeps when the job is evicted: the next start
                 skips the finished operations in FOLDER and repeats the others
  --site NAME    this site; default: DataLocalitySite of the machine ad, then its GLIDEIN_... attributes
  --help, --version

COMMAND gets the paths of the datasets in $INPUT_1, $INPUT_2, ... and in $INPUT_<NAME>. NAME is a dataset's
name with _ for all characters except letters and digits. The wrapper also replaces each ARGUMENT that is a
dataset's name, its DID, or $INPUT_... by the path. $HYDRATOR_SITE has the name of the site.

For a dataset of several files the wrapper makes a folder with links to the files in the scratch folder. It
unpacks tar files there whose names match "unpack" in hydrator-paths.json.
"""


class WrapperError(Exception):
    """An error of the wrapper: its text is one line for stderr, ``status`` is the exit status."""

    status = 2


class RetryElsewhere(WrapperError):
    """A dataset is not readable on this node: exit so that the job may run at another site."""

    status = RETRY_STATUS


class BadArchive(RetryElsewhere):
    """An archive of dataset ``number`` (from 0) cannot be unpacked."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


class CommandNotStartable(WrapperError):
    """The job's command cannot be executed: exit with ``status``, 126 or 127, as a shell does."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Dataset:
    """One dataset of the job, from *entry* of hydrator-paths.json; *number* counts from 1."""

    def __init__(self, number: int, entry: "dict[str, object]") -> None:
        self.did = require_did(entry, "did")
        self.name = require_text(entry, "name") if entry.get("name") else self.did.partition(":")[2]
        variable = require_text(entry, "variable") if entry.get("variable") else "INPUT_%d" % number
        if not re.match(r"[A-Za-z_][A-Za-z0-9_]*\Z", variable):
            raise WrapperError("a dataset in hydrator-paths.json has no valid variable: write the file again")
        self.basename = os.path.basename(self.name.rstrip("/")) or self.did
        self.variables = tuple(
            dict.fromkeys(
                (variable, "INPUT_%d" % number, "INPUT_" + re.sub(r"[^A-Za-z0-9]", "_", self.basename))
            )
        )
        # use no character with a meaning in a shell: a stage-in command may pass the name to a shell
        base = re.sub(r"[^A-Za-z0-9._:@=+~-]", "_", self.basename).lstrip("-~")
        self.safe_basename = base if base not in ("", ".", "..") else "data"
        bad_size = WrapperError(
            "the size (bytes) of " + self.did + " in hydrator-paths.json is not a number of bytes"
        )
        self.bytes_total = require_size(entry.get("bytes"), bad_size)
        self.files, self.layouts = parse_files(entry, self.did)


class JobInputs:
    """The content of hydrator-paths.json: datasets, their paths at each site, and the stage-in command."""

    def __init__(self, path: str) -> None:
        content = read_json(path)
        if content.get("version") != CONTRACT:
            raise WrapperError(
                "%s has version %r, this wrapper reads version %d: submit the job again"
                % (path, content.get("version"), CONTRACT)
            )
        entries = content.get("datasets")
        sites = content.get("sites")
        if not isinstance(entries, list) or not isinstance(sites, dict):
            raise WrapperError(path + " has no list of datasets, or no table of sites: write the file again")
        self.datasets = [Dataset(at + 1, each) for at, each in enumerate(entries) if isinstance(each, dict)]
        if len(self.datasets) != len(entries) or not entries:
            raise WrapperError(
                path + " has no dataset, or a dataset that is not a table: write the file again"
            )
        self.sites = sites
        keys = content.get("site_keys")
        self.site_keys = [str(key) for key in keys] if isinstance(keys, list) else list(SITE_KEYS)
        stage_in = content.get("stage_in")
        self.stage_in = stage_in if isinstance(stage_in, str) and stage_in.strip() else ""
        unpack = content.get("unpack")
        self.unpack_patterns = [str(pattern) for pattern in unpack] if isinstance(unpack, list) else []
        seconds = content.get("stage_in_seconds")
        self.stage_seconds = seconds if isinstance(seconds, int) and seconds > 0 else STAGE_SECONDS

    def locations_at(self, site: str) -> "dict[str, object]":
        """Return, by DID, the location of each dataset at *site*, as :func:`parse_location` returns it."""
        places = self.sites.get(site)
        return (
            {did: parse_location(place) for did, place in places.items()} if isinstance(places, dict) else {}
        )


def parse_location(place: object) -> object:
    """Parse a *place* of hydrator-paths.json: a path, or pairs of a folder and the name of a layout.

    A layout of a dataset gives the path of each file relative to the folder.
    """
    if not isinstance(place, list):
        return to_native_path(place)
    if not all(isinstance(shelf, list) and len(shelf) == 2 for shelf in place):
        raise WrapperError(
            "a place in hydrator-paths.json is neither a path nor a list of folders: write the file again"
        )
    return [(to_native_path(prefix), str(layout)) for prefix, layout in place]


def parse_files(
    entry: "dict[str, object]", did: str
) -> "tuple[list[tuple[str, int | None]], dict[str, list[object]]]":
    """Return the files of a dataset with their sizes, and by layout name the relative paths of all files.

    Raises:
        WrapperError: a value is not valid, or a path leads out of the dataset's folder.
    """
    files = entry.get("files") or []
    layouts = entry.get("layouts") or {}
    bad = WrapperError("the files of %s in hydrator-paths.json are not valid: write the file again" % did)
    if not isinstance(files, list) or not isinstance(layouts, dict):
        raise bad
    parsed = []  # type: list[tuple[str, int | None]]
    for file in files:
        if not isinstance(file, list) or len(file) != 2 or not is_below(file[0]):
            raise bad
        parsed.append((to_native_path(file[0]), require_size(file[1], bad)))
    for paths in layouts.values():
        if not isinstance(paths, list) or len(paths) != len(parsed):
            raise bad
        if not all(path is None or is_below(path) for path in paths):
            raise bad
    return parsed, layouts


def require_size(value: object, problem: WrapperError) -> "int | None":
    """Return *value* if it is a number of bytes or None (unknown); else raise *problem*."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise problem


def is_below(path: object) -> bool:
    """Return whether *path* is a relative path without empty, ``.`` or ``..`` parts."""
    if not isinstance(path, str) or "\0" in path:
        return False
    return not any(part in ("", ".", "..") for part in path.split("/"))


def to_native_path(path: object) -> str:
    """Convert *path* so that, in any locale, Python opens the file whose name is *path* in UTF-8."""
    return os.fsdecode(str(path).encode("utf-8", "surrogateescape"))


def require_text(entry: "dict[str, object]", key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value or "\0" in value or "\n" in value:
        raise WrapperError("a dataset in hydrator-paths.json has no valid " + key + ": write the file again")
    return value


def require_did(entry: "dict[str, object]", key: str) -> str:
    """Return the DID under *key*; reject a DID that is not safe in a shell or has a part ``..``."""
    did = require_text(entry, key)
    if not DID.match(did) or ".." in re.split("[:/]", did):
        raise WrapperError("a dataset in hydrator-paths.json has no valid " + key + ": write the file again")
    return did


def read_json(path: str) -> "dict[str, object]":
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read().decode("utf-8"))
    except FileNotFoundError as trouble:
        raise WrapperError(
            "cannot read %s: %s: add the file to transfer_input_files" % (path, trouble.strerror)
        ) from trouble
    except ValueError as trouble:
        raise WrapperError("%s is not JSON: %s" % (path, trouble)) from trouble
    if not isinstance(content, dict):
        raise WrapperError(path + " is not a JSON object")
    return content


# ---------------------------------------------------------------- the site


def read_ad(path: str) -> "dict[str, str]":
    """Return the literals in the ad file *path* by name in lower case; empty if the file cannot be read."""
    ad = {}  # type: dict[str, str]
    try:
        with open(path, "rb") as file:
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ad
    for line in lines:
        name, equals, value = line.partition(" = ")
        if equals:
            ad[name.strip().lower()] = value.strip()
    return ad


def parse_strings(literal: str) -> "list[str]":
    """Return the strings in *literal*, a ClassAd string or list; leave out strings with a backslash."""
    return re.findall(r'"([^"\\]*)"', literal)


def find_site(requested_site: str, keys: "list[str]", environ: "dict[str, str]") -> str:
    """Return the site from --site, else from the machine ad, else from the environment; else empty."""
    if requested_site:
        return requested_site
    machine = read_ad(environ.get("_CONDOR_MACHINE_AD", ""))
    names = ["DataLocalitySite"] + [key for key in keys if key != "DataLocalitySite"]
    sites = ["".join(parse_strings(machine.get(name.lower(), ""))[:1]) for name in names]
    sites += [environ.get("HYDRATOR_SITE", "")] + [environ.get(name, "") for name in names]
    return next((site.strip() for site in sites if site.strip() not in ("", "None")), "")


# ---------------------------------------------------------------- checks of files


def unreadable_reason(path: str, size: "int | None", report_progress: "Callable[[], None]") -> str:
    """Return the reason why the dataset at *path* cannot be read; empty if it is readable.

    A dataset is readable if its file opens, or all files of its folder open. If *size* is not None, the
    file or the folder must also have at least *size* bytes.
    The function calls *report_progress* before each file of a folder.
    """
    try:
        if not os.path.isdir(path):
            size_found = readable_size(path)
        else:
            if not os.listdir(path):
                return "is empty"
            os.stat(os.path.join(path, "."))
            size_found = 0
            for folder, _, names in os.walk(path, onerror=raise_error):
                for name in names:
                    report_progress()
                    try:
                        size_found += readable_size(os.path.join(folder, name))
                    except OSError as trouble:
                        inside = os.path.relpath(os.path.join(folder, name), path)
                        return "has a file %s that cannot be read: %s" % (inside, trouble.strerror)
                why = table_problem(folder, names)
                if why:
                    inside = os.path.relpath(folder, path)
                    return "has a folder %s that %s" % (inside, why) if inside != "." else why
    except (OSError, ValueError) as trouble:
        return getattr(trouble, "strerror", None) or str(trouble)
    if size is not None and size_found < size:
        return "has only %d of %d bytes" % (size_found, size)
    return ""


def table_problem(folder: str, names: "list[str]") -> str:
    """Return why *folder*, with the files *names*, is a broken casacore table; empty if not broken.

    casacore keeps the description of each table in table.dat and the data in table.f0, table.f1, ...
    """
    is_table = any(re.match(r"table\.f\d+", name) for name in names)
    if "table.dat" in names:
        return "" if os.stat(os.path.join(folder, "table.dat")).st_size else "has an empty table.dat"
    return "has data of a casacore table but no table.dat" if is_table else ""


def raise_error(trouble: OSError) -> None:
    raise trouble


def readable_size(path: str) -> int:
    """Read one byte of the file *path* and return the file's size."""
    with open(path, "rb") as file:
        file.read(1)
        return os.fstat(file.fileno()).st_size


def locate_files(
    dataset: Dataset, shelves: "list[tuple[str, str]]", report_progress: "Callable[[], None]"
) -> "tuple[str, list[str]]":
    """Find each file of *dataset* in the first folder of *shelves* where the file is readable.

    *shelves* are pairs of a folder and the name of a layout. A file is readable if it opens and has the size
    from the catalogue. Return "" and the paths. If a file is not readable, return the reason and no paths.
    """
    paths = []  # type: list[str]
    missing = []  # type: list[str]
    for at, (_, size) in enumerate(dataset.files):
        reason = "hydrator-paths.json has no path for this file at this site"
        for prefix, layout in shelves:
            below = dataset.layouts.get(layout, [None] * len(dataset.files))[at]
            if below is None:
                continue
            report_progress()
            path = os.path.join(prefix, to_native_path(below))
            why = unreadable_file_reason(path, size)
            if not why:
                paths.append(path)
                break
            reason = path + ": " + why
        else:
            missing.append(reason)
    if missing:
        return "%d of the dataset's %d files cannot be read; the first: %s" % (
            len(missing),
            len(dataset.files),
            missing[0],
        ), []
    return "", paths


def unreadable_file_reason(path: str, size: "int | None") -> str:
    try:
        size_found = readable_size(path)
    except (OSError, ValueError) as trouble:
        return getattr(trouble, "strerror", None) or str(trouble)
    return "has %d of %d bytes" % (size_found, size) if size is not None and size_found != size else ""


def check_dataset(
    dataset: Dataset, place: object, report_progress: "Callable[[], None]"
) -> "tuple[str, list[str]]":
    """Return why *dataset* is not readable at *place* ("" if readable), and its paths at *place*."""
    if isinstance(place, str):
        why = unreadable_reason(place, dataset.bytes_total, report_progress)
        return (place + " " + why if why else ""), [place]
    if not dataset.files or not isinstance(place, list):
        return "hydrator-paths.json does not list the dataset's files", []
    return locate_files(dataset, place, report_progress)


def check_readable(
    candidates: "list[tuple[Dataset, object]]", seconds: float
) -> "list[tuple[str, list[str]]]":
    """Run :func:`check_dataset` in a child process for each candidate, a dataset and one of its places.

    A read from a dead file server never returns, so a child process reads the files. The child reports its
    progress about once a second. After *seconds* without a report, this process kills the child.
    """
    import select

    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            write_checks(writer, candidates)
        finally:
            os._exit(0)  # the child must not continue with the code of the parent below
    os.close(writer)
    pieces = []  # type: list[bytes]
    while select.select([reader], [], [], seconds)[0]:
        piece = os.read(reader, 65536)
        if not piece:
            break
        pieces.append(piece)
    os.close(reader)
    lines = [line for line in b"".join(pieces).split(b"\n")[:-1] if line]
    results = [parse_result(line) for line in lines]
    if len(results) < len(candidates):
        os.kill(child, signal.SIGKILL)
    else:
        os.waitpid(child, 0)
    return results + [("no answer within %g s" % seconds, [])] * (len(candidates) - len(results))


def write_checks(writer: int, candidates: "list[tuple[Dataset, object]]") -> None:
    """Check each candidate and write its result on one line; write an empty line once a second meanwhile."""
    last = [time.monotonic()]

    def report_progress() -> None:
        if time.monotonic() - last[0] > 1:
            last[0] = time.monotonic()
            os.write(writer, b"\n")

    for dataset, place in candidates:
        line = json.dumps(check_dataset(dataset, place, report_progress)).encode("ascii") + b"\n"
        while line:
            line = line[os.write(writer, line) :]


def parse_result(line: bytes) -> "tuple[str, list[str]]":
    why, paths = json.loads(line.decode("ascii"))
    return str(why), [str(path) for path in paths]


# ---------------------------------------------------------------- files into one folder


class Archive:
    """A tar file to unpack, which may have regular files and folders only.

    The wrapper rejects an archive with a link, a device, or a name that leads out of its folder.
    """

    def __init__(self, path: str, max_members: int = MOST_MEMBERS) -> None:
        self.path = path
        self.max_members = max_members

    def size(self) -> int:
        """Return the disk space in bytes that the unpacked archive needs, in blocks of 4096 bytes.

        Raises:
            RetryElsewhere: the archive is not a tar file that can be unpacked.
        """
        sizes = [member.size if member.isreg() else 1 for _, member in self._members()]
        if not sizes:
            raise RetryElsewhere("%s is empty" % self.path)
        return sum((size + 4095) // 4096 * 4096 for size in sizes)

    def unpack(self, folder: str) -> None:
        """Unpack the members of the archive into *folder*; never replace an existing file.

        Raises:
            RetryElsewhere: the archive is incomplete, or has two members of the same name.
        """
        import shutil

        try:
            for tar, member in self._members():
                path = os.path.join(folder, normalize_member_name(member.name))
                if member.isdir():
                    os.makedirs(path, exist_ok=True)
                    continue
                os.makedirs(os.path.dirname(path), exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with os.fdopen(os.open(path, flags, 0o666), "wb") as copy:
                    content = tar.extractfile(member)
                    if content is not None:
                        shutil.copyfileobj(content, copy, 1 << 20)
                    if copy.tell() != member.size:
                        raise RetryElsewhere(
                            "%s is incomplete: it ends within its member %r" % (self.path, member.name[:200])
                        )
        except (FileExistsError, NotADirectoryError) as trouble:
            raise RetryElsewhere(
                "%s has two members of the same name: %s" % (self.path, trouble.filename)
            ) from trouble

    def _members(self) -> "Iterator[tuple[TarFile, TarInfo]]":
        """Yield the open archive and the member, for each member of the archive.

        Raises:
            RetryElsewhere: the archive is incomplete, or has a member that must not be unpacked.
        """
        import tarfile

        try:
            with tarfile.open(self.path, "r:", encoding="utf-8", errors="surrogateescape") as tar:
                for _ in range(self.max_members):
                    # without this test, Python before 3.11 would seek to byte -1 of an empty archive
                    member = tar.next() if tar.offset else None
                    if member is None:
                        break
                    tar.members = []  # type: ignore[attr-defined]  # else tarfile keeps all members in memory
                    self._check_member(member)
                    if normalize_member_name(member.name) != ".":
                        yield tar, member
                else:
                    raise RetryElsewhere(
                        "%s has more than %d members, which is the limit" % (self.path, self.max_members)
                    )
                with open(self.path, "rb") as file:
                    file.seek(tar.offset)
                    # tarfile mistakes a damaged header for the end of the archive
                    if file.read(512) != b"\0" * 512:
                        raise RetryElsewhere(
                            "%s is damaged or breaks off at byte %d" % (self.path, tar.offset)
                        )
        except (tarfile.TarError, EOFError, ValueError) as trouble:
            raise RetryElsewhere(
                "%s is not a tar file, or is incomplete: %s" % (self.path, trouble)
            ) from trouble

    def _check_member(self, member: "TarInfo") -> None:
        name = normalize_member_name(member.name)
        if name == "." and member.isdir():
            return
        if not is_below(name) or member.size < 0:
            raise RetryElsewhere(
                "%s has a member that leads out of its folder: %r" % (self.path, member.name[:200])
            )
        if not (member.isreg() or member.isdir()):
            raise RetryElsewhere(
                "%s has a member that is neither file nor folder: %r" % (self.path, member.name[:200])
            )


def normalize_member_name(name: str) -> str:
    """Return a member's name without the ``./`` before and the ``/`` after the name, which tar adds."""
    while name.startswith("./") and len(name) > 2:
        name = name[2:]
    return to_native_path(name.rstrip("/") if name.strip("/") else name)


class FolderEntry:
    """One entry of a dataset's folder in the scratch folder.

    ``name`` is the entry's name in that folder. ``path`` is the source at the site. ``archive`` is the source
    as a tar file to unpack, or None if the wrapper makes a link to the source.
    """

    def __init__(self, name: str, path: str, is_packed: bool) -> None:
        self.name = name
        self.path = path
        self.archive = Archive(path) if is_packed else None


def list_entries(dataset: Dataset, paths: "list[str]", patterns: "list[str]") -> "list[FolderEntry]":
    """Return the entries for the folder of a dataset.

    *paths* are the paths of the dataset's files, or one path of a folder. A folder without archives becomes
    one entry. A folder with archives becomes one entry for each name in the folder.
    """
    if len(paths) == 1 and os.path.isdir(paths[0]):
        inside = sorted(os.listdir(paths[0]))
        if any(is_packed(os.path.join(paths[0], name), patterns) for name in inside):
            sources = [(name, os.path.join(paths[0], name)) for name in inside]
        else:
            sources = [(dataset.safe_basename, paths[0])]
    elif len(paths) == len(dataset.files):
        sources = [(name, path) for (name, _), path in zip(dataset.files, paths)]
    else:
        sources = [(os.path.basename(path), path) for path in paths]
    return [
        FolderEntry(name, path, is_packed(path, patterns) or is_packed(path, patterns, name))
        for name, path in sources
    ]


def is_packed(path: str, patterns: "list[str]", name: str = "") -> bool:
    """Return whether *path* is a file and *name* (default: the file's name) matches one of *patterns*."""
    import fnmatch

    base = os.path.basename(name or path).lower()
    return any(fnmatch.fnmatchcase(base, each.lower()) for each in patterns) and os.path.isfile(path)


def build_dataset_folders(job: JobInputs, paths_found: "list[list[str]]", scratch: str) -> "list[str]":
    """Return one path for each dataset: a folder in the scratch folder, or the dataset's original path.

    The folder has links to the files of the dataset, and the unpacked archives. A dataset that is a single
    file or folder, and not an archive, stays at its original path.

    Raises:
        BadArchive: an archive cannot be unpacked.
        OSError: the scratch folder has too little space.
    """
    pieces = [
        list_entries(dataset, paths, job.unpack_patterns) for dataset, paths in zip(job.datasets, paths_found)
    ]
    needed_bytes = 0
    for number, each in enumerate(pieces):
        with name_dataset(number):
            needed_bytes += sum(piece.archive.size() for piece in each if piece.archive)
    file_system = os.statvfs(scratch)
    free_bytes = file_system.f_bavail * file_system.f_frsize
    if needed_bytes > free_bytes:
        text = "unpacking needs %d bytes, but %s has only %d: request more disk" % (
            needed_bytes,
            scratch,
            free_bytes,
        )
        raise OSError(errno.ENOSPC, text)
    paths = []  # type: list[str]
    for number, each in enumerate(pieces):
        with name_dataset(number):
            paths.append(build_dataset_folder(number, job.datasets[number], each, scratch))
    return paths


@contextlib.contextmanager
def name_dataset(number: int) -> "Iterator[None]":
    """Convert a RetryElsewhere of the ``with`` block into a BadArchive of dataset *number* (from 0)."""
    try:
        yield
    except RetryElsewhere as miss:
        raise BadArchive(number, str(miss)) from miss


def build_dataset_folder(number: int, dataset: Dataset, entries: "list[FolderEntry]", scratch: str) -> str:
    """Build the folder with the *entries* of dataset *number* (from 0); return the dataset's path."""
    archives = [piece.archive for piece in entries if piece.archive]
    if len(entries) == 1 and not archives:
        return entries[0].path
    folder = make_folder(
        scratch, "%d-%s" % (number + 1, "unpacked" if archives else "files"), dataset.safe_basename
    )
    for archive in archives:  # unpack first: an archive could write through a link
        archive.unpack(folder)
    for piece in entries:
        if not piece.archive:
            link_entry(piece, folder)
    inside = os.listdir(folder)
    alone = os.path.join(folder, inside[0]) if archives and len(inside) == 1 else folder
    for each in measurement_sets(alone) if archives else ():
        why = unreadable_reason(each, None, lambda: None)
        if why:
            raise RetryElsewhere(
                "the measurement set %s, unpacked from %s, %s"
                % (os.path.basename(each), entries[0].path, why)
            )
    return alone


def link_entry(entry: FolderEntry, folder: str) -> None:
    """Make a symbolic link in *folder* to the source of *entry*."""
    path = os.path.join(folder, entry.name)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(os.path.abspath(entry.path), path)
    except (FileExistsError, NotADirectoryError) as trouble:
        raise RetryElsewhere("two files of the dataset cannot be in one folder: %s" % entry.name) from trouble


def measurement_sets(path: str) -> "list[str]":
    """Return the measurement sets in the folder *path*.

    If *path* is a measurement set itself, or contains no measurement set, return *path* alone.
    """
    if not os.path.isdir(path) or os.path.exists(os.path.join(path, "table.dat")):
        return [path]
    inside = [os.path.join(path, name) for name in sorted(os.listdir(path))]
    return [each for each in inside if os.path.exists(os.path.join(each, "table.dat"))] or [path]


# ---------------------------------------------------------------- fetching


def fetch(job: JobInputs, number: int, scratch: str) -> str:
    """Fetch dataset *number* (from 0) into the scratch folder; return its path there.

    The function replaces ``{path}`` in the stage-in command by a new, empty folder, and runs the command.
    Return the entry of that folder with the dataset's name, else the only entry, else the folder itself.

    The command finds a file name in $HYDRATOR_SOURCE_FILE, and may write there the site that it read from.

    Raises:
        RetryElsewhere: the command failed, took too long or wrote nothing.
    """
    dataset = job.datasets[number]
    folder = make_folder(scratch, str(number + 1), dataset.safe_basename)
    try:
        words = shlex.split(job.stage_in)
    except ValueError as trouble:
        raise RetryElsewhere(
            "%s was not fetched: the stage-in command cannot be parsed: %s" % (dataset.did, trouble)
        ) from trouble
    status = run(
        [word.replace("{did}", dataset.did).replace("{path}", folder) for word in words],
        job.stage_seconds,
        dict(os.environ, HYDRATOR_SOURCE_FILE=source_file(scratch, number)),
    )
    if status:
        raise RetryElsewhere(
            "%s was not fetched: the stage-in command %s %s" % (dataset.did, words[0], status)
        )
    if os.path.isfile(folder):
        return folder
    names = os.listdir(folder) if os.path.isdir(folder) else []
    for name in (dataset.safe_basename, dataset.basename, dataset.did.partition(":")[2]):
        if os.path.basename(name) in names:
            return os.path.join(folder, os.path.basename(name))
    if not names:
        raise RetryElsewhere(
            "%s was not fetched: the stage-in command %s left nothing in {path}" % (dataset.did, words[0])
        )
    return os.path.join(folder, names[0]) if len(names) == 1 else folder


def fetch_all(
    job: JobInputs, numbers: "Iterable[int]", site: str, scratch: str
) -> "tuple[dict[int, str], list[str]]":
    """Fetch the datasets *numbers* to *site*; return their paths by number, and a report for each rate.

    Raises:
        RetryElsewhere: a dataset was not fetched.
    """
    paths = {}  # type: dict[int, str]
    reads = []  # type: list[str]
    for number in numbers:
        begin = time.monotonic()
        paths[number] = fetch(job, number, scratch)
        seconds = time.monotonic() - begin
        with contextlib.suppress(OSError, ValueError):
            source = find_source(job, number, site, scratch)
            reads += read_texts(source, site, size_on_disk(paths[number]), seconds, int(time.time()))
    return paths, reads


def source_file(scratch: str, number: int) -> str:
    """Return the file where the stage-in command may write the site that dataset *number* came from."""
    return os.path.join(scratch, FOLDER, ".source-%d" % (number + 1))


def find_source(job: JobInputs, number: int, site: str, scratch: str) -> str:
    """Return the site that dataset *number* came from; empty if it is unknown.

    That is the site in the stage-in command's file, else the only other site that has the dataset.
    """
    with contextlib.suppress(OSError):
        with open(source_file(scratch, number), "rb") as file:
            named = file.read(200).decode("utf-8", "replace").strip()
        if named:
            return named
    did = job.datasets[number].did
    others = [other for other in job.sites if other != site and did in job.locations_at(other)]
    return others[0] if len(others) == 1 else ""


def size_on_disk(path: str) -> int:
    """Return the bytes of the file *path*, or of all files below the folder *path*."""
    if not os.path.isdir(path):
        return os.stat(path).st_size
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sum(os.lstat(file).st_size for file in files)


def read_texts(source: str, site: str, size: int, seconds: float, now: int) -> "list[str]":
    """Return the report ``SOURCE:BYTES:SECONDS:WHEN:SITE`` in a list; empty if it would say nothing."""
    names = [to_plain_text(source), to_plain_text(site)]
    if size < MIN_REPORTED_BYTES or seconds <= 0 or not all(names) or names[0] == names[1]:
        return []
    if any(":" in name for name in names):
        return []
    return ["%s:%d:%.1f:%d:%s" % (names[0], size, max(seconds, 0.1), now, names[1])]


def make_folder(scratch: str, *names: str) -> str:
    """Make nested folders *names* below FOLDER in *scratch*; raise OSError if *scratch* does not exist."""
    os.stat(scratch)
    folder = os.path.join(scratch, FOLDER, *names)
    os.makedirs(folder, exist_ok=True)
    return folder


def run(words: "list[str]", seconds: float, environ: "dict[str, str]") -> str:
    """Run the command *words* with its output on stderr; return the reason of a failure, empty on success.

    The command has its own process group. A signal to this process, or the time limit, ends that group.
    """
    import subprocess

    numbers = {getattr(signal, name) for name in ENDING_SIGNALS}
    # block signals until this process can pass signals on to the child; the child unblocks them at once
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    before = {}  # type: dict[int, object]
    try:
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,
                env=environ,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers),  # noqa: PLW1509 - this process has one thread
            )
        except (OSError, ValueError, subprocess.SubprocessError) as trouble:
            return "cannot be started: %s" % (getattr(trouble, "strerror", None) or trouble)
        before = {number: signal.signal(number, build_kill_handler(child)) for number in numbers}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        try:
            status = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return "took over %g s" % seconds
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    if status < 0:
        return "was ended by signal %d" % -status
    return "ended with status %d" % status if status else ""


def build_kill_handler(child: "Popen[bytes]") -> "Callable[[int, object], None]":
    """Return a signal handler that sends the signal to the process group of *child*, then to this process."""

    def end(number: int, _frame: object) -> None:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, number)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    return end


# ---------------------------------------------------------------- reports in the job's ad


def report_misses(site: str, dids: "list[str]", environ: "dict[str, str]", now: int) -> None:
    """Write into the job's ad that *dids* are not readable at *site* (a miss).

    If the write fails, the schedd has only the exit status 85. With this status, the job's Requirements
    exclude the site of the last run.
    """
    miss = prepend_item("ChirpDataLocalityMisses", miss_text(site, dids, now), environ)
    set_job_attributes([*avoidance_attributes(site, environ, now), miss], environ)


def avoidance_attributes(site: str, environ: "dict[str, str]", now: int) -> "list[tuple[str, str]]":
    """Return the attributes with which the job avoids *site* for KEEP_AWAY_SECONDS."""
    until = (now + KEEP_AWAY_SECONDS + ROUNDING_SECONDS - 1) // ROUNDING_SECONDS * ROUNDING_SECONDS
    return [
        prepend_item("ChirpDataLocalityMissed", to_plain_text(site), environ),
        ("ChirpDataLocalityMissedUntil", str(until)),
    ]


def prepend_item(attribute: str, item: str, environ: "dict[str, str]") -> "tuple[str, str]":
    """Return *attribute* and its new value: *item*, then the other strings of its list in the job's ad."""
    return prepend_items(attribute, [item], environ)


def prepend_items(attribute: str, items: "list[str]", environ: "dict[str, str]") -> "tuple[str, str]":
    """Return *attribute* and its new value: *items*, then the other strings of its list in the job's ad."""
    ad = read_ad(environ.get("_CONDOR_JOB_AD", ""))
    others = [old for old in parse_strings(ad.get(attribute.lower(), "")) if old not in items]
    return attribute, format_bounded_list([*items, *others])


def report_fetched(
    site: str, dids: "list[str]", reads: "list[str]", environ: "dict[str, str]", now: int
) -> None:
    """Write the fetched *dids*, and *reads* from :func:`read_texts`, into the job's ad.

    If the slot ad lists a fetched DID as AVAILABLE, the slot ad is wrong: write this DID as a miss too.
    """
    states = read_ad(environ.get("_CONDOR_MACHINE_AD", "")).get("datasetstates", "")
    advertised = [did for did in dids if is_advertised_available(states, did)]
    values = [prepend_item("ChirpDataLocalityFetched", miss_text(site, dids, now), environ)]
    if advertised:
        values.append(prepend_item("ChirpDataLocalityMisses", miss_text(site, advertised, now), environ))
    if reads:
        values.append(prepend_items("ChirpDataLocalityReads", reads, environ))
    set_job_attributes(values, environ)


def is_advertised_available(states: str, did: str) -> bool:
    """Return whether *states*, the DatasetStates of a slot ad, lists *did* as AVAILABLE."""
    return re.search(r"(?:^|[\[;\s])'" + re.escape(did) + r"'\s*=\s*\"AVAILABLE\"", states) is not None


def set_job_attributes(values: "list[tuple[str, str]]", environ: "dict[str, str]") -> None:
    """Set the attributes *values* in the job's ad; stop at the first failure, and raise no error."""
    with contextlib.suppress(Exception):
        for name, value in values:
            if not (set_with_chirp_tool(name, value, environ) or set_with_chirp_socket(name, value, environ)):
                return


def miss_text(site: str, dids: "list[str]", now: int) -> str:
    """Return ``WHEN DID,DID,+N SITE`` of up to 650 bytes, with at least one DID.

    WHEN is the Unix time in seconds. N is the number of DIDs that are left out for lack of room.
    """
    count = 1
    max_chars = 650 - len(to_plain_text(site))
    while count < len(dids) and len(",".join(dids[: count + 1])) < max_chars:
        count += 1
    more = ["+%d" % (len(dids) - count)] if count < len(dids) else []
    return "%d %s %s" % (now, ",".join(dids[:count] + more), to_plain_text(site))


def to_plain_text(text: str) -> str:
    """Return *text* without the characters that need an escape in a ClassAd string."""
    return "".join(letter for letter in text if " " <= letter <= "~" and letter not in '"\\')[:100]


def format_bounded_list(items: "list[str]") -> str:
    """Return a ClassAd list of the first *items*, at most MOST_MISSES and in MAX_VALUE_BYTES bytes."""
    first = items[:MOST_MISSES]
    while len(first) > 1 and sum(len(item) + 3 for item in first) + 2 > MAX_VALUE_BYTES:
        first.pop()
    return "{" + ",".join(['"' + item + '"' for item in first]) + "}"


def set_with_chirp_tool(name: str, value: str, environ: "dict[str, str]") -> bool:
    """Set a job attribute with ``condor_chirp`` from PATH or HTCondor's folders; return True on success."""
    import shutil
    import subprocess

    def quietly(*words: str) -> "tuple[int, str]":
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return 1, ""
        return done.returncode, done.stdout.decode("utf-8", "replace").strip()

    path = environ.get("PATH", os.defpath)
    binaries = environ.get("_CONDOR_BIN", "")
    places = [path, binaries]
    places += [os.path.join(binaries, "..", "libexec", each) for each in ("condor", "")] if binaries else []
    tool = shutil.which("condor_chirp", path=os.pathsep.join(places))
    if not tool:
        config_tool = shutil.which("condor_config_val", path=os.pathsep.join([path, binaries]))
        libexec = quietly(config_tool, "LIBEXEC")[1] if config_tool else ""
        tool = shutil.which("condor_chirp", path=libexec) if libexec else None
    return bool(tool) and not quietly(tool or "", "set_job_attr_delayed", name, value)[0]


def set_with_chirp_socket(name: str, value: str, environ: "dict[str, str]") -> bool:
    """Set a job attribute by the Chirp protocol, for images without condor_chirp; return True on success.

    A request is one line of words; a backslash escapes special characters. The answer is one line with a
    number, 0 or more on success.
    """
    import socket

    def request(stream: "object", *words: str) -> bool:
        line = " ".join([re.sub(r"([\\ \t\r\n])", r"\\\1", word) for word in words]) + "\n"
        stream.write(line.encode("utf-8"))  # type: ignore[attr-defined]
        stream.flush()  # type: ignore[attr-defined]
        return int(stream.readline(80) or b"-1") >= 0  # type: ignore[attr-defined]

    default_file = os.path.join(environ.get("_CONDOR_SCRATCH_DIR", "."), ".chirp.config")
    try:
        with open(environ.get("_CONDOR_CHIRP_CONFIG", default_file)) as file:
            host, port, cookie = file.read().split()[:3]
        connection = socket.create_connection((host, int(port)), 30)
        with connection, connection.makefile("rwb") as stream:
            return request(stream, "cookie", cookie) and request(stream, "set_job_attr_delayed", name, value)
    except (OSError, ValueError):
        return False


def fill_missing_outputs(environ: "dict[str, str]") -> None:
    """Create a Unix socket in place of each missing file of transfer_output_files.

    If an output file is missing, HTCondor holds the job, and the schedd cannot try another site. HTCondor's
    file transfer skips sockets, so a socket overwrites no file at the submit host. For a missing ``folder/``
    the function makes an empty folder.
    """
    import socket

    scratch = environ.get("_CONDOR_SCRATCH_DIR", "")
    outputs = parse_strings(read_ad(environ.get("_CONDOR_JOB_AD", "")).get("transferoutput", ""))
    if not scratch or not outputs:
        return
    for name in re.split(r"\s*,\s*", outputs[0].strip()):
        path = os.path.join(scratch, name)
        if not name or os.path.lexists(path.rstrip("/")):
            continue
        try:
            if name.endswith("/"):
                os.makedirs(path)
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.chdir(scratch)
            with socket.socket(socket.AF_UNIX) as gap:
                gap.bind(".hydrator-gap")  # a short name: the path of a socket has at most 107 bytes
            os.rename(".hydrator-gap", path)
        except OSError:
            continue


# ---------------------------------------------------------------- parset and environment of the command


def fill_parset(
    parset: bytes, paths: "list[str]", scratch: str, machine: "dict[str, str]"
) -> "tuple[bytes, list[str]]":
    """Return *parset* with the values of this site and slot, and ``NAME = OLD is now NEW`` for each limit.

    ``{input_ms}`` becomes a list of *paths*, ``{scratch}`` the scratch folder. ``{cores}`` and
    ``{memory_gb}`` become the size of the slot with the ad *machine*. ``{cores:96}`` is at most 96;
    ``{cores/8:96}`` is an eighth of the cores, at most 96 and at least 1.

    Raises:
        WrapperError: the parset has no ``{input_ms}``.
    """
    import glob

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
            changes.append("%s = %d is now %d" % (option.decode(), limit, value))
        elif limit:
            value = limit
        return b"%s = %d" % (option, value)

    sized_option = rb"^(\w+) = \{(cores|memory_gb)(?:/(\d+))?(?::(\d+))?\}$"
    items = ", ".join(json.dumps(glob.escape(path), ensure_ascii=False) for path in paths)
    sets = ("[" + items + "]").encode("utf-8", "surrogateescape")
    text = re.sub(sized_option, fill_size, parset, flags=re.MULTILINE)
    return text.replace(b"{scratch}", os.fsencode(scratch)).replace(b"{input_ms}", sets), changes


def parse_whole_number(text: "str | None") -> int:
    """Return *text* as a whole number, rounded down; 0 if it is not a number."""
    match = re.match(r"\s*(\d{1,9})(\.\d*)?\s*\Z", text or "")
    return int(match.group(1)) if match else 0


def replace_arguments(words: "list[str]", datasets: "list[Dataset]", paths: "list[str]") -> "list[str]":
    """Return the command *words* with paths in place of datasets' names, DIDs and ``$INPUT_...``."""
    path_by_name = {}  # type: dict[str, str]
    for dataset, path in zip(datasets, paths):
        for name in (dataset.did, dataset.name, dataset.name.rstrip("/")):
            path_by_name.setdefault(name, path)
    variables = path_variables(datasets, paths)

    def one(word: str) -> str:
        if word in path_by_name:
            return path_by_name[word]
        if re.search(r"\s", word):
            return word  # the word is a shell script: the shell expands the variables
        return re.sub(
            r"\$(?:\{(INPUT_\w+)\}|(INPUT_\w+))",
            lambda match: variables.get(match.group(1) or match.group(2), match.group(0)),
            word,
        )

    return words[:1] + [one(word) for word in words[1:]]


def path_variables(datasets: "list[Dataset]", paths: "list[str]") -> "dict[str, str]":
    """Return the path for each ``INPUT_...`` variable; datasets with the same variable: the first path."""
    return {
        name: path for dataset, path in reversed(list(zip(datasets, paths))) for name in dataset.variables
    }


def build_environment(
    environ: "dict[str, str]", site: str, datasets: "list[Dataset]", paths: "list[str]"
) -> "dict[str, str]":
    """Return the command's environment: *environ*, the datasets' variables and HYDRATOR_SITE."""
    # exec rejects a variable with an empty name
    variables = {name: text for name, text in environ.items() if name}
    variables.update(path_variables(datasets, paths))
    variables["HYDRATOR_SITE"] = site
    # Python sets LC_CTYPE if no locale is set: restore the job's value
    job_lc_ctype = variables.pop("HYDRATOR_LC_CTYPE", None)
    if job_lc_ctype == "unset":
        variables.pop("LC_CTYPE", None)
    elif job_lc_ctype is not None:
        variables["LC_CTYPE"] = job_lc_ctype
    return variables


def isolate(environ: "dict[str, str]", scratch: str) -> None:
    """Give a Rapthor run a home below *scratch*; remove the services of another machine from *environ*."""
    removed = sorted(filter(OTHER_SERVICES.match, environ))
    if removed:  # not their values: one may be a password
        print_error("the run starts its own services, without the variables %s" % ", ".join(removed))
    for name in removed:
        del environ[name]
    environ["HOME"] = make_folder(scratch, "home")
    environ["PREFECT_HOME"] = make_folder(scratch, "home", ".prefect")


def exec_command(words: "list[str]", environ: "dict[str, str]") -> None:
    """Replace this process by the command *words*; before that, reset the two signals that Python ignores."""
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(words[0], words, environ)
    except OSError as trouble:
        raise_if_not_startable(words, trouble)
        raise


def raise_if_not_startable(words: "list[str]", trouble: OSError) -> None:
    """Raise CommandNotStartable if *trouble* is the fault of the command, not of the node."""
    status = STATUS_OF_EXEC.get(trouble.errno or 0)
    if status is not None:
        raise CommandNotStartable(status, "cannot start %s: %s" % (words[0], trouble.strerror)) from trouble


# ---------------------------------------------------------------- eviction


def run_to_end(words: "list[str]", environ: "dict[str, str]", pipelines: str) -> None:
    """Run the command *words*, clean up *pipelines*, then exit with the command's status or signal.

    An eviction begins with a signal, which this process passes on to the command. HTCondor then transfers
    Rapthor's working folder to the schedd, and from there to the next start of the job. If the command ends
    without an eviction, that folder is the job's output. The function then removes *pipelines* from
    that folder, because *pipelines* has copies of the data.

    Raises:
        CommandNotStartable: the command cannot be executed.
    """
    import shutil

    operations = drop_unfinished(pipelines)
    if operations:
        print_error("the job was evicted before: Rapthor continues after %s" % ", ".join(operations))
    signals, status = run_and_forward_signals(words, environ)
    if signals:
        drop_unfinished(pipelines)
    else:
        shutil.rmtree(pipelines, ignore_errors=True)
    if status < 0:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


def run_and_forward_signals(words: "list[str]", environ: "dict[str, str]") -> "tuple[list[int], int]":
    """Run the command *words*, pass signals on to the command; return the signals and the exit status."""
    import subprocess

    signals = []  # type: list[int]
    children = []  # type: list[Popen[bytes]]

    def forward(number: int, _frame: object) -> None:
        signals.append(number)
        for child in children:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, number)

    for name in ENDING_SIGNALS:
        signal.signal(getattr(signal, name), forward)
    try:
        children.append(subprocess.Popen(words, env=environ, start_new_session=True))
    except OSError as trouble:
        raise_if_not_startable(words, trouble)
        raise
    for number in signals:  # signals that arrived before this process started the command
        os.killpg(children[0].pid, number)
    return signals, children[0].wait()


def drop_unfinished(pipelines: str) -> "list[str]":
    """Remove the folders of unfinished operations in *pipelines*; return the names of finished operations.

    Rapthor marks a finished operation by a file ``.done`` and skips that operation. An unfinished operation
    cannot continue: its Toil files have paths in the scratch folder of the earlier start.
    """
    import shutil

    names = sorted(os.listdir(pipelines)) if os.path.isdir(pipelines) else []
    done = [name for name in names if os.path.isfile(os.path.join(pipelines, name, ".done"))]
    for name in names:
        if name not in done:
            shutil.rmtree(os.path.join(pipelines, name), ignore_errors=True)
    return done


# ---------------------------------------------------------------- main


def parse_arguments(argv: "list[str]") -> "tuple[dict[str, str], list[str]]":
    """Return the wrapper's options and the command; raise WrapperError for wrong usage."""
    options = {"paths": "", "parset": "", "site": "", "keep": ""}
    at = 0
    while at < len(argv) and argv[at].startswith("--"):
        name, equals, value = argv[at][2:].partition("=")
        at += 1
        if not name:
            break
        if name not in options:
            raise WrapperError("unknown option --%s: see --help" % name)
        if not equals:
            value, at = "".join(argv[at : at + 1]), at + 1
        if not value:
            raise WrapperError("--%s needs a value: see --help" % name)
        options[name] = value
    if at >= len(argv):
        raise WrapperError("no command: give the job's command after the options, see --help")
    return options, argv[at:]


def find_paths_file(requested_path: str, scratch: str) -> str:
    """Return the file of --paths, else hydrator-paths.json in the working or the scratch folder."""
    if requested_path:
        return requested_path
    file_name = "hydrator-paths.json"
    scratch_file = os.path.join(scratch, file_name)
    return file_name if os.path.exists(file_name) or not os.path.exists(scratch_file) else scratch_file


def locate_datasets(job: JobInputs, site: str, scratch: str, environ: "dict[str, str]") -> "list[str]":
    """Return one path for each dataset: the data at the site, or else a fetched copy.

    For a dataset of several files, the path is a folder with links to the files.

    Raises:
        RetryElsewhere: a dataset is not readable and was not fetched; the job's ad now has the miss.
    """
    locations = job.locations_at(site)
    candidates = [(each, locations[each.did]) for each in job.datasets if each.did in locations]
    answers = iter(check_readable(candidates, CHECK_SECONDS) if candidates else [])
    paths_by_number = []  # type: list[list[str]]
    failures = {}  # type: dict[int, str]
    for at, dataset in enumerate(job.datasets):
        why, paths = (
            next(answers)
            if dataset.did in locations
            else ("hydrator-paths.json has no path for this dataset", [])
        )
        paths_by_number.append(paths)
        if why:
            failures[at] = why
    reasons = ["%s (%s)" % (job.datasets[at].did, why) for at, why in failures.items()]
    missing = list(failures)
    try:
        if failures and not job.stage_in:
            raise RetryElsewhere("; ".join(reasons))
        fetched, reads = fetch_all(job, failures, site, scratch)
        for at, path in fetched.items():
            paths_by_number[at] = [path]
        ready = build_dataset_folders(job, paths_by_number, scratch)
    except RetryElsewhere as miss:
        if isinstance(miss, BadArchive):
            missing = [miss.number]
            miss.args = ("%s (%s)" % (job.datasets[miss.number].did, miss),)
        if site:
            report_misses(site, [job.datasets[at].did for at in missing], environ, int(time.time()))
        raise RetryElsewhere(
            "not readable at %s: %s" % (site or "a node without a site name", str(miss)[:2000])
        ) from miss
    if failures:
        dids = [job.datasets[at].did for at in failures]
        report_fetched(site or "?", dids, reads, environ, int(time.time()))
    return ready


def start(argv: "list[str]", environ: "dict[str, str]") -> None:
    """Find the job's datasets, and replace this process by the job's command.

    Raises:
        WrapperError: the usage or an input file is wrong, or a dataset is not readable.
        Exception: the node failed; the job's ad now lists the site among the sites to avoid.
    """
    options, command = parse_arguments(argv)
    site = options["site"]
    try:
        scratch = environ.get("_CONDOR_SCRATCH_DIR") or os.getcwd()
        job = JobInputs(find_paths_file(options["paths"], scratch))
        site = find_site(site, job.site_keys, environ)
        paths = locate_datasets(job, site, scratch, environ)
        words = replace_arguments(command, job.datasets, paths)
        if options["parset"]:
            machine = read_ad(environ.get("_CONDOR_MACHINE_AD", ""))
            sets = [each for path in paths for each in measurement_sets(path)]
            copy = write_parset_copy(options["parset"], sets, scratch, machine)
            words = words[:1] + [copy if word == options["parset"] else word for word in words[1:]]
        command_environment = build_environment(environ, site, job.datasets, paths)
        if options["parset"]:
            isolate(command_environment, scratch)
        if options["keep"]:
            run_to_end(words, command_environment, os.path.join(scratch, options["keep"], "pipelines"))
        exec_command(words, command_environment)
    except WrapperError:
        raise
    except Exception:
        with contextlib.suppress(Exception):
            site = site or find_site("", list(SITE_KEYS), environ)
            if site:
                set_job_attributes(avoidance_attributes(site, environ, int(time.time())), environ)
        raise


def write_parset_copy(parset: str, paths: "list[str]", scratch: str, machine: "dict[str, str]") -> str:
    """Write a copy of *parset* for this site and the slot with the ad *machine*; return its path."""
    copy = os.path.join(scratch, FOLDER, os.path.basename(parset))
    try:
        with open(parset, "rb") as file:
            content, changes = fill_parset(file.read(), paths, scratch, machine)
        if changes:
            print_error("%s does not fit this slot: %s" % (parset, ", ".join(changes)))
        make_folder(scratch)
        with open(copy, "wb") as file:
            file.write(content)
    except OSError as trouble:
        text = "cannot copy the parset %s: %s" % (parset, trouble.strerror)
        # a parset that does not exist is missing on every node: no retry; other errors are of this node only
        if isinstance(trouble, FileNotFoundError) and not os.path.lexists(parset):
            raise WrapperError(text) from trouble
        raise OSError(trouble.errno, text) from trouble
    return copy


def main(argv: "list[str]", environ: "dict[str, str]") -> int:
    """Replace this process by the job's command; return an exit status only if the command did not start."""
    if argv[:1] in (["--help"], ["--version"]):
        print(HELP if argv[0] == "--help" else "hydrator job start %s, contract %d" % (VERSION, CONTRACT))
        sys.stdout.flush()
        return 0
    try:
        open_closed_streams()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # else Python prints a traceback on SIGINT
        start(argv, environ)
    except WrapperError as trouble:
        text, status = str(trouble), trouble.status
    except Exception as trouble:  # noqa: BLE001 - after any error the job must stay in the queue
        text, status = "this node cannot start the job: " + describe_error(trouble), RETRY_STATUS
    print_error(text + (": the job ends with %d to run elsewhere" % status if status == RETRY_STATUS else ""))
    if status == RETRY_STATUS:
        with contextlib.suppress(Exception):
            remove_fetched(environ)
            fill_missing_outputs(environ)
    return status


def open_closed_streams() -> None:
    """Open /dev/null if stdin, stdout or stderr is closed, so that no other file gets that descriptor."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # open() uses the lowest free descriptor


def describe_error(trouble: Exception) -> str:
    """Return the system's text for an OSError, else the exception's type, text and line number."""
    if isinstance(trouble, OSError) and trouble.strerror:
        return "%s%s" % ("%s: " % trouble.filename if trouble.filename else "", trouble.strerror)
    frame = trouble.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return "%s: %s (line %d)" % (type(trouble).__name__, str(trouble)[:500], frame.tb_lineno if frame else 0)


def print_error(text: str) -> None:
    """Write one line to stderr; ignore write errors."""
    line = "hydrator: " + re.sub(r"\s*[\n\r]\s*", " ", text) + "\n"
    with contextlib.suppress(Exception):
        os.write(2, line.encode("utf-8", "backslashreplace"))


def remove_fetched(environ: "dict[str, str]") -> None:
    """Remove the fetched and unpacked files: these files may have filled the disk."""
    import shutil

    scratch = environ.get("_CONDOR_SCRATCH_DIR", "")
    if scratch:
        shutil.rmtree(os.path.join(scratch, FOLDER), ignore_errors=True)


if __name__ == "__main__":
    ended = RETRY_STATUS
    try:
        ended = main(sys.argv[1:], dict(os.environ))
    finally:
        os._exit(ended)  # Python's normal exit changes the status if stderr is not writable
