"""What Prometheus would scrape, read back from the text that the client library exposes."""

from __future__ import annotations

from functools import partial

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import penstock
from penstock.metrics.meter import OTHER
from penstock.metrics.prometheus import PrometheusMeter
from penstock.metrics.table import (
    BATCH_REQUESTS,
    METRICS,
    QUEUE_DEPTH,
    QUEUE_WAIT_SECONDS,
    REQUESTS,
    STORE_SECONDS,
    TRIES,
    Metric,
    Type,
)
from penstock.testing.threads import at_once


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def meter(registry: CollectorRegistry) -> PrometheusMeter:
    return PrometheusMeter(registry)


def scrape(registry: CollectorRegistry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = generate_latest(registry).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_is_declared_with_its_type_and_help(
    registry: CollectorRegistry, meter: PrometheusMeter
) -> None:
    lines = generate_latest(registry).decode().splitlines()
    for metric in METRICS:
        assert f"# HELP {metric.name} {metric.help}" in lines
        assert f"# TYPE {metric.name} {metric.type}" in lines


OWN = Metric("penstock_journal_lines_total", Type.COUNTER, "Lines of journals.", ("kind",), "{lines}")


def test_a_metric_of_somebody_elses_format_is_declared_with_its_first_figure(
    registry: CollectorRegistry, meter: PrometheusMeter
) -> None:
    meter.count(OWN, 2, kind="long")
    meter.declare((OWN,))
    assert scrape(registry)["penstock_journal_lines_total", frozenset({("kind", "long")})] == 2


def test_an_opened_lake_shows_the_metrics_of_its_formats(
    registry: CollectorRegistry, meter: PrometheusMeter
) -> None:
    with penstock.open("memory:", meter=meter):
        assert scrape(registry)["penstock_delta_unpublished_versions", frozenset()] == 0


def test_counters_and_gauges_are_scraped_with_their_labels(
    registry: CollectorRegistry, meter: PrometheusMeter
) -> None:
    meter.count(REQUESTS, branch="main", kind="commit", outcome="ok")
    meter.count(REQUESTS, 4, branch="main", kind="commit", outcome="ok")
    meter.count(REQUESTS, branch="etl/2024", kind="merge", outcome="merge_conflict")
    meter.gauge(QUEUE_DEPTH, 9, branch="main")
    meter.gauge(QUEUE_DEPTH, 2, branch="main")
    found = scrape(registry)
    ok = frozenset({"branch": "main", "kind": "commit", "outcome": "ok"}.items())
    refused = frozenset({"branch": "etl/2024", "kind": "merge", "outcome": "merge_conflict"}.items())
    assert found["penstock_requests_total", ok] == 5
    assert found["penstock_requests_total", refused] == 1
    assert found["penstock_queue_depth", frozenset({("branch", "main")})] == 2


def test_histograms_have_the_buckets_of_the_table(
    registry: CollectorRegistry, meter: PrometheusMeter
) -> None:
    for seconds in (0.00005, 0.003, 0.003, 99.0):
        meter.observe(STORE_SECONDS, seconds, operation="fetch")
    meter.observe(BATCH_REQUESTS, 64)
    found = scrape(registry)
    of_fetch = {("operation", "fetch")}
    assert found["penstock_store_seconds_count", frozenset(of_fetch)] == 4
    assert found["penstock_store_seconds_sum", frozenset(of_fetch)] == pytest.approx(99.00605)
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in found.items()
        if name == "penstock_store_seconds_bucket" and of_fetch <= labels
    }
    assert [float(bound) for bound in buckets] == [*STORE_SECONDS.buckets, float("inf")]
    assert (buckets["0.0001"], buckets["0.0025"], buckets["0.005"], buckets["30.0"]) == (1, 1, 3, 3)
    assert buckets["+Inf"] == 4
    assert found["penstock_batch_requests_bucket", frozenset({("le", "32.0")})] == 0
    assert found["penstock_batch_requests_bucket", frozenset({("le", "64.0")})] == 1


def test_the_number_of_branches_is_bounded(registry: CollectorRegistry) -> None:
    meter = PrometheusMeter(registry, branches_max=2)
    for number in range(1000):
        meter.count(TRIES, branch=f"b{number}")
        meter.gauge(QUEUE_DEPTH, number, branch=f"b{number}")
    found = scrape(registry)
    tries = {
        dict(labels)["branch"]: v for (name, labels), v in found.items() if name == "penstock_tries_total"
    }
    depths = {dict(labels)["branch"] for (name, labels) in found if name == "penstock_queue_depth"}
    assert tries == {"b0": 1, "b1": 1, OTHER: 998}
    assert depths == {"b0", "b1"}


def test_threads_lose_no_figure(registry: CollectorRegistry, meter: PrometheusMeter) -> None:
    def work(number: int) -> None:
        for turn in range(1000):
            meter.count(TRIES, branch=f"b{turn % 5}")
            meter.observe(QUEUE_WAIT_SECONDS, 0.001)

    at_once(*(partial(work, number) for number in range(4)))
    found = scrape(registry)
    assert sum(v for (name, _), v in found.items() if name == "penstock_tries_total") == 4000
    assert found["penstock_queue_wait_seconds_count", frozenset()] == 4000


def test_two_meters_with_registries_of_their_own_share_nothing(
    registry: CollectorRegistry, meter: PrometheusMeter
) -> None:
    another = CollectorRegistry()
    PrometheusMeter(another).count(TRIES, branch="main")
    assert ("penstock_tries_total", frozenset({("branch", "main")})) not in scrape(registry)
    assert {metric.type for metric in METRICS} == set(Type)
