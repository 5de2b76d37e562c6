"""A schedd's queue in memory, as the bindings query it."""

from types import SimpleNamespace

import classad2

NOW = 1_800_000_000


def job(cluster, names, user="ann@x", age=0, status=1, **more):
    ad = {
        "ClusterId": cluster,
        "ProcId": 0,
        "User": user,
        "AutoClusterId": 7,
        "JobStatus": status,
        "JobUniverse": 5,
        "RequiredDatasets": list(names),
        "DataLocalityKey": ",".join(names),
        "EnteredCurrentStatus": NOW - age,
        "GlobalJobId": f"ap1#{cluster}.0",
    }
    return classad2.ClassAd(ad | more)


class Queue:
    """A schedd with *jobs* in the order of its queue; it counts queries.

    GroupBy counts jobs with equal texts of the attributes, and returns the ids of the first and the last.
    """

    def __init__(self, *jobs):
        self.jobs = jobs
        self.queries = 0

    def query(self, constraint, projection=(), opts=None, limit=None):
        self.queries += 1
        test = classad2.ExprTree(constraint)
        known = [job for job in self.jobs if "ProcId" in job or opts == "IncludeClusterAd"]
        found = [job for job in known if test.eval(job) is True]
        if opts != "GroupBy":
            return [self._project(job, projection) for job in found[:limit]]
        groups = {}
        for one in found:
            ad = self._project(one, projection)
            groups.setdefault(str(ad), (ad, []))[1].append(f"{one['ClusterId']}.{one['ProcId']}")
        for ad, ids in groups.values():
            ad["JobCount"], ad["JobIds"] = len(ids), " ... ".join(dict.fromkeys((ids[0], ids[-1])))
        return [ad for ad, _ in groups.values()]

    def edit(self, ids, attribute, literal):
        for one in self.jobs:
            if f"{one['ClusterId']}.{one['ProcId']}" in ids:
                one[attribute] = classad2.ExprTree(literal)

    @staticmethod
    def _project(job, names):
        return classad2.ClassAd({name: job.lookup(name) for name in names or job if name in job})


def connect(calls, *jobs):
    """Let *calls*, made without the module htcondor2, query a queue with *jobs*; return them."""
    calls.classad = classad2
    options = SimpleNamespace(GroupBy="GroupBy", IncludeClusterAd="IncludeClusterAd")
    calls.htcondor = SimpleNamespace(QueryOpt=options, HTCondorException=RuntimeError)
    queue = Queue(*jobs)
    calls.queue, calls.schedd = queue, lambda name: queue
    return calls
