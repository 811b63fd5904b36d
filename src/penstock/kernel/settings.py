"""Every limit of the kernel, with its unit and its default."""

from __future__ import annotations

from typing import Final

import msgspec

DAY_US: Final = 24 * 3600 * 1_000_000
IDEMPOTENCY_DAYS: Final = 7.0
"""For so long every writer can rely on its idempotency keys: the default, and the least that a sweep may be
told while others write. Jobs and transactions that have ended are told for as long."""
WRITE_MAX_S: Final = 600.0
"""The longest that a write may take, with all tries and waits: well below the shortest grace period that a
lake may have, and below the time after its receipt within which a request lands (``RECEIPT_WINDOW_US``)."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one kernel in one process."""

    tries_max: int = 100
    """How often a write is tried against a branch that keeps moving."""
    write_timeout_s: float = 10.0
    """How long a write may take in total, all tries included; at most 600. Waiting for the turn to be
    prepared again, while requests before it land, is not counted, up to ten times as long, and 600 s in
    all."""
    backoff_min_ms: float = 2.0
    """The wait after the first lost try; it doubles from try to try, and a random part of it is waited."""
    backoff_max_ms: float = 250.0
    """The longest wait between two tries."""
    batch_max: int = 256
    """How many requests one swap lands at most."""
    queues_max: int = 512
    """How many branches' queues keep their head in memory."""
    cache_max_bytes: int = 64 * 1024 * 1024
    """How much of the lake's objects is kept in memory."""
    idempotency_days: float = IDEMPOTENCY_DAYS
    """How long an idempotency key is remembered. A sweep forgets keys earlier than after 7 days only with
    `nobody_writes`."""
    grace_s: float | None = None
    """How long unreachable objects stay in sweeps of this process: what the lake says (`penstock grace`), and
    longer if this is more. Less than the lake says only with `nobody_writes`."""
    data_grace_days: float | None = None
    """The same for data files of tables that no commit names. A job commits what it wrote within half of it,
    or not at all; so it is more than twice as long as any job takes."""
    nobody_writes: bool = False
    """States that nobody writes to the lake while this process sweeps it: then `grace_s` and
    `data_grace_days` may be less than the lake says. If somebody does, what they write may be lost."""
    transaction_lease_s: float = 3600.0
    """How long a transaction may be idle, unless it is begun with another lease."""
    transaction_max_days: float = 2.0
    """How long a transaction may be open in all. Well below the seven days after which Lance takes files for
    abandoned that no version names."""
    tombstone_days: float = 90.0
    """How long the log of a deleted reference can be read."""
    publish_wait_s: float = 1.0
    """How long a commit waits until the log of its Delta tables shows it; it is ratified in any case."""
    promote_wait_s: float = 1.0
    """How long a commit waits until every reader of its Lance tables finds it; it is ratified in any case."""
    publish_close_s: float = 10.0
    """How long a lake that is closed goes on publishing what it ratified."""
    expectation_timeout_s: float = 60.0
    """How long one query of what a branch expects may take, and how long a writer waits for others to be
    checked. A query that takes longer vetoes what it is asked about."""
    unpublished_max: int = 10_000
    """How many versions of a Delta table may wait to be published; then its writers have to wait too."""
