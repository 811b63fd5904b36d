"""The meter in memory, and what all meters share: labels, and the bound on branches."""

from __future__ import annotations

import random
from functools import partial

import pytest

from penstock.errors import InvalidName
from penstock.metrics.memory import PARTS, Metrics, Series, ValueSummary
from penstock.metrics.meter import OTHER, SILENT, Meter
from penstock.metrics.table import (
    BATCH_REQUESTS,
    QUEUE_DEPTH,
    QUEUE_WAIT_SECONDS,
    REQUEST_SECONDS,
    REQUESTS,
    SWAPS_LOST,
    TRIES,
)
from penstock.model.names import check_name
from penstock.testing.threads import at_once


def test_counts_add_up_by_their_labels() -> None:
    metrics = Metrics()
    metrics.count(REQUESTS, branch="main", kind="commit", outcome="ok")
    metrics.count(REQUESTS, outcome="ok", branch="main", kind="commit")
    metrics.count(REQUESTS, branch="main", kind="commit", outcome="commit_conflict")
    metrics.count(REQUESTS, 5, branch="audit", kind="merge", outcome="ok")
    now = metrics.snapshot()
    assert now.count(REQUESTS, branch="main", kind="commit", outcome="ok") == 2
    assert now.count(REQUESTS, branch="main") == 3
    assert now.count(REQUESTS, outcome="ok") == 7
    assert now.count(REQUESTS) == 8
    assert now.count(REQUESTS, branch="nowhere") == 0
    labels = (("branch", "audit"), ("kind", "merge"), ("outcome", "ok"))
    assert now.counts[Series("penstock_requests_total", labels)] == 5


def test_a_gauge_is_what_it_was_set_to_last() -> None:
    metrics = Metrics()
    assert metrics.snapshot().gauge(QUEUE_DEPTH, branch="main") is None
    metrics.gauge(QUEUE_DEPTH, 7, branch="main")
    metrics.gauge(QUEUE_DEPTH, 3, branch="main")
    assert metrics.snapshot().gauge(QUEUE_DEPTH, branch="main") == 3


def test_a_snapshot_stays_as_it_was() -> None:
    metrics = Metrics()
    metrics.count(TRIES, branch="main")
    before = metrics.snapshot()
    metrics.count(TRIES, branch="main")
    assert before.count(TRIES) == 1


def test_a_label_that_is_missing_or_unknown_is_an_error() -> None:
    metrics = Metrics()
    for labels in ({}, {"brunch": "main"}, {"branch": "main", "kind": "commit"}):
        with pytest.raises((TypeError, KeyError)):
            metrics.count(TRIES, **labels)
    assert metrics.snapshot().counts == {}


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("middle", [2e-6, 0.004, 90.0, 5e9])
def test_percentiles_are_close_to_those_of_all_values(middle: float, spread: float) -> None:
    chance, metrics = random.Random(7), Metrics()
    values = sorted(middle * chance.lognormvariate(0, spread) for _ in range(5001))
    for value in values:
        metrics.observe(QUEUE_WAIT_SECONDS, value)
    found = metrics.snapshot().distribution(QUEUE_WAIT_SECONDS)
    assert found is not None
    assert found.count == 5001
    assert found.sum == pytest.approx(sum(values))
    assert found.max == values[-1]
    assert found.p50 == pytest.approx(values[2500], rel=1 / PARTS)
    assert found.p99 == pytest.approx(values[4950], rel=1 / PARTS)


def test_few_and_odd_values_have_percentiles_too() -> None:
    metrics = Metrics()
    assert metrics.snapshot().distribution(BATCH_REQUESTS) is None
    metrics.observe(BATCH_REQUESTS, 1)
    only = ValueSummary(count=1, sum=1, max=1, p50=1, p99=1)
    assert metrics.snapshot().distribution(BATCH_REQUESTS) == only
    for value in (0.0, -1.0, 1e-300, 1e300):
        metrics.observe(REQUEST_SECONDS, value, kind="commit")
    found = metrics.snapshot().distribution(REQUEST_SECONDS, kind="commit")
    assert found is not None
    assert (found.count, found.p50, found.max) == (4, 0.0, 1e300)


def test_what_is_kept_does_not_grow_with_what_is_observed() -> None:
    chance, metrics = random.Random(1), Metrics()
    for _ in range(20_000):
        metrics.observe(QUEUE_WAIT_SECONDS, 10.0 ** chance.uniform(-300, 300))
    ((_, histogram),) = metrics._histograms.items()
    assert len(histogram._parts) < 100 * PARTS


def test_branches_beyond_the_bound_share_a_name() -> None:
    metrics = Metrics(branches_max=3)
    for number in range(10):
        metrics.count(SWAPS_LOST, branch=f"b{number}")
        metrics.count(TRIES, 2, branch=f"b{number}")
        metrics.gauge(QUEUE_DEPTH, number, branch=f"b{number}")
    metrics.count(TRIES, branch="b0")
    now = metrics.snapshot()
    shown = {value for series in now.counts for _, value in series.labels}
    assert shown == {"b0", "b1", "b2", OTHER}
    assert now.count(TRIES, branch=OTHER) == 14
    assert now.count(TRIES, branch="b0") == 3
    assert now.count(TRIES) == 21


def test_a_gauge_of_a_branch_beyond_the_bound_is_left_out() -> None:
    metrics = Metrics(branches_max=1)
    metrics.gauge(QUEUE_DEPTH, 5, branch="first")
    metrics.gauge(QUEUE_DEPTH, 6, branch="second")
    assert list(metrics.snapshot().gauges.values()) == [5]


def test_no_branch_can_be_called_what_stands_for_all_others() -> None:
    with pytest.raises(InvalidName):
        check_name(OTHER)


def test_by_default_a_hundred_branches_are_shown() -> None:
    metrics = Metrics()

    def work(start: int) -> None:
        for number in range(start, start + 100):
            metrics.count(TRIES, branch=f"b{number}")

    at_once(*(partial(work, start) for start in (0, 50, 100, 150)))
    now = metrics.snapshot()
    assert len(now.counts) == 101
    assert now.count(TRIES) == 400


def test_threads_lose_no_figure() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(2000):
            metrics.count(TRIES, branch="main")
            metrics.observe(BATCH_REQUESTS, 2)

    at_once(*[work] * 4)
    now = metrics.snapshot()
    assert now.count(TRIES) == 8000
    found = now.distribution(BATCH_REQUESTS)
    assert found is not None
    assert (found.count, found.sum) == (8000, 16000)


def test_the_silent_meter_takes_everything() -> None:
    meter: Meter = SILENT
    meter.count(TRIES, branch="main")
    meter.observe(BATCH_REQUESTS, 1)
    meter.gauge(QUEUE_DEPTH, 1, branch="main")
