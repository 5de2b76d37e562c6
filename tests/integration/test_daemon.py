"""`hydrator run` as a process: signals, restarts, a second daemon, files that change. No pool is needed."""

import os
import signal
import socket
import time

import pytest

from testbed.patience import PATIENCE, wait_for


def test_the_service_manager_hears_of_start_reload_and_stop_and_the_watchdog_of_progress_only(daemon):
    address = daemon.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(60 * PATIENCE)

        def hear(word: str) -> None:
            messages = []
            deadline = time.monotonic() + 60 * PATIENCE
            while not messages or word not in messages[-1]:
                assert time.monotonic() < deadline, f"no {word!r} in {messages}; {daemon.log.read_text()}"
                messages.append(manager.recv(4096).decode())

        daemon.environ = {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "300000"}
        daemon.configure()
        daemon.start()
        hear("READY=1")
        hear("WATCHDOG=1")
        hear("STATUS=2 sites, 1 dataset; all is well")
        daemon.process.send_signal(signal.SIGHUP)
        hear("RELOADING=1\nMONOTONIC_USEC=")
        hear("READY=1")
        pipe = daemon.folder / "state" / "orders" / "1-test.json"
        os.mkfifo(pipe)  # a cycle that opens it waits for a writer
        hear("STATUS=daemon hangs: no progress for ")
        manager.settimeout(2)  # six times the watchdog's
        with pytest.raises(TimeoutError):
            manager.recv(4096)
        manager.settimeout(60)
        assert daemon.get("/healthz").status_code == 503
        with pipe.open("w"):
            pipe.unlink()
        hear("WATCHDOG=1")
        wait_for(lambda: daemon.get("/healthz").status_code == 200, "health again")
        daemon.process.send_signal(signal.SIGTERM)
        hear("STOPPING=1")
        assert daemon.process.wait(300) == 0
    assert '"event": "daemon hangs"' in daemon.log.read_text()


def test_daemon_with_a_tokens_file_reads_back_the_ads_it_serves(daemon):
    daemon.configure('tokens_file = "tokens"')
    token = daemon.command("token", "new", "--site", "CAM").stdout.strip()
    daemon.start()
    ours = {"Authorization": f"Bearer {token}"}
    assert daemon.get("/v1/sites/CAM/ad").status_code == 401
    assert daemon.get("/v1/sites/CAM/ad", headers=ours).status_code == 200
    assert daemon.get("/v1/sites/RAL/ad", headers=ours).status_code == 403
    wait_for(daemon.reads_back, "a cycle that reads back what it serves")
    assert token not in daemon.log.read_text()


def test_missing_secret_at_the_start_is_reported_with_exit_status_1(daemon):
    daemon.configure('tokens_file = "nowhere"')
    refused = daemon.command("run")
    assert (refused.returncode, "publish.http.tokens_file" in refused.stderr) == (1, True)
    assert "the daemon can start once the file exists" in refused.stderr
    assert "Traceback" not in refused.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", daemon.port))
        taken.listen()
        (daemon.folder / "nowhere").touch(mode=0o600)
        assert daemon.command("run").returncode == 2  # the address that is taken
