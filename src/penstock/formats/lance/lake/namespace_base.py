"""What all operations of a Lance namespace share: the lake, the branch or commit, and calls to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from penstock.errors import InvalidRequest, OwnRefNotFound, VersionNotFound
from penstock.formats.lance.lake.answers import LanceCommitResult, LanceTableInfo, LanceVersion
from penstock.formats.lance.lake.calls import (
    CommitLance,
    GetLanceTable,
    LanceOperation,
    ListLanceBranches,
    ListLanceTags,
    ListLanceVersions,
)
from penstock.lake import calls
from penstock.lake.call import Call, CommitDescription
from penstock.lake.transactions.read_set import is_serializable, note_reads
from penstock.lake.views import Snapshot
from penstock.model.keys import Key
from penstock.model.names import parse_revision
from penstock.model.operations import Operation
from penstock.model.reads import Read
from penstock.model.references import Kind
from penstock.model.transactions import PREFIX
from penstock.wire.requests import KEY_HEADER

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

R = TypeVar("R")

KEY_CONTEXT: Final = "idempotency_key"
"""The entry of a request's context under which it is done once."""


class NamespaceBase:
    """A lake at a branch, in a transaction, or at a commit, which is read-only."""

    is_noted = True
    """Whether what is looked at in a serializable transaction counts as read."""

    def __init__(
        self, lake: Lake, ref: str | None = None, *, via: str | None = None, is_read_only: bool = False
    ) -> None:
        self.lake = lake
        self.branch: str | None = None
        """The branch, or the branch of the transaction, that is written to; nothing where nothing is."""
        self._at: str | None = ref
        self._via: str | None = via
        self._said = CommitDescription()
        if via is not None:
            return  # a commit, and what led to it
        if not is_read_only and _is_branch(lake, ref):
            self.branch = lake.default_branch if ref is None else ref
            self._at = self.branch
        else:
            resolved = lake.do(calls.Resolve(revision=ref))
            self._at, self._via = resolved.commit, resolved.name

    def do(self, call: Call[R]) -> R:
        return self.lake.do(call)

    @property
    def outside_read_set(self) -> Self:
        """The same, but reads are not added to a transaction's read set: a write needs them."""
        unnoted_copy = copy(self)
        unnoted_copy.is_noted = False
        return unnoted_copy

    def note_read(self, key: Key | None, *, is_listing: bool = False) -> None:
        """In a serializable transaction, remember that a table is about to be read, or names are.

        Lance's clients open a table also to write to it, and do not say what for. So in other transactions
        nothing is remembered of what they look at.
        """
        if self.is_noted and is_serializable(self.lake, self._at, self._via):
            note_reads(self.lake, self._at, self._via, Read(key=key, is_listing=is_listing))

    def snapshot(self) -> Snapshot:
        """The lake as it is now, for a list that needs more than one call."""
        if self.branch is None:
            assert self._at is not None
            return Snapshot(self.lake, self._at, self._via, is_noted=False)
        resolved = self.do(calls.Resolve(revision=self._at))
        return Snapshot(self.lake, resolved.commit, resolved.name, is_noted=False)

    # -- reading -------------------------------------------------------------------------------------------

    @property
    def at(self) -> dict[str, Any]:
        """Where reads look, as calls say it."""
        return {"at": self._at, "via": self._via}

    @property
    def at_folder(self) -> dict[str, Any]:
        """The same, for what names files: where something can be written, they are named as for a writer."""
        return {**self.at, "to_write": self.branch is not None}

    def get_table_info(self, key: Key) -> LanceTableInfo:
        return self.do(GetLanceTable(key=key, **self.at_folder))

    def list_versions(self, key: Key, branch: str | None, **chosen: Any) -> tuple[LanceVersion, ...]:
        return self.do(ListLanceVersions(key=key, branch=branch or "", **self.at_folder, **chosen))

    def get_version(self, key: Key, branch: str | None, number: int | None) -> LanceVersion:
        """A version, the newest one if none is named; ``VersionNotFound``."""
        chosen = {"limit": 1} if number is None else {"version": number}
        for version in self.list_versions(key, branch, **chosen):
            return version
        what = f"no version {number}" if number is not None else "no version yet"
        raise VersionNotFound(f"'{key}' has {what}", table=str(key))

    def find_tag(self, key: Key, tag: str) -> tuple[str, int]:
        """Lance's own branch and the version that one of Lance's tags points to. ``OwnRefNotFound`` if there
        is no such tag."""
        call = ListLanceTags(key=key, **self.at)
        for page in self.lake.pages(call, None, lambda last: {"after": last.name}):
            if page.name == tag:
                return page.branch, page.version
        raise OwnRefNotFound(f"'{key}' has no tag '{tag}'", tag=tag)

    def require_own_branch(self, key: Key, branch: str) -> None:
        """``OwnRefNotFound`` if a table has no such branch of Lance's own."""
        call = ListLanceBranches(key=key, **self.at)
        pages = self.lake.pages(call, None, lambda last: {"after": last.name})
        if all(own_branch.name != branch for own_branch in pages):
            raise OwnRefNotFound(f"'{key}' has no branch '{branch}'", branch=branch)

    # -- writing -------------------------------------------------------------------------------------------

    def require_branch(self) -> str:
        """The branch to write to; ``InvalidRequest`` where nothing can be written."""
        if self.branch is None:
            raise InvalidRequest(
                "this namespace shows a commit, which cannot change\n  Use the namespace of a branch to "
                "write."
            )
        return self.branch

    def change_tables(
        self,
        operations: Sequence[LanceOperation],
        context: dict[str, str] | None = None,
        key: str | None = None,
    ) -> LanceCommitResult:
        """Change Lance tables in one commit."""
        return self.do(
            CommitLance(
                branch=self.require_branch(),
                operations=tuple(operations),
                create=False,
                said=self._said,
                who=self.lake.author,
                idempotency_key=get_idempotency_key(context) or key,
            )
        )

    def put_catalog_entries(
        self,
        operations: Iterable[Operation],
        base: str | None,
        message: str,
        context: dict[str, str] | None = None,
    ) -> None:
        """Change other things of the lake in one commit."""
        self.do(
            calls.CommitOperations(
                branch=self.require_branch(),
                operations=tuple(operations),
                base=base,
                said=_add_message(self._said, message),
                who=self.lake.author,
                idempotency_key=get_idempotency_key(context),
            )
        )


def _add_message(description: CommitDescription, message: str) -> CommitDescription:
    return (
        description
        if description.message is not None
        else msgspec.structs.replace(description, message=message)
    )


def get_idempotency_key(context: dict[str, str] | None) -> str | None:
    """The key under which a request is done once, if it has one."""
    for name, value in (context or {}).items():
        if name == KEY_CONTEXT or name.lower() == f"header.{KEY_HEADER.lower()}":
            return value
    return None


def _is_branch(lake: Lake, ref: str | None) -> bool:
    if ref is None or ref == lake.default_branch or ref.startswith(PREFIX):
        return True
    parsed = parse_revision(ref)
    if parsed.name is None or parsed.commit is not None or parsed.steps:
        return False
    return lake.do(calls.GetReference(name=ref)).kind is Kind.BRANCH
