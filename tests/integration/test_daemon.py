"""`hydrator run` as a process: signals, restarts, a second daemon, files that change. No pool is needed."""

import socket

from testbed.installation import wait_for


def test_a_catalogue_that_hangs_for_ever_delays_neither_another_one_nor_the_end(daemon):
    with socket.socket() as silent:  # takes every connection and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        daemon.configure(f'[[catalogue]]\ntype = "dmapi"\nurl = "{url}"')
        daemon.start()
        wait_for(lambda: "lofar:L1" in daemon.ad(), 15, "the first dataset")
        assert daemon.end() == 0


def test_address_in_use_is_one_sentence_and_exit_status_2(daemon):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", daemon.port))
        taken.listen()
        refused = daemon.command("run")
    assert refused.returncode == 2
    assert str(daemon.port) in refused.stderr
    assert "Traceback" not in refused.stderr


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
