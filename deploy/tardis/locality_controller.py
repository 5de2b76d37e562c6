"""A COBalD controller: start TARDIS's drones at the sites where waiting jobs have their data.

Put it into cobald.yml in the place of LinearController, above TardisPoolFactory, and this file's folder into
PYTHONPATH. docs/how-to/operate/connect/drones.md describes the set-up.

The daemon keeps one offline slot ad for each machine type (publish.drones), and the negotiator writes into
this ad how many waiting jobs it matched. TARDIS's own HTCondor batch system adapter reads the number as the
allocation of a drone with the name SITE_MACHINETYPE. For each machine type:

- Jobs match the offline ad: demand grows by *rate*, but not beyond what these jobs need.
- No job matches: demand does not grow. It shrinks while the drones are used less than *low_utilisation*.
- There is no offline ad, for example because the daemon is down: demand follows LinearController's rules.

A site's quota limits the demand of all its machine types together.
"""

import asyncio
import logging
import math

from cobald.daemon import service
from cobald.interfaces import Controller
from tardis.interfaces.batchsystemadapter import MachineStatus

logger = logging.getLogger("cobald.runtime.locality")


@service(flavour=asyncio)
class LocalityController(Controller):
    """Controller of a TARDIS pool that reads the offline ads of classad-hydrator.

    :param target: the pool of TardisPoolFactory
    :param low_utilisation: utilisation of drones below which demand shrinks
    :param high_allocation: allocation of drones above which demand grows, without an offline ad
    :param rate: largest change of the demand of a machine type, in cores a second
    :param interval: seconds between two adjustments
    :param cores_per_job: cores that one waiting job needs, on average
    """

    def __init__(
        self, target, low_utilisation=0.5, high_allocation=0.5, rate=1, interval=60, cores_per_job=1
    ):
        super().__init__(target=target)
        if not low_utilisation <= high_allocation:
            raise ValueError("low_utilisation must not be above high_allocation")
        if min(rate, interval, cores_per_job) <= 0:
            raise ValueError("rate, interval and cores_per_job must be above 0")
        self.low_utilisation = low_utilisation
        self.high_allocation = high_allocation
        self.step = rate * interval
        self.interval = interval
        self.cores_per_job = cores_per_job

    async def run(self):
        """Adjust the demand of all machine types, without end."""
        while True:
            for quota, machine_types in find_machine_types(self.target):
                await self._adjust(quota, machine_types)
            await asyncio.sleep(self.interval)

    async def _adjust(self, quota, machine_types):
        left = quota - sum(each.pool.demand for each in machine_types)
        for each in machine_types:
            before = each.pool.demand
            wanted = self.choose_demand(each.pool, await each.count_matched_jobs(), each.cores)
            demand = max(0.0, min(wanted, before + max(0.0, left)))
            left -= demand - before
            if demand != before:
                logger.info("%s: demand changes from %g to %g cores", each.name, before, demand)
                each.pool.demand = demand

    def choose_demand(self, pool, matched_jobs, cores):
        """Return the cores that *pool* should have.

        :param matched_jobs: waiting jobs that match the offline ad; None without an ad
        :param cores: cores of one drone
        """
        if matched_jobs is None:
            if pool.utilisation < self.low_utilisation:
                return pool.demand - self.step
            return pool.demand + (self.step if pool.allocation > self.high_allocation else 0)
        if matched_jobs > 0:
            needed = pool.supply + cores * math.ceil(matched_jobs * self.cores_per_job / cores)
            return max(min(pool.demand + self.step, needed), min(pool.demand, needed))
        if not pool.supply or pool.utilisation < self.low_utilisation:
            return min(pool.demand - self.step, pool.supply)
        return min(pool.demand, pool.supply)


class MachineType:
    """One machine type of a site: its pool of drones, and the offline ad of the same name."""

    def __init__(self, pool, factory):
        parts = factory.keywords
        site_agent = parts["site_agent"]
        self.pool = pool
        self.name = f"{site_agent.site_name}_{site_agent.machine_type}".lower()
        self.cores = site_agent.machine_meta_data["Cores"]
        self._batch_system = parts["batch_system_agent"]

    async def count_matched_jobs(self):
        """Return how many waiting jobs match the offline ad; None without an ad."""
        if await self._batch_system.get_machine_status(self.name) == MachineStatus.NotAvailable:
            return None
        return await self._batch_system.get_allocation(self.name)


def find_machine_types(pool, quota=math.inf):
    """Yield the quota (cores) and the machine types of each site below *pool*."""
    if hasattr(pool, "maximum"):  # the Standardiser of a site
        yield pool.maximum, list(_leaves(pool.target))
    elif hasattr(pool, "children") and not hasattr(pool, "factory"):
        for child in pool.children:
            yield from find_machine_types(child, quota)
    else:
        yield quota, list(_leaves(pool))


def _leaves(pool):
    """Yield the machine types below *pool*: a FactoryPool, or a decorator of one such as Logger."""
    inner = pool
    while hasattr(inner, "target"):
        inner = inner.target
    if hasattr(inner, "factory"):
        yield MachineType(pool, inner.factory)
    else:
        for child in inner.children:
            yield from _leaves(child)
