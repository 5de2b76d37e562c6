"""A GlideinWMS match policy: request pilots at the sites that have all datasets of a job.

For a group of frontend.xml: <match ... policy_file="/etc/gwms-frontend/locality_policy.py">. It reads the
file that the daemon keeps (publish.sites); docs/how-to/operate/pilots.md says how both are set up. It needs nothing but
Python's standard library.

Jobs that name no datasets match every entry, and every job does when the file is missing, torn, of
another version or too old: pilots are then requested as they were without this policy. An entry that
says no site, or one that the file does not know or has too old facts of, gets no pilots for jobs that name
datasets: their slots could not match there.

GlideinWMS calls match() for every entry and every kind of job, in a new process each cycle. So the file
is read once a process, and each list of datasets is looked up once.
"""

import json
import logging
import os
import time

PATH = os.environ.get("HYDRATOR_SITES_BY_DATASET", "/srv/frontend/sites_by_dataset.json")
"""Where the daemon, or whoever copies it here, puts the file: change it."""

SITE_KEYS = (
    "GLIDEIN_ResourceName",
    "GLIDEIN_CMSSite",
    "GLIDEIN_Site",
    "GLIDEIN_SiteResource",
    "SiteLocation",
    "EntryName",
)
"""Where an entry says its site, the first that it has: as the hook looks (its --site-keys), and then the
name of the entry, which is a pilot's GLIDEIN_Site where the entry has none."""

VERSION = 1

factory_query_expr = "True"
job_query_expr = "True"
factory_match_attrs = {
    key: {"type": "string", "comment": "the site of this entry"} for key in SITE_KEYS if key != "EntryName"
}
job_match_attrs = {"RequiredDatasetsCSV": {"type": "string", "comment": "the datasets this job reads"}}

_read = []  # what the file tells, or None where it tells nothing; empty until it was read
_places = {}  # by list of datasets, the sites that have them all; None where nothing is known


def match(job, glidein):
    """Whether a pilot of this entry could run this job beside its data."""
    wanted = job.get("RequiredDatasetsCSV")
    if not wanted or not isinstance(wanted, str):
        return True
    try:
        places = _places[wanted]
    except KeyError:
        places = _places[wanted] = _sites_with(wanted)
    if places is None:
        return True
    attrs = glidein["attrs"]
    for key in SITE_KEYS:
        site = attrs.get(key)
        if site:
            return site in places
    return False


def _sites_with(wanted):
    """The sites that have every dataset of *wanted*, commas between them; None where nothing is known."""
    if not _read:
        _read.append(_told())
    if _read[0] is None:
        return None
    sites, datasets = _read[0]
    each = [datasets.get(did, ()) for did in wanted.split(",") if did]
    return sites.intersection(*each) if each else None


def _told():
    """The sites whose facts are young enough, and by dataset the sites that have it.

    None, with a line in the log, when the file tells nothing.
    """
    try:
        with open(PATH, encoding="utf-8") as file:
            document = json.load(file)
        if document["version"] != VERSION:
            raise ValueError("it is of version {}, this policy reads {}".format(document["version"], VERSION))
        now = time.time()
        late = now - document["valid_until"]
        if late > 0:
            raise ValueError("it was valid until {:.0f} s ago: does the daemon run?".format(late))
        oldest = now - document["max_age"]
        sites = frozenset(site for site, row in document["sites"].items() if row["as_of"] >= oldest)
        datasets = document["datasets"]
        if not all(isinstance(places, list) for places in datasets.values()):
            raise ValueError("its datasets are not lists of sites")
        return sites, datasets
    except Exception as trouble:
        _log().warning("%s tells nothing, all entries match: %s: %s", PATH, type(trouble).__name__, trouble)
        return None


def _log():
    """The log of the frontend's group, where there is one: GlideinWMS's own shows no other."""
    try:
        from glideinwms.lib import logSupport

        return logSupport.log or logging.getLogger(__name__)
    except Exception:
        return logging.getLogger(__name__)
