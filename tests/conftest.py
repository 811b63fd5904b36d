"""How the suite runs: the same every time in `make test`, wider and at random in `make reliability`."""

from __future__ import annotations

import os
import random
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.fixtures import (
    dynamodb_place,
    dynamodb_server,
    mongodb_server_url,
    mongodb_url,
    moto_bucket,
    moto_place,
    postgres_server_url,
    postgres_url,
    s3_bucket,
    s3_place,
)
from tests.spark.starting import started_spark

# The servers' fixtures are every test's, and so is Spark: a process has one only.
__all__ = [
    "dynamodb_place",
    "dynamodb_server",
    "mongodb_server_url",
    "mongodb_url",
    "moto_bucket",
    "moto_place",
    "postgres_server_url",
    "postgres_url",
    "s3_bucket",
    "s3_place",
    "started_spark",
]

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile(
    "test", derandomize=True, max_examples=50, deadline=None, database=None, suppress_health_check=SLOW
)
settings.register_profile(
    "reliability", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=SLOW
)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in the background so, and programs that tests start would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = "reliability" if config.getoption("markexpr") == "reliability" else "test"
    settings.load_profile(os.environ.get("PENSTOCK_HYPOTHESIS", chosen))


FIRST = (
    "tests/spark/",
    "tests/interop/",
    "tests/committer/",
    "tests/test_documents.py",
    "tests/test_benchmarks.py",
)
"""What takes long: begun last, one process would do it alone while the other has nothing left to do."""
TOGETHER = ("tests/spark/cluster/", "tests/spark/")
"""One process does all of these, so that what they share is started once."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a file's tests run in one process, which starts what they share once, and the longest first."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        group = next((folder for folder in TOGETHER if file.startswith(folder)), file)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: next((at for at, one in enumerate(FIRST) if item.nodeid.startswith(one)), 9))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Where chance begins: fixed, or for a long run another one each time, which it prints."""
    if request.node.get_closest_marker("reliability") is None:
        return 20261101
    chosen = int(os.environ.get("PENSTOCK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"repeat with PENSTOCK_SEED={chosen}")
    return chosen
