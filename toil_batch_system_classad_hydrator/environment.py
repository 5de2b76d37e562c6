"""Environment filter: select the variables of Toil's leader that are written into a job's ad.

Everybody who may read the queue can read a job's ad, so the ad gets only a few variables. Toil's worker reads
the leader's whole environment from the job store, which only the user can read. The ad needs only the
variables that the worker uses before the worker reads the job store.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

EXTRA_VARIABLE = "HYDRATOR_TOIL_ENVIRONMENT"
ALLOWED_VARIABLES = (
    "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "VIRTUAL_ENV", "CONDA_PREFIX",
    "LANG", "LC_ALL", "LC_CTYPE", "TZ",
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_MAIN_FREE", "MKL_NUM_THREADS",
    "TOIL_CHECK_ENV", "TOIL_WORKDIR", "TOIL_COORDINATION_DIR",
    "SINGULARITY_CACHEDIR", "SINGULARITY_TMPDIR", "SINGULARITY_BIND", "APPTAINER_CACHEDIR",
    "APPTAINER_TMPDIR", "APPTAINER_BIND", "CWL_SINGULARITY_CACHE",
)  # fmt: skip
"""Paths of programs and libraries, language, threads, folders: no credentials."""


def filter_environment(leader_environment: Mapping[str, str]) -> dict[str, str]:
    """Return the leader's variables that a job's ad may have.

    These are the variables in ``ALLOWED_VARIABLES``, and those that ``HYDRATOR_TOIL_ENVIRONMENT`` names.
    """
    more = [name.strip() for name in leader_environment.get(EXTRA_VARIABLE, "").split(",") if name.strip()]
    return {
        name: value
        for name, value in sorted(leader_environment.items())
        if name in ALLOWED_VARIABLES or any(fnmatchcase(name, pattern) for pattern in more)
    }
