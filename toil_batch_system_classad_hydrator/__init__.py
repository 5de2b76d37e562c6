"""A batch system for Toil: one HTCondor job for each Toil job, with HTCondor's Python bindings (htcondor2).

    pip install 'classad-hydrator[toil]'        into the environment of toil-cwl-runner
    toil-cwl-runner --batchSystem classad_hydrator …

Toil finds the batch system by the name of this package. Only :mod:`.batch_system` imports Toil, and only
:mod:`.condor` imports the bindings. Toil's option parser imports every batch system. If the bindings are
missing, the parser skips this batch system; Toil reports an error only if a user selects it.

Variables of the leader's environment:

``_CONDOR_RequiredDatasets``, ``_CONDOR_DataLocality``, … (:data:`.job.JOB_ATTRIBUTES`)
    attributes of every job, as ClassAd expressions: ``hydrator submit rapthor --as env`` prints these
    variables.
``HYDRATOR_CONFIG``
    a configuration file of the hydrator. Its ``[submit]`` names and patterns turn the names of a step's
    inputs into DIDs. Its ``[submit]`` gpu and gpu_steps select the steps that use a GPU.
``HYDRATOR_TOIL_ENVIRONMENT``
    names of more variables of the leader for the jobs' ads, separated by commas; ``*`` is a wildcard.
``HYDRATOR_TOIL_SITE_FILE``
    a file that stores the site of a run's first finished job; the run's later jobs run at that site.
``TOIL_HTCONDOR_COLLECTOR``, ``TOIL_HTCONDOR_SCHEDD``, ``TOIL_HTCONDOR_PARAMS``
    as in Toil's own batch system. You may also set only the collector or only the schedd.
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
