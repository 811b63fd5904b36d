"""Kernels broken on purpose: for a while, one piece is replaced by one with a mistake in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from penstock.errors import CommitConflict
from penstock.kernel import tree
from penstock.kernel.batch import Batch, RequestOutcome
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.commit import CommitRequest, _ExpectedBase
from penstock.kernel.kernel import Kernel
from penstock.kernel.queue import BranchQueue
from penstock.kernel.reachable import ReachableObjects
from penstock.kernel.request import Request
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import CommitObject, Leaf, Node
from penstock.model.operations import Put


@contextmanager
def drops_a_key() -> Iterator[None]:
    """Of a commit of several keys, the last is left out."""
    add = CommitChain.add_draft

    def broken(chain: CommitChain, draft: CommitDraft) -> None:
        changes = dict(draft.changes)
        if 1 < len(changes) < 10:
            changes.popitem()
        add(chain, draft._replace(changes=changes))

    with patch.object(CommitChain, "add_draft", broken):
        yield


@contextmanager
def takes_a_key_along() -> Iterator[None]:
    """A commit also changes a key that it was not asked to."""
    add = CommitChain.add_draft

    def broken(chain: CommitChain, draft: CommitDraft) -> None:
        changes = dict(draft.changes)
        for key, value in draft.changes.items():
            if key == b"table5":
                changes[b"table4"] = value
        add(chain, draft._replace(changes=changes))

    with patch.object(CommitChain, "add_draft", broken):
        yield


@contextmanager
def swaps_two_commits() -> Iterator[None]:
    """Every other request is acknowledged at once, and lands only after the next one."""
    submit = BranchQueue.submit_request
    waiting: dict[int, Request] = {}

    def broken(queue: BranchQueue, request: Request) -> RequestOutcome:
        held = waiting.pop(id(queue), None)
        if held is None and not request.key.startswith("again"):
            waiting[id(queue)] = request
            return RequestOutcome((NO_COMMIT,), NO_COMMIT)
        outcome = submit(queue, request)
        if held is not None:
            submit(queue, held)
        return outcome

    with patch.object(BranchQueue, "submit_request", broken):
        yield


@contextmanager
def applies_what_it_refuses() -> Iterator[None]:
    """A request in conflict is refused, and applied all the same."""
    submit = Kernel.submit_request

    def broken(kernel: Kernel, branch: str, request: Request) -> RequestOutcome:
        try:
            return submit(kernel, branch, request)
        except CommitConflict:
            assert isinstance(request, CommitRequest)
            request._base = None
            request._operations = tuple(
                operation for operation in request._operations if isinstance(operation, Put)
            )
            submit(kernel, branch, request)
            raise

    with patch.object(Kernel, "submit_request", broken):
        yield


@contextmanager
def ignores_the_base() -> Iterator[None]:
    """What a writer read is not compared with what is there: a lost update."""
    with patch.object(_ExpectedBase, "check_unchanged", lambda *_: True):
        yield


@contextmanager
def takes_any_receipt() -> Iterator[None]:
    """All requests look alike to the receipts, so a key's outcome answers whatever comes under it."""
    with patch.object(CommitRequest, "digest", b"a request"):
        yield


@contextmanager
def forgets_receipts() -> Iterator[None]:
    """A repeated request is not recognised."""
    with patch.object(Batch, "_make_receipts", lambda *_: {}):
        yield


@contextmanager
def never_looks_back() -> Iterator[None]:
    """After a lost answer the request is simply applied again, under a new receipt."""

    def broken(batch: Batch, reference: Any) -> None:  # noqa: ARG001
        for ticket in batch._open:
            ticket.receipt_number += ticket.in_doubt_from is not None

    with patch.object(Batch, "_find_landed", broken):
        yield


@contextmanager
def sorts_nodes_wrongly() -> Iterator[None]:
    """Tree nodes are stored with two keys exchanged; their ids are right for what they hold."""
    pack = tree.pack_node

    def broken(level: int, keys: list[bytes], values: list[Any]) -> tuple[bytes, Leaf | Node]:
        mixed, mixed_values = list(keys), list(values)
        if len(keys) > 3:
            mixed[1], mixed[2] = mixed[2], mixed[1]
            mixed_values[1], mixed_values[2] = mixed_values[2], mixed_values[1]
        return pack(level, mixed, mixed_values)[0], pack(level, keys, values)[1]

    with patch.object(tree, "pack_node", broken):
        yield


@contextmanager
def cuts_nodes_elsewhere() -> Iterator[None]:
    """Tree nodes end where the rule does not say, so that equal content has different roots."""
    cuts = tree.find_node_ends

    def broken(level: int, keys: list[bytes]) -> Iterator[int]:
        return iter([end - 1 for end in cuts(level, keys) if end > 1])

    with patch.object(tree, "find_node_ends", broken):
        yield


@contextmanager
def sweeps_what_is_reachable() -> Iterator[None]:
    """The sweep does not look into tree nodes for what they lead to."""
    with patch.object(ReachableObjects, "_list_children", lambda *_: []):
        yield


@contextmanager
def skips_a_parent() -> Iterator[None]:
    """Now and then a commit is put on top of its grandparent."""
    yield from _with_commits(_on_grandparent)


@contextmanager
def turns_time_back() -> Iterator[None]:
    """A commit takes the clock's time as it is, and the clock goes backwards."""
    yield from _with_commits(_date_before_parent)


def _on_grandparent(commit: CommitObject, below: CommitObject) -> CommitObject:
    return msgspec.structs.replace(commit, parent=below.parent) if commit.depth % 9 == 0 else commit


def _date_before_parent(commit: CommitObject, below: CommitObject) -> CommitObject:
    return msgspec.structs.replace(commit, time_us=below.time_us - 5) if commit.depth % 9 == 0 else commit


def _with_commits(change: Callable[[CommitObject, CommitObject], CommitObject]) -> Iterator[None]:
    make = CommitChain._build_commit

    def broken(chain: CommitChain, pending: Any, now_us: int) -> CommitObject:
        return change(make(chain, pending, now_us), chain.commit)

    with patch.object(CommitChain, "_build_commit", broken):
        yield


@contextmanager
def answers_with_the_head() -> Iterator[None]:
    """Every request of a batch is answered with the branch's head instead of its own commit."""
    submit = BranchQueue.submit_request
    last: list[ObjectId] = []

    def broken(queue: BranchQueue, request: Request) -> RequestOutcome:
        outcome = submit(queue, request)
        last.append(outcome.head)
        return outcome._replace(head=last[-2] if len(last) > 1 else outcome.head)

    with patch.object(BranchQueue, "submit_request", broken):
        yield
