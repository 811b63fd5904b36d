"""The commits of two sides without those that both have, however they got there.

A new file has a name that nobody else gives. So whoever adds the same file has repeated the same change, as a
transplant or a rebase does, and it is not brought a second time. Replacements are told by their ids.

An inline deletion vector is named by its bytes, which are the rows that it deletes. Two commits that name it
alike are one only if neither wrote rows of the file into another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from penstock.formats.delta.branch_log.file_transitions import list_brought_files
from penstock.formats.delta.branch_log.net_change import RESTORE, NetChange, NetStep
from penstock.formats.delta.branch_log.replacements import Replacement
from penstock.formats.delta.log.referenced_files import VECTOR_INLINE
from penstock.formats.delta.protocol.actions import Action, Add, Cdc, CommitInfo, FileKey, Remove
from penstock.formats.delta.protocol.lint_files import Lookup
from penstock.formats.delta.protocol.transaction import (
    DeltaReads,
    PartitionFilter,
    PartitionRegion,
    find_last_action,
)


class UnrepeatedCommits(NamedTuple):
    """Commits of a side, without what the other side has."""

    steps: list[NetStep]
    known: list[NetStep]
    """Replacements that both sides have, as this one has them."""


def drop_repeated_replacements(
    theirs: Sequence[NetStep], steps: Sequence[NetStep], schema_string: str
) -> UnrepeatedCommits:
    """Commits without the replacements that the other side has: done there again, they would take what came
    since.

    They are told by their ids. Of one that is known nothing is brought, but that files go which came with the
    commits before. Where a commit is the sum of several, what else it did is brought. What cannot be told may
    only land where no file came meanwhile.
    """
    ids = {replacement.id for step in theirs for replacement in step.replacements}
    in_order = [replacement for step in steps for replacement in step.replacements]
    unrepeated, passed = UnrepeatedCommits([], []), 0
    added, own = _file_keys(theirs, Add), set[FileKey]()
    for step in steps:
        passed += len(step.replacements)
        repeating = _RepeatedStep(step, ids, in_order[passed:], schema_string)
        if repeating.is_known:
            unrepeated.known.append(step)
        unrepeated.steps.append(repeating.step_to_repeat(added, own))
        own |= _file_keys([step], Add)
    return unrepeated


def drop_repeated_files(
    theirs: Callable[[], Sequence[NetStep]], steps: Sequence[NetStep]
) -> UnrepeatedCommits:
    """Commits without the files that came to the other side as well, and that later ones removed again.

    What they come to would not name these files: they would stay where the other side has them, beside the
    files that their rows were written to, or though they were deleted. ``theirs`` is asked only if need be.
    """
    removals: dict[FileKey, int] = {
        action.key: number
        for number, step in enumerate(steps)
        if not _is_undo(step)
        for action in step.actions
        if isinstance(action, Remove)
    }
    passing = {
        action.key
        for number, step in enumerate(steps)
        for action in step.actions
        if isinstance(action, Add) and removals.get(action.key, -1) > number
    }
    unrepeated = UnrepeatedCommits([], [])
    changes = [{*map(_identify_file, _list_files(step))} for step in theirs()] if passing else []
    for step in steps:
        files = {_identify_file(file): file for file in _list_files(step)}
        repeated: dict[_FileIdentity, Add | Remove] = {}
        for change in changes if step.terms.replaces is None else ():
            both = change & files.keys()
            if any(kind is Add and key in passing for kind, key in both):
                repeated |= {file: files[file] for file in both if file[0] is Remove or file[1] in passing}
        if repeated:
            unrepeated.known.append(step._replace(actions=tuple(repeated.values())))
            has_more = len(repeated) < len(files)
            remaining = (
                action
                for action in step.actions
                if not (isinstance(action, Add | Remove) and _identify_file(action) in repeated)
                and (has_more or not isinstance(action, Cdc))
            )
            step = step._replace(actions=tuple(remaining))
        unrepeated.steps.append(step)
    return unrepeated


def _is_undo(step: NetStep) -> bool:
    """Whether a commit undid others: what it undid is as if it had not come, and the other side keeps it."""
    info = find_last_action(step.actions, CommitInfo)
    return info is not None and info.operation == RESTORE


_FileIdentity: TypeAlias = tuple[type[Add | Remove], FileKey]


def _identify_file(file: Add | Remove) -> _FileIdentity:
    return type(file), file.key


def _list_files(step: NetStep) -> list[Add | Remove]:
    return [action for action in step.actions if isinstance(action, Add | Remove)]


def find_files_of_known_replacements(unrepeated: UnrepeatedCommits) -> frozenset[FileKey]:
    """The files that came with replacements which both sides have, and not once more by another commit."""
    return frozenset(_file_keys(unrepeated.known, Add) - _file_keys(unrepeated.steps, Add))


class _RepeatedStep:
    """A commit, of which some replacements may be known to the other side."""

    def __init__(
        self, step: NetStep, ids: set[bytes], later: Sequence[Replacement], schema_string: str
    ) -> None:
        self._step, self._ids, self._schema_string = step, ids, schema_string
        every = (*step.replacements, *later)
        self._new = [replacement for replacement in step.replacements if replacement.id not in ids]
        self._known_after = {
            replacement.id: [other for other in every[number + 1 :] if other.id in ids]
            for number, replacement in enumerate(step.replacements)
        }

    @property
    def is_known(self) -> bool:
        """Whether the other side has all of it."""
        step = self._step
        is_whole = len(step.replacements) == 1 and step.replacements[0].is_whole
        return is_whole and not self._new and step.terms.replaces is not None

    def step_to_repeat(self, added: set[FileKey], own: set[FileKey]) -> NetStep:
        """What is to be brought of it; ``added`` are files of the other side, ``own`` those that this side
        had added before."""
        step = self._step
        if step.terms.replaces is None:
            return step
        if not step.replacements:
            return _widen_read_set(step)
        # The other side has had a later one: of what that took, nothing is left for an earlier one to take.
        to_do = [
            replacement
            for replacement in self._new
            if not any(map(replacement.is_in, self._known_after[replacement.id]))
        ]
        if len(to_do) == len(step.replacements):
            return _widen_read_set(step) if self._is_mixed(to_do) else step
        remaining_step = self._select_replacements(to_do, own)
        if self.is_known:
            files = (action for action in remaining_step.actions if isinstance(action, Remove | CommitInfo))
            return remaining_step._replace(actions=tuple(files))
        # Files that are not there may hold rows which are, and were rewritten, or else new ones.
        is_unclear = len(self._new) < len(step.replacements) and not _file_keys([step], Add) <= added
        return _widen_read_set(remaining_step) if is_unclear or self._is_mixed(to_do) else remaining_step

    def _is_mixed(self, to_do: Sequence[Replacement]) -> bool:
        """Whether one that is to be done would take what came after a later one that is known."""
        return any(
            replacement.overlaps(other, self._schema_string)
            for replacement in to_do
            for other in self._known_after[replacement.id]
        )

    def _select_replacements(self, to_do: Sequence[Replacement], own: set[FileKey]) -> NetStep:
        """The commit with some of its replacements, and without the removes that the others found."""
        step = self._step
        region = PartitionRegion(self._schema_string, step.terms.replaces or (PartitionFilter(),))
        where = tuple(part for replacement in to_do for part in replacement.partitions)
        replaces = (
            None if not to_do else () if any(not replacement.partitions for replacement in to_do) else where
        )
        actions = tuple(
            action
            for action in step.actions
            if not isinstance(action, Remove)
            or action.key in own
            or not region.may_hold_file(action.partition_values or {})
        )
        terms = msgspec.structs.replace(step.terms, replaces=replaces)
        return step._replace(actions=actions, terms=terms, replacements=tuple(self._new))


def _widen_read_set(step: NetStep) -> NetStep:
    terms = msgspec.structs.replace(step.terms, reads=DeltaReads(whole_table=True))
    return step._replace(terms=terms, has_known_terms=False)


def _file_keys(steps: Iterable[NetStep], kind: type[Add] | type[Remove]) -> set[FileKey]:
    return {action.key for step in steps for action in step.actions if isinstance(action, kind)}


class UnmergedCommits(NamedTuple):
    """What came meanwhile, as far as it is news to a branch."""

    winners: list[NetStep]
    shared: frozenset[FileKey]
    """Files of the branch's net change that are there already: the same change came another way."""


