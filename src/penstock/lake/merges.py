"""How a lake brings changes of other commits to a branch: merges, transplants, reverts, restores, rebases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from penstock.errors import InvalidRequest
from penstock.formats.registry import load_member
from penstock.lake import calls
from penstock.lake.call import CommitOptions, commit_fields
from penstock.lake.call_maker import CallMaker
from penstock.model.commits import Commit
from penstock.model.keys import Key
from penstock.model.merges import HowToMerge, KeyMerge, MergeMode, MergeResult


class LakeMerges(CallMaker):
    """The part of a lake that brings changes of other commits to a branch."""

    def merge(
        self,
        source: str,
        into: str | None = None,
        *,
        message: str | None = None,
        author: str | None = None,
        keys: Mapping[str | Key, HowToMerge] | None = None,
        default: MergeMode | str = MergeMode.NORMAL,
        if_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Merge a branch, tag or commit into another branch.

        One commit with the source as second parent, so that merging again brings only newer changes. ``keys``
        says how to merge single keys: ``"force"``, ``"drop"``, or a ``KeyMerge`` with a given content. A
        mapping such as ``{"day=1/": "force"}`` treats folders of a table of files each in its own way: there
        it is as the source has it, or with ``"drop"`` as the target does. ``if_head`` refuses the merge if
        the target moved. Raises ``MergeConflict``; a dry run reports the conflicts instead.
        """
        return self.do(
            calls.Merge(
                source=source,
                into=into,
                said=calls.describe_commit(message, author),
                keys=_parse_key_merges(keys),
                default=_parse_merge_mode(default),
                if_head=if_head,
                dry_run=dry_run,
                idempotency_key=idempotency_key,
                who=self.author,
            )
        )

    def transplant(
        self,
        commits: str | Sequence[str],
        onto: str | None = None,
        *,
        message: str = "",
        keys: Mapping[str | Key, HowToMerge] | None = None,
        default: MergeMode | str = MergeMode.NORMAL,
        if_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Transplant (cherry-pick) commits to a branch, each as its own commit, all at once.

        ``commits`` are revisions, oldest first, or a range ``"dev~3..dev"`` (without its start).
        """
        return self.do(
            calls.Transplant(
                commits=(commits,) if isinstance(commits, str) else tuple(commits),
                onto=onto,
                said=calls.describe_commit(message),
                keys=_parse_key_merges(keys),
                default=_parse_merge_mode(default),
                if_head=if_head,
                dry_run=dry_run,
                idempotency_key=idempotency_key,
                who=self.author,
            )
        )

    def revert(
        self,
        commit: str,
        on: str | None = None,
        *,
        message: str | None = None,
        author: str | None = None,
        keys: Mapping[str | Key, HowToMerge] | None = None,
        if_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Revert a commit on a branch, by a new commit."""
        return self.do(
            calls.Revert(
                commit=commit,
                on=on,
                said=calls.describe_commit(message, author),
                keys=_parse_key_merges(keys),
                if_head=if_head,
                dry_run=dry_run,
                idempotency_key=idempotency_key,
                who=self.author,
            )
        )

    def restore(
        self,
        keys: str | Key | Sequence[str | Key] = (),
        *,
        to: str | Commit | None = None,
        namespace: str | Key | None = None,
        all: bool = False,  # noqa: A002
        leave: str | Key | Sequence[str | Key] = (),
        version: int | None = None,
        branch: str | None = None,
        if_head: str | None = None,
        dry_run: bool = False,
        **options: Unpack[CommitOptions],
    ) -> MergeResult:
        """Restore tables to their state at an earlier commit, by one new commit on a branch.

        ``keys`` are tables; a table that was dropped since comes back. ``namespace`` is a namespace and all
        that is below it, and ``all`` is every table: there, what was created since is dropped, except for
        what ``leave`` names. ``to`` is a revision, such as ``"main~3"``, a tag, or ``"main*2026-11-14"``;
        ``version`` one of a single Delta or Lance table. Nothing is removed from history. The restore
        replaces what others have written by then; ``if_head`` refuses it if the branch has moved. A dry run
        shows for each table what would change. ``MergeConflict`` names the tables that cannot be restored.
        """
        return self.do(
            calls.Restore(
                keys=_parse_keys(keys),
                namespace=None if namespace is None else Key.parse(namespace),
                all=all,
                leave=_parse_keys(leave),
                to=to.id if isinstance(to, Commit) else to,
                version=version,
                branch=branch,
                if_head=if_head,
                dry_run=dry_run,
                who=self.author,
                **commit_fields(**options),
            )
        )

    def rebase(
        self,
        branch: str,
        onto: str | None = None,
        *,
        keys: Mapping[str | Key, HowToMerge] | None = None,
        default: MergeMode | str = MergeMode.NORMAL,
        if_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Rebase a branch: repeat its own commits on top of another revision, and move the branch there."""
        return self.do(
            calls.Rebase(
                branch=branch,
                onto=onto,
                keys=_parse_key_merges(keys),
                default=_parse_merge_mode(default),
                if_head=if_head,
                dry_run=dry_run,
                idempotency_key=idempotency_key,
                who=self.author,
            )
        )


def _parse_keys(keys: str | Key | Sequence[str | Key]) -> tuple[Key, ...]:
    return (Key.parse(keys),) if isinstance(keys, str | Key) else tuple(map(Key.parse, keys))


def _parse_key_merges(keys: Mapping[str | Key, HowToMerge] | None) -> dict[str, KeyMerge]:
    return {str(Key.parse(key)): _parse_key_merge(how) for key, how in (keys or {}).items()}


def _parse_key_merge(how: HowToMerge) -> KeyMerge:
    if isinstance(how, KeyMerge):
        return how
    if isinstance(how, Mapping):
        check_folder = load_member("merge.folder")
        return KeyMerge(paths={check_folder(path): _parse_merge_mode(mode) for path, mode in how.items()})
    return KeyMerge(mode=_parse_merge_mode(how))


def _parse_merge_mode(name: MergeMode | str) -> MergeMode:
    try:
        return MergeMode(name)
    except ValueError:
        modes = ", ".join(mode.value for mode in MergeMode)
        raise InvalidRequest(f"unknown merge mode {name!r}; the modes are {modes}") from None
