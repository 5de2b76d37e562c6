"""Run Rapthor's reader on a parset, then its concatenation by real Toil, in Rapthor's own Python.

The field is a stand-in, because a real one needs a real observation; reader, operation, workflow and runner
are Rapthor's. Prints [cluster] as Rapthor understood it, and the files that the operation wrote.
"""

import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace

from rapthor.lib.parset import parset_read
from rapthor.operations.concatenate import Concatenate

logging.disable(logging.CRITICAL)
parset = parset_read(sys.argv[1], use_log_file=False)
field = SimpleNamespace(
    parset=parset,
    data_colname="DATA",
    epoch_starttimes=[1],
    epoch_observations=[[SimpleNamespace(ms_filename=name) for name in parset["mss"]]],
    scan_observations=lambda: None,
)
operation = Concatenate(field, 1)
made: list[str] = []
if "--read-only" not in sys.argv:
    operation.run()
    outputs = json.loads(Path(operation.pipeline_outputs_file).read_text())
    made = [f"{one['path']}/seen" for one in outputs["concatenated_filenames"]]
json.dump({"cluster": parset["cluster_specific"], "made": made}, sys.stdout)
