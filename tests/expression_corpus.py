"""Jobs and slots evaluated by the classad2 of the interpreter: python -m tests.expression_corpus prints JSON.

tests/integration/test_older_bindings.py runs it with the bindings of other releases, which have the same
ClassAd engine as the daemons of their release.
"""

import itertools
import json
import re

import htcondor2
from classad2 import ClassAd, ExprTree

from hydrator.config import Settings
from hydrator.domain.ads.expressions import HERE, JOB_RANK, SLOT_EXPRESSIONS
from hydrator.submit.pool_config import schedd_config
from tests.schedd_text import ScheddText
from tests.unit.submit.test_submit_requirements import BOTH, LISTED, LISTS, LONG, OWN, VALUES, submitted

EVERYTHING = Settings(
    daemon={"default_scope": "s"}, jobs={"glideinwms": True}, publish={"never": ("embargo:*",)}
)
TEXTS = (schedd_config(Settings()), schedd_config(EVERYTHING, job_rank=True))
MADE = ("DataLocalityRank", "DataLocalityLane", "DataLocalityAnyAfter", "GPUPreference", "RequireGPUs")
JOBS = (
    *({"RequiredDatasets": each} for each in itertools.chain(*LISTS.values())),
    *({"RequiredDatasets": each} for each in (BOTH, LISTED, '"x:a, x:b"', 'split("x:a x:b")', "undefined")),
    *({"RequiredDatasets": BOTH, option: value} for option, value in VALUES),
    *({"RequiredDatasets": BOTH, "DataLocality": f'"{mode}"'} for mode in HERE),
    *({"RequiredDatasets": LISTED, **submitted(dids)} for dids in (LONG, LONG[1:])),
    *(
        {"RequiredDatasets": given, **more, name: f"false ? {{}} : {name}"}
        for name in (*OWN, *MADE)
        for given, more in ((BOTH, {}), ("undefined", {}), (BOTH, {"DataLocalityTransformed": "true"}))
    ),
)
SLOTS = (
    {},
    {"DataLocalitySets": "[ 'x:a' = 1.0; 'x:b' = 0.5 ]", "DataLocalityAsOf": "time() - 5"},
    {"DataLocalitySets": "[ 'x:a' = 1.0 ]", "DataLocalityAsOf": "5"},
    {
        "DataLocalityOpen": "[ 'x:b~0' = 240; 'x:c' = 900001 ]",
        "DataLocalityReadFrom": "[ 'x:b~0' = \"UK\" ]",
        "DataLocalityOpenUntil": "time() + 900",
    },
    {"DataLocalitySets": '"no"', "DataLocalityOpen": "5", "DataLocalityOpenUntil": "error"},
)
NEVER = "4102444800"


def parsed(attributes: dict[str, str]) -> ClassAd:
    ad = ClassAd()
    for name, text in attributes.items():
        ad[name] = ExprTree(text)
    return ad


def decisions() -> list[object]:
    """Return what the printed text makes of each job: its attributes, and why it is refused."""
    made: list[object] = []
    for schedd, job in itertools.product(map(ScheddText, TEXTS), JOBS):
        ad = schedd.transformed(job)
        attributes = {name: re.sub(r"[\s\\]", "", str(ad.lookup(name))) for name in ad}
        attributes.pop("DataLocalityAnyAfter", None)  # a time
        made.append([attributes, schedd.refused_by(ad) and schedd.reason(ad)])
    return made


def matches() -> list[str]:
    """Return the values of the expressions of each slot and job."""
    values = []
    for given, key, lane in itertools.product(SLOTS, ("x:a", "x:b", "x:c", "undefined"), (0, 1)):
        slot = parsed({**given, **SLOT_EXPRESSIONS})
        clauses = {**HERE, "DataLocalityRank": JOB_RANK}
        own = {"DataLocalityKey": key if key == "undefined" else f'"{key}"', "DataLocalityLane": str(lane)}
        job = parsed({**own, "DataLocalityMaxAge": "3600", "DataLocalityAnyAfter": NEVER, **clauses})
        values += [repr(slot.lookup(name).eval(slot, job)) for name in SLOT_EXPRESSIONS]
        values += [repr(job.lookup(name).eval(job, slot)) for name in clauses]
    return values


if __name__ == "__main__":
    print(json.dumps({"version": htcondor2.version(), "jobs": decisions(), "matches": matches()}))