def select_unmerged(
    winners: Sequence[NetStep],
    known: Sequence[NetStep],
    net: NetChange,
    live_before: Lookup,
    brought: Sequence[NetStep],
) -> UnmergedCommits:
    """The winners without what the branch has itself, in commits known to both sides or in the net change,
    which is what the commits ``brought`` come to.

    Also without files that winners both added and removed: at the end of the line they are as they were.
    ``live_before`` is asked which of some files were there before the winners, where one may have added
    again what was there.
    """
    passed = _MergedEffects.from_steps(known)
    unmerged = [step._replace(actions=tuple(passed.find_unknown_actions(step.actions))) for step in winners]
    adds, removes = {action.key for action in net.adds}, {action.key for action in net.removes}
    files_there = _file_keys([*winners, *known], Add)
    shared: set[FileKey] = set()
    for number, step in enumerate(unmerged):
        files = [action for action in step.actions if isinstance(action, Add | Remove)]
        both = [file for file in files if isinstance(file, Add) and file.key in adds]
        same = {file.key for file in both}
        if all(map(has_inline_vector, both)) and not wrote_only_files(brought, same, files_there):
            same = set()
        # New files have names that nobody else gives: whoever adds the same ones repeats the same change.
        if same and all(file.key in (adds if isinstance(file, Add) else removes) for file in files):
            same |= {file.key for file in files}
        shared |= same
        unmerged[number] = step._replace(actions=tuple(_drop_file_actions(step.actions, same)))
    return UnmergedCommits(_drop_short_lived_files(unmerged, live_before), frozenset(shared))


