"""A catalogue behind a check: it answers a caller only what they may ask."""

from __future__ import annotations

from math import inf
from typing import Any, Final, TypeVar, cast

import msgspec

from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake import calls, resync_calls
from penstock.lake.answers import Figures, RequestCounts
from penstock.lake.audits import calls as audit_calls
from penstock.lake.call import request_digest
from penstock.lake.catalogue import Catalogue
from penstock.lake.figures import gather_figures
from penstock.lake.lake import Lake
from penstock.lake.transactions import calls as transaction_calls
from penstock.model.keys import Key
from penstock.model.tokens import Role
from penstock.model.transactions import PREFIX, is_transaction
from penstock.server.access import read_rules, transactions, write_rules
from penstock.server.access.caller import Caller
from penstock.server.access.format_rules import AccessRule, load_format_rules, load_other_format_rules
from penstock.server.access.idempotency_keys import UnmarkedKeys, make_stored_key
from penstock.server.access.rights import CallerRights
from penstock.server.access.transactions import find_named_transactions, grant_transaction_rights

R = TypeVar("R")


class CheckedCalls:
    """A catalogue for a rule of a call that other calls answer: each is checked as if the caller asked it."""

    page_max: int | None = None

    def __init__(self, rights: CallerRights) -> None:
        self._rights = rights

    def do(self, call: calls.Call[R], progress: Progress = show_no_progress) -> R:  # noqa: ARG002 - the rights have it
        rule = find_rule(type(call))
        if rule is None:
            raise self._rights.caller.denied_error(f"ask for {type(call).__name__}")
        return cast("R", rule(self._rights, call))

    def close(self) -> None:
        """The lake stays open: others use it too."""


def get_figures(rights: CallerRights, call: calls.GetFigures) -> Figures:
    """Each figure is for those who may ask for what it is made of; branches only if they may be read."""

    def read_requests() -> tuple[RequestCounts, ...] | None:
        counts = rights.do(calls.CountRequests())
        if counts is None:
            return None
        return tuple(
            count for count in counts if rights.caller.find_granted_keys(Role.READ, count.branch).patterns
        )

    return gather_figures(CheckedCalls(rights), call, Lake, read_requests)


LAKE_RULES: Final[dict[type[calls.Call[Any]], AccessRule]] = {
    calls.GetAbout: write_rules.show_about,
    calls.GetSetting: write_rules.allow_anybody,
    calls.PutSetting: write_rules.for_administrators,
    calls.ChangeRoots: write_rules.for_administrators,
    calls.KeepHistory: write_rules.for_administrators,
    calls.SetGrace: write_rules.for_administrators,
    calls.Sweep: write_rules.make_rule_for_role(Role.MAINTAIN),
    calls.SweepTables: write_rules.make_table_rule_for_role(Role.MAINTAIN),
    calls.EraseTable: write_rules.make_table_rule_for_role(Role.ERASE),
    resync_calls.Resync: write_rules.make_table_rule_for_role(Role.MAINTAIN),
    calls.Fsck: write_rules.make_rule_for_role(Role.MAINTAIN),
    calls.ListTokens: write_rules.for_administrators,
    calls.PutToken: write_rules.for_administrators,
    calls.RevokeToken: write_rules.for_administrators,
    audit_calls.ListExpectations: read_rules.list_expectations,
    audit_calls.AddExpectation: write_rules.change_expectations,
    audit_calls.RemoveExpectation: write_rules.change_expectations,
    calls.ListReferences: read_rules.list_references,
    calls.GetReference: read_rules.get_reference,
    calls.GetReferenceLog: read_rules.get_reference_log,
    calls.CreateReference: write_rules.create_reference,
    calls.AssignReference: write_rules.assign_reference,
    calls.DeleteReference: write_rules.delete_reference,
    calls.Resolve: read_rules.resolve_revision,
    calls.GetContents: read_rules.get_contents,
    calls.ListEntries: read_rules.list_entries,
    calls.GetCommit: read_rules.get_commit,
    calls.GetChanges: read_rules.get_changes,
    calls.ListCommits: read_rules.list_commits,
    calls.SearchLog: read_rules.search_log,
    calls.GetFigures: get_figures,
    calls.Diff: read_rules.diff_commits,
    calls.Compare: read_rules.compare_commits,
    calls.GetOutcome: read_rules.get_outcome,
    calls.CommitOperations: write_rules.commit_operations,
    calls.Merge: write_rules.merge,
    calls.Transplant: write_rules.transplant,
    calls.Revert: write_rules.revert,
    calls.Restore: write_rules.restore,
    calls.Rebase: write_rules.rebase,
    transaction_calls.BeginTransaction: transactions.begin_transaction,
    transaction_calls.GetTransaction: transactions.get_transaction,
    transaction_calls.RenewTransaction: transactions.renew_transaction,
    transaction_calls.NoteReads: transactions.note_reads,
    transaction_calls.CommitTransaction: transactions.commit_transaction,
    transaction_calls.AbortTransaction: transactions.abort_transaction,
    transaction_calls.ListTransactions: transactions.list_transactions,
}
"""The rule of every call that the lake itself answers."""


def find_rule(call: type[calls.Call[Any]]) -> AccessRule | None:
    """The rule of a call: it checks, asks for no more than may be seen, and leaves out the rest."""
    return LAKE_RULES.get(call) or load_format_rules().get(call) or load_other_format_rules().get(call)


class CheckedCatalogue:
    """A catalogue as one caller sees it. ``Denied`` if they may not ask something.

    Made for each request. What is written says that the caller wrote it, whatever the request says of that;
    authors are for the request to name.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        caller: Caller,
        deadline_s: float = inf,
        unmarked: UnmarkedKeys | None = None,
    ) -> None:
        """``deadline_s`` is when the client stops waiting, in the time of ``time.monotonic``."""
        self._catalogue, self._caller, self._deadline_s = catalogue, caller, deadline_s
        self._unmarked = unmarked
        self.page_max = catalogue.page_max

    def do(self, call: calls.Call[R], progress: Progress = show_no_progress) -> R:
        rule = find_rule(type(call))
        if rule is None or not self._caller.grants:
            raise self._caller.denied_error(f"ask for {type(call).__name__}")
        if isinstance(call, calls.WriteCall):
            if call.idempotency_key is not None:  # rules may put it otherwise, but it stays the same request
                this_one = request_digest(call)
                key = make_stored_key(self._catalogue, self._caller, call, this_one, self._unmarked)
                call = msgspec.structs.replace(call, asked=this_one, idempotency_key=key)
            if self._caller.name:
                call = msgspec.structs.replace(call, who=self._caller.name)
        caller = grant_transaction_rights(self._catalogue, self._caller, find_named_transactions(call))
        return cast("R", rule(CallerRights(self._catalogue, caller, progress, self._deadline_s), call))

    def require_write(self, branch: str | None, key: Key) -> None:
        """``Denied`` if the caller may not change a key of a branch: for work that comes before the call."""
        caller = self._caller
        if branch is not None and is_transaction(branch):
            caller = grant_transaction_rights(self._catalogue, caller, [branch.removeprefix(PREFIX)])
        if not caller.find_keys_granted_everywhere(Role.WRITE).are_all:
            rights = CallerRights(self._catalogue, caller, show_no_progress, self._deadline_s)
            keys = caller.require_role(Role.WRITE, rights.get_reference_or_default(branch))
            caller.require_key(keys, Role.WRITE, key)

    def close(self) -> None:
        """The lake stays open: others use it too."""
