"""What a branch expects: added to its row and taken from it by one swap each.

An expectation holds when it is added: it is asked of the head, and the swap rests on the tables that were
looked at. From then on nothing goes to the branch that was not asked about (see ``kernel.checks``). A fork
does not inherit it, and a branch that is deleted and made anew has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import CommitVetoed, InvalidRequest, RetriesExhausted
from penstock.kernel.chain import CommitChain
from penstock.kernel.checks import NOBODY_ASKS, make_proposal, run_check
from penstock.kernel.records import KeepRow
from penstock.kernel.references import NOTE_MAX_BYTES, ReferenceDecision
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId
from penstock.model.expectations import (
    Expectation,
    check_expectation,
    encode_expectations,
    has_expectations,
    read_expectations,
)
from penstock.model.keys import Key
from penstock.model.references import Event, Kind, Reference
from penstock.model.transactions import is_transaction
from penstock.stores.port import Row

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel


def add_expectation(kernel: Kernel, branch: str, expectation: Expectation) -> tuple[Expectation, ...]:
    """Have a branch expect something from now on; returns all that it expects then.

    The same once more changes nothing. ``InvalidRequest`` if it expects something else by that name, if it
    does not fit into the row, or if the row is for something else; ``CommitVetoed`` if it does not hold.
    """
    check_expectation(expectation.name, expectation.sql)
    if is_transaction(branch):
        raise InvalidRequest(
            f"an expectation cannot be added to '{branch}', the branch of a transaction: the transaction is "
            "checked against the expectations of its target branch when it commits"
        )

    def decide_change(row: Row | None) -> ReferenceDecision | KeepRow[Reference | None]:
        reference = kernel.references.require_expected(branch, row, None, Kind.BRANCH)
        known_expectations = _require_expectations(reference)
        same = next(
            (candidate for candidate in known_expectations if candidate.name == expectation.name), None
        )
        if same is not None:
            if same.sql == expectation.sql:
                return KeepRow(reference)
            raise InvalidRequest(
                f"'{branch}' already has an expectation '{same.name}': {same.sql}", name=branch
            )
        if _have_different_keys(kernel, fingerprint_head, reference.head, expectation.keys):
            return KeepRow(None)  # a table that was asked about is another one by now
        return _replace_expectations(reference, (*known_expectations, expectation))

    for _ in range(kernel.settings.tries_max):
        reference = kernel.branch(branch)
        fingerprint_head = reference.head
        if expectation.name not in {expectation.name for expectation in _require_expectations(reference)}:
            _require_held(kernel, reference, expectation)
        expecting = kernel.references.swap_reference(branch, decide_change, expectation.who)
        if expecting is not None:
            return read_expectations(expecting)
    raise RetriesExhausted(
        f"the tables of '{expectation.name}' changed {kernel.settings.tries_max} times on '{branch}' while "
        "the expectation was checked. Nothing was added; try again when there is less traffic.",
        tries=kernel.settings.tries_max,
    )


def remove_expectation(kernel: Kernel, branch: str, name: str, who: str = "") -> tuple[Expectation, ...]:
    """Remove an expectation from a branch; returns the remaining ones. ``InvalidRequest`` if it did not."""

    def decide_change(row: Row | None) -> ReferenceDecision:
        reference = kernel.references.require_expected(branch, row, None, Kind.BRANCH)
        known_expectations = read_expectations(reference)
        remaining_expectations = tuple(
            expectation for expectation in known_expectations if expectation.name != name
        )
        if remaining_expectations == known_expectations:
            raise InvalidRequest(f"'{branch}' has no expectation '{name}'", name=branch)
        return _replace_expectations(reference, remaining_expectations)

    return read_expectations(kernel.references.swap_reference(branch, decide_change, who))


def _require_expectations(reference: Reference) -> tuple[Expectation, ...]:
    if reference.note and not has_expectations(reference):
        raise InvalidRequest(
            f"'{reference.name}' is a program's private branch, which cannot have expectations",
            name=reference.name,
        )
    return read_expectations(reference)


def _replace_expectations(reference: Reference, expectations: tuple[Expectation, ...]) -> ReferenceDecision:
    note = encode_expectations(expectations)
    if len(note) > NOTE_MAX_BYTES:
        raise InvalidRequest(
            f"the expectations of '{reference.name}' would have {len(note)} bytes, more than the limit of "
            f"{NOTE_MAX_BYTES}\n  Remove one, or combine several into one query.",
            name=reference.name,
        )
    return ReferenceDecision(msgspec.structs.replace(reference, note=note), Event.NOTE)


def _require_held(kernel: Kernel, reference: Reference, expectation: Expectation) -> None:
    """``CommitVetoed`` if the branch is not as expected to begin with."""
    engine = kernel.checks.engine
    if engine is None:
        raise InvalidRequest(NOBODY_ASKS)
    shown = make_proposal(reference, CommitChain(kernel.objects, reference.head), CommitMeta(), [])
    reason = run_check(expectation.name, lambda proposal: engine.find_violation(proposal, expectation), shown)
    if reason is not None:
        raise CommitVetoed(
            f"'{reference.name}' does not meet the expectation '{expectation.name}': {reason}",
            check=expectation.name,
            name=reference.name,
            reason=reason,
        )


def _have_different_keys(kernel: Kernel, commit_id: ObjectId, other: ObjectId, keys: Iterable[Key]) -> bool:
    """Whether two commits have different things at some of the keys."""
    if commit_id == other:
        return False
    before, after = kernel.read_state(commit_id), kernel.read_state(other)
    stored = [key.encode() for key in keys]
    return before.get_many(stored) != after.get_many(stored)
