"""A batch system for Toil: one HTCondor job for each Toil job, by the current bindings (htcondor2).

    pip install 'classad-hydrator[toil]'        into the environment of toil-cwl-runner
    toil-cwl-runner --batchSystem classad_hydrator …

Toil finds it by the name of this module. Only :mod:`.batch_system` imports Toil and only
:mod:`.condor` the bindings, so that Toil's option parser, which imports every batch system there
is, leaves this one out where one of them is missing, and says so when it is asked for.

What it reads from the leader's environment:

``_CONDOR_RequiredDatasets``, ``_CONDOR_DataLocality``, … (:data:`.job.CARRIED`)
    attributes of every job, as ClassAd expressions: what ``hydrator submit rapthor --as env`` prints.
``HYDRATOR_CONFIG``
    a configuration whose ``[submit]`` names or patterns turn the names of a step's inputs into DIDs,
    and whose ``[submit]`` gpu says which steps take a GPU where there is one.
``HYDRATOR_TOIL_ENVIRONMENT``
    names of more variables that may enter the job's ad, with commas; ``*`` at an end is a wildcard.
``HYDRATOR_TOIL_SITE_FILE``
    where the site of a run's first finished job is kept; the run's later jobs stay at that site.
``TOIL_HTCONDOR_COLLECTOR``, ``TOIL_HTCONDOR_SCHEDD``, ``TOIL_HTCONDOR_PARAMS``
    as in Toil's own batch system; each of the first two may also be given alone.
"""

from importlib.util import find_spec
from typing import Any

BATCH_SYSTEM_NAME = "classad_hydrator"
"""What ``--batchSystem`` calls it."""


def _batch_system() -> Any:  # noqa: ANN401 - a class of Toil's, imported late
    from .batch_system import ClassAdHydratorBatchSystem

    return ClassAdHydratorBatchSystem


if find_spec("toil"):
    from toil.batchSystems.registry import add_batch_system_factory

    add_batch_system_factory(BATCH_SYSTEM_NAME, _batch_system)
