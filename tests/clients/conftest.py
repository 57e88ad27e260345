"""One server for all tours of a run."""

import re
import time
import urllib.request

import pytest

from tandem import KEY, Server


@pytest.fixture(scope="session")
def url():
    with Server() as server:
        yield server.url


@pytest.fixture(scope="session")
def keyed_url():
    with Server("--api-key", KEY) as server:
        yield server.url


@pytest.fixture
def falls_idle(url):
    """Holds the server to an end of all work: no row runs and no request waits, within ten seconds."""

    def count(name):
        text = urllib.request.urlopen(f"{url}/metrics").read().decode()
        (value,) = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return float(value)

    def check():
        deadline = time.monotonic() + 10
        while running := count("tandem_requests_running") + count("tandem_requests_waiting"):
            assert time.monotonic() < deadline, f"requests that run on: {running}"
            time.sleep(0.02)

    return check
