"""Which files of tests take long: with several workers those begin first, so that no end waits for one.

Seconds of a run of CI on two cores, pools and servers included. They decide the order and nothing else;
a file of fewer than 30 is not named.
"""

SECONDS = {
    "tests/contracts/test_rucio_catalogue.py": 35,
    "tests/contracts/test_rucio_postgres.py": 120,
    "tests/deploy/test_booted.py": 100,
    "tests/deploy/test_container.py": 90,
    "tests/deploy/test_docs.py": 30,
    "tests/deploy/test_helm_objects.py": 40,
    "tests/deploy/test_page.py": 40,
    "tests/deploy/test_prometheus.py": 70,
    "tests/faults/test_catalogue_faults.py": 135,
    "tests/faults/test_kill_9.py": 180,
    "tests/faults/test_pool_faults.py": 140,
    "tests/faults/test_rucio_server_faults.py": 75,
    "tests/integration/test_authorization.py": 105,
    "tests/integration/test_benchmarks.py": 480,
    "tests/integration/test_between_pools.py": 75,
    "tests/integration/test_clock.py": 30,
    "tests/integration/test_condor.py": 50,
    "tests/integration/test_condor_c.py": 35,
    "tests/integration/test_daemon.py": 45,
    "tests/integration/test_demo.py": 460,
    "tests/integration/test_desired_sites.py": 80,
    "tests/integration/test_docs_on_a_pool.py": 120,
    "tests/integration/test_end_to_end.py": 450,
    "tests/integration/test_events_rabbitmq.py": 175,
    "tests/integration/test_gpus.py": 95,
    "tests/integration/test_help_examples.py": 150,
    "tests/integration/test_hook.py": 170,
    "tests/integration/test_job_start.py": 150,
    "tests/integration/test_limits.py": 65,
    "tests/integration/test_operations.py": 245,
    "tests/integration/test_pool.py": 130,
    "tests/integration/test_private.py": 90,
    "tests/integration/test_rapthor_reader.py": 30,
    "tests/integration/test_rapthor_slot.py": 60,
    "tests/integration/test_reload.py": 60,
    "tests/integration/test_rucio_end_to_end.py": 110,
    "tests/integration/test_rucio_several.py": 80,
    "tests/integration/test_slot_merge.py": 55,
    "tests/integration/test_submit_language.py": 60,
    "tests/integration/test_submit_rapthor.py": 330,
    "tests/integration/test_toil.py": 800,
    "tests/integration/test_transform.py": 590,
    "tests/integration/test_trust.py": 70,
    "tests/integration/test_why.py": 420,
    "tests/unit/test_docs.py": 40,
    "tests/unit/test_file_catalogue.py": 40,
    "tests/unit/test_holds_command.py": 30,
    "tests/unit/test_job_start.py": 80,
    "tests/unit/test_rucio.py": 45,
    "tests/unit/test_rucio_background.py": 55,
    "tests/unit/test_rucio_garbled.py": 50,
    "tests/unit/test_rucio_starvation.py": 130,
    "tests/unit/test_store.py": 65,
}


def seconds(nodeid: str) -> int:
    """What the file of a test takes, 0 where it is not named."""
    return SECONDS.get(nodeid.partition("::")[0], 0)
