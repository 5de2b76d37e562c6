# SPDX-License-Identifier: Apache-2.0
"""A GlideinWMS match policy: request pilots at the sites that have all datasets of a job.

For a group of frontend.xml: <match ... policy_file="/etc/gwms-frontend/locality_policy.py">. The policy reads
the file that the daemon writes (publish.sites_file), and needs only Python's standard library.
docs/operators/pilots.md says how to set up both.

Jobs that name no datasets match every entry. If the file is missing, incomplete, of another version or too
old, all jobs do: then pilots are requested as without this policy. An entry gets no pilots for jobs that name
datasets if it names no site, if the file does not have its site, or if the facts of that site are too old:
such jobs could not match its slots. A job in mode auto also matches where its set of datasets, or a part of
its jobs, is open now, and at all sites of the file whose reads no daemon paces now: there it runs after its
wait.

GlideinWMS calls match() for every entry and every kind of job, in a new process each cycle. So each process
reads the file once, and looks up each list of datasets once.
"""

import json
import logging
import os
import time

PATH = os.environ.get("HYDRATOR_SITES_BY_DATASET", "/srv/frontend/sites_by_dataset.json")
"""Path of the file on this host, written by the daemon or copied from its host: change it."""

SITE_KEYS = (
    "GLIDEIN_ResourceName",
    "GLIDEIN_CMSSite",
    "GLIDEIN_Site",
    "GLIDEIN_SiteResource",
    "SiteLocation",
    "EntryName",
)
"""Attributes with the site of an entry; the first one that it has counts. They are those of the hook
(--site-keys), then the name of the entry, which becomes a pilot's GLIDEIN_Site if the entry has none."""

VERSION = 1

factory_query_expr = "True"
job_query_expr = "True"
factory_match_attrs = {
    key: {"type": "string", "comment": "the site of this entry"} for key in SITE_KEYS if key != "EntryName"
}
job_match_attrs = {
    "RequiredDatasetsCSV": {"type": "string", "comment": "the datasets this job reads"},
    "DataLocality": {"type": "string", "comment": "the mode of this job"},
    "DataLocalityKey": {"type": "string", "comment": "the key of its set of datasets"},
}

_read = []  # one element once the file was read: its sites and datasets, or None if it cannot be used
_places = {}  # by list of datasets, the sites that have them all; None if the file cannot be used
_sets = {}  # by key in lower case, the sites with the whole set, and those where it is open
_unpaced = set()  # the sites without valid openings


def match(job, glidein):
    """Return whether a pilot of this entry could run this job at a site with its data."""
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
            return site in places or _may_run_at(job, site)
    return False


def _may_run_at(job, site):
    """Return whether the job's key, as in the slots' expressions, lets it run at the site."""
    mode, key = job.get("DataLocality"), job.get("DataLocalityKey")
    if not isinstance(key, str):
        return False
    whole, opened = _sets.get(key.lower(), ((), ()))
    is_auto = isinstance(mode, str) and mode.lower() == "auto"
    return site in whole or (is_auto and (site in opened or site in _unpaced))


def _sites_with(wanted):
    """Return the sites that have all datasets of *wanted* (comma-separated); None without a usable file."""
    if not _read:
        _read.append(_load_sites())
    if _read[0] is None:
        return None
    sites, datasets = _read[0]
    each = [datasets.get(did, ()) for did in wanted.split(",") if did]
    return sites.intersection(*each) if each else None


def _load_sites():
    """Return the sites with recent facts, and the sites of each dataset.

    Return None, and log the reason, if the file cannot be used.
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
        _unpaced.update(site for site, row in document["sites"].items() if now >= row.get("open_until", 0))
        for key, rows in document.get("sets", {}).items():
            fresh = {site for site, row in rows.items() if site in sites and row["as_of"] >= oldest}
            whole = frozenset(site for site in fresh if rows[site]["share"] >= 1)
            opened = frozenset(site for site, row in rows.items() if "open_seconds" in row)
            _sets[key.lower()] = whole, opened
        return sites, datasets
    except Exception as trouble:
        reason = "{}: {}".format(type(trouble).__name__, trouble)
        _log().warning("%s cannot be used, so all entries match: %s", PATH, reason)
        return None


def _log():
    """Return the log of the frontend's group, if there is one: GlideinWMS shows no other."""
    try:
        from glideinwms.lib import logSupport

        return logSupport.log or logging.getLogger(__name__)
    except Exception:
        return logging.getLogger(__name__)
