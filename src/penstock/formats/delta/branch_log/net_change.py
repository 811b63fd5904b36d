"""The net change of a branch: what several commits come to, as one that can be ratified elsewhere.

A file that was added and removed again is neither. Of metadata, protocol, domains and batches the last one
counts. What the commits had read is what the net change has read.

A commit that *replaced* partitions had not picked the files that it removed: it removed what was there. So
its removes are left out, and found anew where the net change lands. Without that, two branches that both
wrote a table anew would merge to both their files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from penstock.formats.delta.branch_log.branch_log import CommitTerms
from penstock.formats.delta.branch_log.past_operations import MERGED, PastOperation, read_operations
from penstock.formats.delta.branch_log.replacements import Replacement, mark_as_parts
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    FileKey,
    Remove,
    reconciliation_key,
)
from penstock.formats.delta.protocol.row_ids import is_high_water_mark
from penstock.formats.delta.protocol.transaction import (
    DeltaReads,
    PartitionFilter,
    PartitionRegion,
    find_last_action,
)

FileActionT = TypeVar("FileActionT", Add, Remove)
StateKey = tuple[str, str, str | None]

RESTORE: Final = "RESTORE"
"""The operation that brings a table back into a state that it had."""
MOVING: Final = frozenset({RESTORE, MERGED})
"""Operations that add files which were written for other commits."""


class NetStep(NamedTuple):
    """A commit of a branch."""

    version: int
    actions: tuple[Action, ...]
    terms: CommitTerms
    has_known_terms: bool = True
    """Whether the terms say if it picked the files that it removed, or replaced whatever there was. If not,
    nobody may land it where files came that it would have removed."""
    replacements: tuple[Replacement, ...] = ()
    """The commits that replaced files of which it consists."""
    undone: tuple[Replacement, ...] = ()
    """Those that it undoes."""
    may_repeat_files: bool = True
    """Whether files that it adds may have been there already. Delta allows that, and whoever does not know
    what came of a commit may repeat it so."""

    def may_repeat(self, add: Add) -> bool:
        """Whether a file that it adds may have been there already. One without new rows always may."""
        return self.may_repeat_files or not add.data_change


class NetChange(msgspec.Struct, frozen=True, kw_only=True):
    """What commits come to. Actions of a kind are in the order in which their commits had them."""

    state: tuple[Action, ...] = ()
    """Protocol, metadata, domains and batches."""
    removes: tuple[Remove, ...] = ()
    """Without those of files that were replaced."""
    adds: tuple[Add, ...] = ()
    feed: tuple[Cdc, ...] = ()
    terms: CommitTerms = CommitTerms(DeltaReads())
    doubtful: tuple[Remove, ...] = ()
    """Of files that were added and then removed: they count if the file was there before, and had only been
    added once more."""
    doubtful_adds: tuple[FileKey, ...] = ()
    """Files that are added with new rows, unless they were there before, and were only added once more."""
    may_be_there: bool = False
    """Whether files that it adds with new rows may be there already where it lands."""
    after: int = -1
    """The version before the first of the commits."""
    is_strict: bool = False
    """No file may have come meanwhile."""
    there: frozenset[FileKey] = frozenset()
    """Files that it does not bring because they are there, and that it does not replace either."""
    spared: tuple[Add, ...] = ()
    """Those of them that it adds."""
    replacements: tuple[Replacement, ...] = ()
    """The commits that replaced files of which it consists."""
    undone: tuple[Replacement, ...] = ()
    """Those of other commits that it undoes."""
    operations: tuple[PastOperation, ...] = ()
    """What was done by the commits, in their order."""

    @property
    def actions(self) -> tuple[Action, ...]:
        return (*self.state, *self.removes, *self.adds, *self.feed)

    def drop_files(self, keys: frozenset[FileKey]) -> NetChange:
        """The rest, where some of its files are what they should be already."""
        return msgspec.structs.replace(
            self,
            removes=tuple(remove for remove in self.removes if remove.key not in keys),
            adds=tuple(add for add in self.adds if add.key not in keys),
            there=self.there | keys,
            spared=(*self.spared, *(add for add in self.adds if add.key in keys)),
        )

    @property
    def doubtful_paths(self) -> list[str]:
        """The decoded paths of the files of which it has to be known whether they were there before."""
        return sorted(
            {*(remove.key.path for remove in self.doubtful), *(key.path for key in self.doubtful_adds)}
        )

    def resolve_doubtful_files(self, live: Mapping[str, str | None]) -> NetChange:
        """The same without doubtful files, given the files that were live before."""
        were = [remove for remove in self.doubtful if remove.key in live.items()]
        repeated = {key for key in self.doubtful_adds if key in live.items()}
        return msgspec.structs.replace(
            self,
            removes=(*self.removes, *were),
            adds=tuple(add for add in self.adds if add.key not in repeated),
            doubtful=(),
            doubtful_adds=(),
        )


def fold_steps(steps: Sequence[NetStep], schema_string: str) -> tuple[NetChange, ...]:
    """What commits come to, oldest first: as one, if it can be one.

    Whoever reads the change feed of a version that has files of it looks at nothing else there. So where
    some commits have such files and others changed data without, they come in groups, one after the other.
    """
    groups: list[list[NetStep]] = []
    has_feed: bool | None = None
    for step in steps:
        kind = _has_feed(step)
        if not groups or (has_feed is not None and kind is (not has_feed)):
            groups.append([])
        groups[-1].append(step)
        has_feed = has_feed if kind is None else kind
    return tuple(fold_all(group, schema_string) for group in groups)


def fold_all(steps: Sequence[NetStep], schema_string: str) -> NetChange:
    """What commits come to as one, whatever that does to a change feed."""
    return _NetChangeFold(schema_string).fold_all_steps(steps)


def _has_feed(step: NetStep) -> bool | None:
    """``None`` if it does not matter, since no rows changed."""
    if any(isinstance(action, Cdc) for action in step.actions):
        return True
    changes = any(isinstance(action, Add | Remove) and action.data_change for action in step.actions)
    return False if changes else None


def copy_terms(difference: NetChange, folded: NetChange) -> NetChange:
    """A difference that rests on what the commits rest on that led to it.

    If they replaced files it is strict: whether what came meanwhile should go too, a person has to say. Once
    that has landed, the replacements are there like any others.
    """
    net = msgspec.structs.replace(
        difference,
        replacements=folded.replacements,
        undone=folded.undone,
        may_be_there=True,
        operations=folded.operations,
    )
    if folded.terms.replaces is None:
        return msgspec.structs.replace(net, terms=folded.terms, is_strict=folded.is_strict)
    return msgspec.structs.replace(net, is_strict=True)


class _ReplacementStep(NamedTuple):
    """A commit that replaced files, and what the commits before it came to."""

    files: list[Add | Remove]
    added: dict[FileKey, Add]
    removed: dict[FileKey, Remove]
    terms: CommitTerms
    was_written_anew: bool
    named: tuple[Replacement, ...]

    @property
    def replaced_files(self) -> list[FileKey]:
        return [file.key for file in self.files if isinstance(file, Remove)]

    def is_undone(self, added: Mapping[FileKey, Add]) -> bool:
        """Whether its files have gone by now, and all those are back that it removed."""
        own = (file.key for file in self.files if isinstance(file, Add))
        is_gone = bool(self.files) and not any(key in added for key in own)
        return is_gone and all(key in added for key in self.replaced_files)


def _drop_undone_replacements(steps: Sequence[NetStep]) -> list[NetStep]:
    """Commits as if they had picked the files of those replacements that later ones of them undo."""
    undone: set[bytes] = set()
    lasting: set[bytes] = set()
    found_steps: list[NetStep] = []
    for step in reversed(steps):
        remaining_replacements = tuple(
            replacement for replacement in step.replacements if replacement.id not in undone
        )
        gone = len(step.replacements) - len(remaining_replacements)
        lasting |= {replacement.id for replacement in remaining_replacements}
        undone |= {replacement.id for replacement in step.undone} - lasting  # or else it was done again since
        if gone and step.terms.replaces is not None:
            where = tuple(part for replacement in remaining_replacements for part in replacement.partitions)
            replaces = (
                None
                if not remaining_replacements
                else ()
                if any(not replacement.partitions for replacement in remaining_replacements)
                else where
            )
            step = step._replace(terms=msgspec.structs.replace(step.terms, replaces=replaces))
        found_steps.append(step._replace(replacements=remaining_replacements))
    return found_steps[::-1]


def _find_foreign_undone(steps: Sequence[NetStep]) -> tuple[Replacement, ...]:
    """What commits undo and have not done themselves."""
    own: set[bytes] = set()
    undone: dict[bytes, Replacement] = {}
    for step in steps:
        undone |= {replacement.id: replacement for replacement in step.undone if replacement.id not in own}
        for replacement in step.replacements:
            own.add(replacement.id)
            undone.pop(replacement.id, None)
    return tuple(undone.values())


class _NetChangeFold:
    """What the commits so far come to."""

    def __init__(self, schema_string: str) -> None:
        self._schema_string = schema_string
        self._state: dict[StateKey, Action] = {}
        self._added: dict[FileKey, Add] = {}
        self._removed: dict[FileKey, Remove] = {}
        self._doubtful: dict[FileKey, Remove] = {}
        self._unclear: set[FileKey] = set()
        """Files that were added, and may have been there before."""
        self._passed: set[str] = set()
        """The decoded paths of all files so far."""
        self._may_be_there = False
        self._returned: set[FileKey] = set()
        """Files that were removed and added again: they are as they were."""
        self._feed: list[Cdc] = []
        self._terms = CommitTerms(DeltaReads(), changes_data=False)
        self._is_written_anew = False
        self._replacements: list[_ReplacementStep] = []
        self._named: tuple[Replacement, ...] = ()
        self._has_known_terms = True
        self._is_mixed = False
        """A file with new rows was rewritten, as if there had been none: what is left brings them."""

    def fold_all_steps(self, steps: Sequence[NetStep]) -> NetChange:
        for step in _drop_undone_replacements(steps):
            self._add_step(step)
        return NetChange(
            state=tuple(self._state.values()),
            removes=tuple(map(self._with_data_change, self._removed.values())),
            adds=tuple(
                add if key in self._returned else self._with_data_change(add)
                for key, add in self._added.items()
            ),
            feed=tuple(self._feed),
            terms=self._terms,
            doubtful=tuple(map(self._with_data_change, self._doubtful.values())),
            doubtful_adds=tuple(
                key for key, add in self._added.items() if key in self._unclear and add.data_change
            ),
            may_be_there=self._may_be_there,
            after=steps[0].version - 1 if steps else -1,
            is_strict=not self._has_known_terms,
            replacements=mark_as_parts(self._named) if len(steps) > 1 else self._named,
            undone=_find_foreign_undone(steps),
            operations=tuple(
                operation
                for step in steps
                for operation in read_operations(find_last_action(step.actions, CommitInfo))
            ),
        )

    def _with_data_change(self, action: FileActionT) -> FileActionT:
        return msgspec.structs.replace(action, data_change=True) if self._is_mixed else action

    def _add_step(self, step: NetStep) -> None:
        self._has_known_terms &= step.has_known_terms
        if step.terms.replaces is not None:
            before = dict(self._added), dict(self._removed), self._terms, self._is_written_anew, self._named
            files = [action for action in step.actions if isinstance(action, Add | Remove)]
            self._replacements.append(_ReplacementStep(files, *before))
        ids = {replacement.id for replacement in self._named}
        self._named += tuple(replacement for replacement in step.replacements if replacement.id not in ids)
        region = self._forget_replaced(step.terms.replaces)
        self._add_commit_terms(step.terms)
        for action in step.actions:
            if isinstance(action, Remove):
                self._remove_file(action, region)
        for action in step.actions:
            match action:
                case Add():
                    self._add_file(action, step)
                case Cdc():
                    self._feed.append(action)
                case Remove() | CommitInfo():
                    pass
                case _:
                    # Where they land, files get ids of their own.
                    if (key := reconciliation_key(action)) is not None and not is_high_water_mark(action):
                        self._state[key] = action
        info = find_last_action(step.actions, CommitInfo)
        # Only what a writer wrote for this very commit can be nowhere else.
        self._may_be_there |= step.may_repeat_files or info is None or info.operation in MOVING
        # Where it does not say what it undoes, as earlier releases did not, its files have to tell.
        if info is not None and info.operation == RESTORE and not step.undone and not step.replacements:
            while self._replacements and self._replacements[-1].is_undone(self._added):
                self._undo_replacement(self._replacements.pop(), step.terms)

    def _undo_replacement(self, replacement: _ReplacementStep, terms: CommitTerms) -> None:
        """Take a replacement back: elsewhere, nothing is to go because of it."""
        self._terms, self._is_written_anew = replacement.terms, replacement.was_written_anew
        self._named = replacement.named
        self._removed = {**replacement.removed, **self._removed}
        for key in replacement.replaced_files:
            old_add = replacement.added.get(key)
            self._added[key] = old_add or msgspec.structs.replace(self._added[key], data_change=False)
            if old_add is None:
                self._returned.add(key)
        self._add_commit_terms(msgspec.structs.replace(terms, replaces=None))

    def _add_file(self, add: Add, step: NetStep) -> None:
        old_remove, before = self._removed.pop(add.key, None), self._added.get(add.key)
        if old_remove is not None:
            self._is_mixed |= old_remove.data_change != add.data_change
            self._returned.add(add.key)
            add = msgspec.structs.replace(add, data_change=False)
        elif before is not None:  # its rows came with the first of the two
            add = msgspec.structs.replace(add, data_change=before.data_change or add.data_change)
        was_unclear = self._doubtful.pop(add.key, None) is not None
        if was_unclear or (step.may_repeat(add) and add.key.path not in self._passed):
            self._unclear.add(add.key)
        self._passed.add(add.key.path)
        self._added[add.key] = add

    def _remove_file(self, remove: Remove, region: PartitionRegion | None) -> None:
        is_replaced = region is not None and region.may_hold_file(remove.partition_values or {})
        self._passed.add(remove.key.path)
        old_add = self._added.pop(remove.key, None)
        if old_add is None or remove.key in self._returned:
            if not is_replaced:
                self._removed[remove.key] = remove
            return
        self._is_mixed |= old_add.data_change != remove.data_change
        if remove.key in self._unclear and not is_replaced:
            self._doubtful[remove.key] = remove

    def _forget_replaced(self, partitions: tuple[PartitionFilter, ...] | None) -> PartitionRegion | None:
        """Drop the removes in partitions that are replaced: the replacement removes everything there."""
        if partitions is None:
            return None
        region = PartitionRegion(self._schema_string, partitions or (PartitionFilter(),))
        for removes in (self._removed, self._doubtful):
            for key in [
                key for key, remove in removes.items() if region.may_hold_file(remove.partition_values or {})
            ]:
                del removes[key]
        return region

    def _add_commit_terms(self, terms: CommitTerms) -> None:
        """Whoever reads a table that was written anew reads the branch's own, and depends on nobody."""
        reads = terms.reads
        if self._is_written_anew and terms.replaces != ():
            reads = DeltaReads(applications=reads.applications)
        if terms.replaces == ():
            self._is_written_anew = True
            self._terms = msgspec.structs.replace(
                self._terms, reads=DeltaReads(applications=self._terms.reads.applications)
            )
        self._terms = CommitTerms(
            reads=_unite_reads(self._terms.reads, reads),
            replaces=_intersect_replaced_partitions(self._terms.replaces, terms.replaces),
            changes_data=self._terms.changes_data or terms.changes_data,
        )


def _unite_reads(delta_reads: DeltaReads, other: DeltaReads) -> DeltaReads:
    """What was read by either; more than that where it cannot be told."""
    applications = delta_reads.applications | other.applications
    if delta_reads.nothing or other.nothing:
        return msgspec.structs.replace(
            other if delta_reads.nothing else delta_reads, applications=applications
        )
    # Files without partitions beside partitions without files cannot be told in one.
    mixed = (delta_reads.files is None) != (other.files is None)
    untold = mixed and not all(reads.partitions for reads in (delta_reads, other))
    both = delta_reads.files is not None and other.files is not None
    return DeltaReads(
        whole_table=delta_reads.whole_table or other.whole_table or untold,
        partitions=(
            *delta_reads.partitions,
            *(new for new in other.partitions if new not in delta_reads.partitions),
        ),
        files=(delta_reads.files or frozenset()) | (other.files or frozenset()) if both else None,
        applications=applications,
    )


def _intersect_replaced_partitions(
    one: tuple[PartitionFilter, ...] | None, other: tuple[PartitionFilter, ...] | None
) -> tuple[PartitionFilter, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    return () if () in (one, other) else (*one, *(new for new in other if new not in one))
