"""A batch system for Toil: one HTCondor job for each Toil job, by the current bindings (htcondor2).

    pip install 'classad-hydrator[toil]'        into the environment of toil-cwl-runner
    toil-cwl-runner --batchSystem classad_hydrator …

Toil finds it by the name of this module. Only :mod:`.batch_system` imports Toil, and only :mod:`.condor`
imports the bindings. Toil's option parser imports every batch system. If Toil or the bindings are missing, it
skips this one, and reports an error only if a user selects it.

Variables of the leader's environment:

``_CONDOR_RequiredDatasets``, ``_CONDOR_DataLocality``, … (:data:`.job.JOB_ATTRIBUTES`)
    attributes of every job, as ClassAd expressions: ``hydrator submit rapthor --as env`` prints them.
``HYDRATOR_CONFIG``
    a configuration whose ``[submit]`` names or patterns turn the names of a step's inputs into DIDs,
    and whose ``[submit]`` gpu selects the steps that take a GPU if there is one.
``HYDRATOR_TOIL_ENVIRONMENT``
    names of more variables that may enter the job's ad, separated by commas; ``*`` is a wildcard.
``HYDRATOR_TOIL_SITE_FILE``
    a file with the site of a run's first finished job; the run's later jobs stay at that site.
``TOIL_HTCONDOR_COLLECTOR``, ``TOIL_HTCONDOR_SCHEDD``, ``TOIL_HTCONDOR_PARAMS``
    as in Toil's own batch system; one of the first two may be set without the other.
"""

from importlib.util import find_spec
from typing import Any

BATCH_SYSTEM_NAME = "classad_hydrator"
"""The name for ``--batchSystem``."""


def _batch_system() -> Any:  # noqa: ANN401 - a class of Toil's, imported late
    from .batch_system import ClassAdHydratorBatchSystem

    return ClassAdHydratorBatchSystem


if find_spec("toil"):
    from toil.batchSystems.registry import add_batch_system_factory

    add_batch_system_factory(BATCH_SYSTEM_NAME, _batch_system)
