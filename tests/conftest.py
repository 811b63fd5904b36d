"""How the suite runs: always the same, but for `make reliability`, which is wider and at random."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, settings

from tests.arrangement import (
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_terminal_summary,
    pytest_xdist_make_scheduler,
    use_memory_for_temporary_files,
)
from tests.chance import RecordCounts
from tests.servers.fixtures import (
    dynamodb_place,
    dynamodb_server,
    mongodb_server_url,
    mongodb_url,
    moto_bucket,
    moto_place,
    postgres_database_url,
    postgres_schema_url,
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
    "postgres_database_url",
    "postgres_schema_url",
    "postgres_server_url",
    "postgres_url",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_logreport",
    "pytest_runtest_makereport",
    "pytest_terminal_summary",
    "pytest_xdist_make_scheduler",
    "s3_bucket",
    "s3_place",
    "started_spark",
]

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile(
    "test", derandomize=True, max_examples=20, deadline=None, database=None, suppress_health_check=SLOW
)
settings.register_profile("verify", settings.get_profile("test"), max_examples=100)
settings.register_profile(
    "reliability", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=SLOW
)


def pytest_configure(config: pytest.Config) -> None:
    use_memory_for_temporary_files()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in the background so, and programs that tests start would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    marks = config.getoption("markexpr")
    profile = marks if marks == "reliability" else "verify" if marks.startswith("share or") else "test"
    settings.load_profile(os.environ.get("PENSTOCK_HYPOTHESIS", profile))


def _is_long(config: pytest.Config) -> bool:
    return bool(config.getoption("markexpr") == "reliability")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Where chance begins: fixed, or for a long run another one each time, which it prints."""
    if not _is_long(request.config):
        return 20261101
    chosen = int(os.environ.get("PENSTOCK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"repeat with PENSTOCK_SEED={chosen}")
    return chosen


@pytest.fixture
def record_counts(record_property: Callable[[str, object], None]) -> RecordCounts:
    """Have `make reliability` print at its end what a test counted, summed up over its cases."""

    def record(counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            record_property(name, count)

    return record
