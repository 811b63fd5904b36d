"""Kernels and stores broken on purpose, and how each is noticed: they are what tests the checks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple

from penstock.stores.port import Store
from penstock.testing import broken_kernels as kernels
from penstock.testing import broken_stores as stores


class Broken(NamedTuple):
    """A kernel or store with one mistake in it."""

    mistake: str
    """It …"""
    noticed_by: frozenset[str]
    """What notices it: violations of a history, ``fsck``, ``error`` (of the kernel's own), ``contract``."""
    wrap: Callable[[Store], Store] = lambda store: store
    tamper: Callable[[], AbstractContextManager[object]] = nullcontext


def _store(mistake: str, wrap: Callable[[Store], Store], *noticed_by: str) -> Broken:
    return Broken(mistake, frozenset(noticed_by), wrap=wrap)


def _broken_kernel(
    mistake: str, tamper: Callable[[], AbstractContextManager[object]], *noticed_by: str
) -> Broken:
    return Broken(mistake, frozenset(noticed_by), tamper=tamper)


BROKEN: Final = (
    _store("acknowledges before it writes", stores.AcknowledgesFirst, "LostCommit", "contract"),
    _store("replaces a row without comparing it", stores.SkipsTheCompare, "LostCommit", "contract"),
    _store("says that a lost swap was done", stores.SaysSwappedWhenLost, "LostCommit", "contract"),
    _store("loses the last batch when it is closed", stores.LosesTheLastBatch, "LostCommit", "contract"),
    _store("does not look for fresh objects", stores.IgnoresFresh, "DoubledCommit", "contract"),
    _store("answers with stale rows", stores.AnswersStaleRows, "StaleRead", "contract"),
    _store("cuts long objects short", stores.TruncatesObjects, "error", "contract"),
    _store("swaps before the objects are there", stores.SwapsWithoutTheObjects, "fsck", "contract"),
    _store("moves a branch without a log entry", stores.ForgetsTheLog, "BrokenLog", "fsck"),
    _store("deletes what was stored again", stores.DeletesWhatWasStoredAgain, "fsck", "contract"),
    _store("does not note that an object was stored again", stores.NeverRefreshes, "fsck", "contract"),
    _store("replaces objects that are there", stores.ReplacesObjects, "contract"),
    _store("leaves objects out of a scan", stores.SkipsInScans, "contract"),
    _store("lists rows of other kinds", stores.ListsOtherKinds, "contract"),
    _broken_kernel("drops one key of a commit", kernels.drops_a_key, "TornCommit"),
    _broken_kernel("takes a key along that nobody asked for", kernels.takes_a_key_along, "TornCommit"),
    _broken_kernel("lands two commits in the wrong order", kernels.swaps_two_commits, "OutOfOrder"),
    _broken_kernel("applies a request that it refuses", kernels.applies_what_it_refuses, "RefusedButApplied"),
    _broken_kernel("ignores the base that a writer read", kernels.ignores_the_base, "LostUpdate"),
    _broken_kernel("takes the receipt of another request", kernels.takes_any_receipt, "TornCommit"),
    _broken_kernel("forgets that it has seen a request", kernels.forgets_receipts, "DoubledCommit"),
    _broken_kernel("applies a request again after a lost answer", kernels.never_looks_back, "DoubledCommit"),
    _broken_kernel("stores tree nodes that are not in order", kernels.sorts_nodes_wrongly, "fsck"),
    _broken_kernel("cuts tree nodes where it likes", kernels.cuts_nodes_elsewhere, "fsck"),
    _broken_kernel("sweeps what is reachable", kernels.sweeps_what_is_reachable, "fsck"),
    _broken_kernel("puts a commit on its grandparent", kernels.skips_a_parent, "BrokenChain"),
    _broken_kernel("lets time go backwards", kernels.turns_time_back, "BrokenChain", "fsck"),
    _broken_kernel("answers with another request's commit", kernels.answers_with_the_head, "WrongAnswer"),
)
"""Every one of them must be noticed by each of the checks that it names."""