def has_inline_vector(file: Add) -> bool:
    """Whether other commits may have added a file of the same key: those that deleted the same rows."""
    return file.deletion_vector is not None and file.deletion_vector.storage_type == VECTOR_INLINE


def wrote_only_files(
    steps: Iterable[NetStep], vectors: Collection[FileKey], files: Collection[FileKey]
) -> bool:
    """Whether the commits that gave files these vectors wrote none but certain ``files``: what they deleted
    by the vectors is in no other one."""
    keys_by_step = ({*list_brought_files(step)} for step in steps)
    return all(keys <= {*vectors, *files} for keys in keys_by_step if not keys.isdisjoint(vectors))


class _MergedEffects(NamedTuple):
    """What commits of a branch did that have been merged before."""

    added: set[FileKey]
    removed: set[FileKey]
    state: list[Action]

    @classmethod
    def from_steps(cls, steps: Iterable[NetStep]) -> _MergedEffects:
        actions = [action for step in steps for action in step.actions]
        return cls(
            {action.key for action in actions if isinstance(action, Add)},
            {action.key for action in actions if isinstance(action, Remove)},
            [action for action in actions if not isinstance(action, Add | Remove | CommitInfo)],
        )

    def find_unknown_actions(self, actions: Iterable[Action]) -> Iterator[Action]:
        for action in actions:
            match action:
                case Add():
                    is_known = action.key in self.added
                case Remove():
                    is_known = action.key in self.removed
                case _:
                    is_known = action in self.state
            if not is_known:
                yield action


def _drop_short_lived_files(steps: Sequence[NetStep], live_before: Lookup) -> list[NetStep]:
    """Commits without the files that came and went, or went and came back."""
    were = _find_files_present_before(steps, live_before)
    gone: dict[FileKey, int] = {}
    added: dict[FileKey, int] = {}
    dropped: set[tuple[int, FileKey]] = set()
    for number, step in enumerate(steps):
        removes = [action for action in step.actions if isinstance(action, Remove)]
        for remove in removes:
            if (when := added.pop(remove.key, None)) is not None:
                dropped |= {(when, remove.key), (number, remove.key)}
            else:
                gone[remove.key] = number
        for action in step.actions:
            if not isinstance(action, Add):
                continue
            if (when := gone.pop(action.key, None)) is not None:
                dropped |= {(when, action.key), (number, action.key)}
            elif action.data_change and action.key not in were:  # else it may have been there before
                added[action.key] = number
    return [
        step._replace(
            actions=tuple(
                action
                for action in step.actions
                if not isinstance(action, Add | Remove) or (number, action.key) not in dropped
            )
        )
        for number, step in enumerate(steps)
    ]


def _find_files_present_before(steps: Sequence[NetStep], live_before: Lookup) -> set[FileKey]:
    """The files that commits added with new rows, as they said, and removed, and that were there before."""
    added: set[FileKey] = set()
    passed: set[FileKey] = set()
    unclear: set[FileKey] = set()
    for step in steps:
        removes = {action.key for action in step.actions if isinstance(action, Remove)}
        unclear |= removes & added
        passed |= removes
        for action in step.actions:
            if isinstance(action, Add):
                if action.data_change and action.key not in passed and step.may_repeat(action):
                    added.add(action.key)
                passed.add(action.key)
    live = live_before(sorted({key.path for key in unclear})) if unclear else {}
    return {key for key in unclear if key in live.items()}


def _drop_file_actions(actions: Iterable[Action], keys: set[FileKey]) -> Iterator[Action]:
    return (action for action in actions if not isinstance(action, Add | Remove) or action.key not in keys)
