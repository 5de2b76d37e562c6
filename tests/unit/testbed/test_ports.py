"""Ports of servers that tests start: no two processes get the same."""

import subprocess
import sys

import pytest

from testbed.ports import free_ports

pytestmark = pytest.mark.outside

FEW = range(32_000, 32_010)
LEASE_ALL = """
import sys
from testbed.ports import free_ports
print(sorted(free_ports(10, among=range(32_000, 32_010))), flush=True)
sys.stdin.read()
"""


def test_port_belongs_to_the_process_that_asked_until_that_process_ends():
    with subprocess.Popen(
        [sys.executable, "-c", LEASE_ALL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == f"{list(FEW)}\n"
        with pytest.raises(OSError, match="no free port"):
            free_ports(1, among=FEW)
        other.stdin.close()
        assert other.wait(120) == 0
    first = free_ports(6, among=FEW)
    with pytest.raises(OSError, match="no free port"):
        free_ports(5, among=FEW)
    assert sorted(first + free_ports(4, among=FEW)) == list(FEW)
