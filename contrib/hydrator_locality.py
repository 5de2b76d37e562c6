"""Client of POST /v1/locality: asks a classad-hydrator daemon where datasets are. Standard library only.

    client = LocalityClient.from_environment()
    for row in client.find(["lofar:L1", "lofar:L2"]):
        print(row["did"], [(each["site"], each["state"]) for each in row["sites"]])

The environment has the address in HYDRATOR_URL, and may have a file with a token in HYDRATOR_TOKEN_FILE and
a file with CA certificates in HYDRATOR_CA_CERT.
"""

import gzip
import http.client
import ipaddress
import json
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

MAX_DATASETS = 10_000
"""Datasets in one request; the daemon accepts no more."""
MAX_LINE_BYTES = 16 * 2**20
_TRIES = 5
_MAX_PAUSE_SECONDS = 30


class LocalityError(Exception):
    """The daemon did not answer, or refused the request; the text is one sentence."""


class LocalityClient:
    """A client of one daemon.

    Args:
        url: address of the daemon, such as ``https://hydrator.example.org:8471``.
        token: bearer token with role ``read``, if the daemon requires tokens.
        ca_file: CA certificates; by default those that the system trusts.
        timeout: seconds without an answer after which a request fails.
        sleep: waits some seconds before a request is repeated.

    Raises:
        LocalityError: the token would travel unencrypted to another machine.
    """

    def __init__(self, url, token=None, ca_file=None, timeout=60, sleep=time.sleep):
        self._url = url.rstrip("/")
        parts = urllib.parse.urlsplit(self._url)
        if parts.scheme not in ("http", "https"):
            raise LocalityError(f"{url} is not an address with http or https")
        if token and parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
            raise LocalityError(f"the token would travel unencrypted to {url}: use https")
        self._token = token
        self._timeout = timeout
        self._sleep = sleep
        context = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        handlers = [urllib.request.HTTPSHandler(context=context)] if context else []
        if _is_loopback(parts.hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    @classmethod
    def from_environment(cls, environ=os.environ):
        """Build a client from HYDRATOR_URL, HYDRATOR_TOKEN_FILE and HYDRATOR_CA_CERT.

        Raises:
            LocalityError: the environment has no HYDRATOR_URL, or the token cannot be read.
        """
        if not environ.get("HYDRATOR_URL"):
            raise LocalityError("set HYDRATOR_URL to the address of the daemon")
        token = None
        if environ.get("HYDRATOR_TOKEN_FILE"):
            try:
                with open(environ["HYDRATOR_TOKEN_FILE"], encoding="utf-8") as file:
                    token = file.read().strip()
            except OSError as error:
                raise LocalityError(f"cannot read HYDRATOR_TOKEN_FILE: {error}") from error
        return cls(environ["HYDRATOR_URL"], token, environ.get("HYDRATOR_CA_CERT") or None)

    def find(self, datasets, sites=(), cpus=1):
        """Yield a row for each of *datasets*, any number of them, in the order of the names.

        Args:
            datasets: names, ``scope:name``.
            sites: the sites of the rows; then a site without a dataset has the state ABSENT. Default: the
                sites that have the dataset.
            cpus: cores of a job, for the seconds until a slot comes free.

        Raises:
            LocalityError: the daemon gave no complete answer.
        """
        names = sorted(set(datasets))
        for start in range(0, len(names), MAX_DATASETS):
            body = _body(names[start : start + MAX_DATASETS], sites, cpus)
            while True:
                end = None
                for line in self._post_lines("/v1/locality", body):
                    if "did" in line:
                        yield line
                    elif "next" in line:
                        end = line
                if end is None:
                    raise LocalityError(f"{self._url} cut its answer: ask again")
                if end["next"] is None:
                    break
                body["after"] = end["next"]

    def find_set(self, datasets, sites=(), cpus=1):
        """Return the answer about all *datasets* as one set, 10,000 at most: could a job run there, and when?

        Raises:
            LocalityError: the daemon gave no answer.
        """
        names = sorted(set(datasets))
        answers = list(self._post_lines("/v1/locality/set", _body(names, sites, cpus)))
        if len(answers) != 1:
            raise LocalityError(f"{self._url} cut its answer: ask again")
        return answers[0]

    def _post_lines(self, path, body):
        """Yield the JSON objects of an answer; if the daemon is busy, wait and repeat the request."""
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        for tries_left in reversed(range(_TRIES)):
            request = urllib.request.Request(self._url + path, data, headers)  # noqa: S310 - checked
            try:
                with self._opener.open(request, timeout=self._timeout) as answer:
                    is_packed = answer.headers.get("Content-Encoding") == "gzip"
                    yield from _read_lines(gzip.GzipFile(fileobj=answer) if is_packed else answer)
                    return
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in (429, 503) or not tries_left:
                        raise LocalityError(f"{self._url} answered {error.code}: {_detail(error)}") from error
                    self._sleep(_pause_seconds(error.headers.get("Retry-After")))
            except (OSError, EOFError, ValueError, http.client.HTTPException) as error:
                raise LocalityError(f"{self._url} gave no complete answer: {error}") from error


def _body(names, sites, cpus):
    return {"datasets": names, "cpus": cpus, **({"sites": sorted(set(sites))} if sites else {})}


def _read_lines(answer):
    while True:
        line = answer.readline(MAX_LINE_BYTES)
        if not line:
            return
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError("a line is not a JSON object")  # noqa: TRY004 - the caller reports it as such
        yield row


def _detail(error):
    """Return the sentence of an error answer."""
    try:
        packed = error.read(1 << 20)
        text = gzip.decompress(packed) if error.headers.get("Content-Encoding") == "gzip" else packed
        return str(json.loads(text)["detail"])[:1000]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return error.reason


def _pause_seconds(retry_after):
    return min(int(retry_after), _MAX_PAUSE_SECONDS) if (retry_after or "").isdigit() else 1


def _is_loopback(host):
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
