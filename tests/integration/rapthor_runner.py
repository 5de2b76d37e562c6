"""Run Rapthor's ToilRunner on the operation in the folder that is named, in Rapthor's own Python.

Only the runner is Rapthor's. The operation is a stand-in with the attributes that the runner reads, because
a real one needs a real observation.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

from rapthor.lib.cwlrunner import ToilRunner

folder = Path(sys.argv[1])
operation = SimpleNamespace(
    pipeline_working_dir=str(folder),
    pipeline_parset_file=str(folder / "pipeline_parset.cwl"),
    pipeline_inputs_file=str(folder / "pipeline_inputs.json"),
    pipeline_outputs_file=str(folder / "pipeline_outputs.json"),
    pipeline_log_file=str(folder.parents[1] / "logs" / folder.name / "pipeline.log"),
    log_dir=str(folder.parents[1] / "logs" / folder.name),
    jobstore=str(folder / "jobstore"),
    batch_system="slurm",
    container=None,
    use_mpi=False,
    max_nodes=2,
    cpus_per_task=1,
    mem_per_node_gb=1,
    scratch_dir=None,
    local_scratch_dir=None,
    global_scratch_dir=None,
    keep_temporary_files=True,
    debug_workflow=False,
)
with ToilRunner(operation) as runner:
    sys.exit(0 if runner.run() else 1)
