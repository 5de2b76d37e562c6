"""A second collector in a pool, to which all daemons advertise, too."""

SECOND = """
COLLECTOR_B = $(COLLECTOR)
COLLECTOR_B_ARGS = -f -p {port} -local-name COLLECTOR_B
COLLECTOR_B.COLLECTOR_LOG = $(LOG)/CollectorLog.B
COLLECTOR_B.COLLECTOR_ADDRESS_FILE = $(LOG)/.collector_address.B
COLLECTOR_B.ADDRESS_FILE = $(LOG)/.collector_address.B
DAEMON_LIST = $(DAEMON_LIST) COLLECTOR_B
DC_DAEMON_LIST = + COLLECTOR_B
COLLECTOR_HOST = $(COLLECTOR_HOST),127.0.0.1:{port}
"""


def second_collector(port: int) -> str:
    """Return the configuration of a second collector on *port*, for all daemons of a pool."""
    return SECOND.format(port=port)
