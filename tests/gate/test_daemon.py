"""`hydrator run` as a process: its start, its signals, its end, and HTTPS. No pool is needed."""

import json
import os
import signal

import httpx
import trustme

from testbed.patience import wait_for


def test_daemon_follows_the_catalogue_file_and_ends_on_sigterm(daemon):
    daemon.start()
    wait_for(lambda: 'AvailableDatasets = {"lofar:L1"}' in daemon.ad(), "the first dataset")
    first = daemon.generation()
    daemon.catalogue({"lofar:L1": {"CAM": "available"}, "lofar:L2": {"CAM": "staging"}})
    wait_for(lambda: "'lofar:L2'=\"STAGING\"" in daemon.ad(), "the second dataset")
    assert daemon.generation() > first
    pages = {path: daemon.get(path) for path in ("/", "/site?site=CAM", "/dataset?did=lofar:L2")}
    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(pages, 200)
    assert all("lofar:L2" in pages[path].text for path in ("/site?site=CAM", "/dataset?did=lofar:L2"))
    assert daemon.end() == 0
    assert "lofar:L2" in (daemon.folder / "ads" / "CAM.ad").read_text(), "an ad went with its daemon"
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines()]
    assert [line["event"] for line in (lines[0], lines[-1])] == ["running", "stopped"]
    changed = [line for line in lines if line["event"] == "cycle"]
    assert len(changed) == 2  # of many cycles, those that changed something say so, and why
    assert changed[0]["cycle"] < changed[1]["cycle"]
    assert all("CAM in file" in line["changed"] for line in changed)


def test_daemon_after_kill_9_serves_at_once_and_no_generation_goes_back(daemon):
    daemon.start()
    wait_for(lambda: "lofar:L1" in daemon.ad(), "the first dataset")
    before = daemon.generation()
    daemon.end(signal.SIGKILL)
    (daemon.folder / "catalogue.json").unlink()  # the catalogue is away when it starts again
    pipe = daemon.folder / "state" / "orders" / "1-test.json"
    os.mkfifo(pipe)  # the first cycle opens it and waits for a writer
    daemon.start(ready=False)

    def first_answer() -> httpx.Response | None:
        try:
            return daemon.get("/v1/sites/CAM/ad")
        except httpx.TransportError:
            return None

    assert 'AvailableDatasets = {"lofar:L1"}' in wait_for(first_answer, "an answer").text
    assert daemon.generation() == before
    with pipe.open("w"):
        pipe.unlink()
    daemon.catalogue({"lofar:L1": {"CAM": "available"}, "lofar:L2": {"CAM": "available"}})
    wait_for(lambda: "lofar:L2" in daemon.ad(), "the next change")
    assert daemon.generation() > before


def test_sighup_reads_the_configuration_again_and_keeps_the_old_one_when_it_is_broken(daemon):
    daemon.start()
    wait_for(lambda: "lofar:L1" in daemon.ad(), "the first dataset")
    daemon.configure("[sites]\nretired = ['RAL']")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: daemon.log.read_text().count('"running"') == 2, "the process to start again")
    wait_for(daemon.ready, "readiness")
    wait_for(lambda: daemon.get("/v1/sites/RAL/ad").status_code == 404, "the site to be retired")
    wait_for(lambda: not list((daemon.folder / "ads").glob("RAL.*")), "its files to go, too")
    daemon.configure("[sites]\nretired = 7")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "reload refused" in daemon.log.read_text(), "the refusal")
    assert "sites.retired" in daemon.log.read_text()
    assert "lofar:L1" in daemon.ad()
    assert daemon.end() == 0


def test_daemon_publishes_over_https_and_ends_if_its_certificate_is_invalid(daemon, tmp_path):
    ours = trustme.CA().issue_cert("localhost")
    ours.private_key_pem.write_to_path(str(tmp_path / "key"))
    ours.cert_chain_pems[0].write_to_path(str(tmp_path / "pem"))
    daemon.configure('tls_certificate = "pem"\ntls_key = "key"')
    daemon.scheme = "https"
    daemon.start()
    wait_for(daemon.reads_back, "a cycle that reads back what it serves")
    assert daemon.end() == 0
    (tmp_path / "pem").write_text("no certificate")
    refused = daemon.command("run")
    assert (refused.returncode, "publish.http.tls_certificate: " in refused.stderr) == (2, True)
    assert "Traceback" not in refused.stderr
