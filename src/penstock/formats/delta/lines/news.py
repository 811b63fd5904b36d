"""What is news: the commits of two sides without those that both have, come by whatever way.

A new file has a name that nobody else gives. So whoever adds the same file has repeated the same change, as a
transplant or a rebase does, and it is not brought a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from penstock.formats.delta.lines.net import Net, Step
from penstock.formats.delta.protocol.actions import Action, Add, CommitInfo, FileKey, Remove


def but_replacements_of(theirs: Sequence[Step], steps: Sequence[Step]) -> list[Step]:
    """Commits without the replacements that the other side has: done there again, they would take what came
    since.

    They are told by the files that they added; one that added none by those that it removed, if another one
    removed the same. Such a commit brings no removes but those of files that came with the commits before.
    """
    added = _keys(theirs, Add)
    emptied = _keys((one for one in theirs if _empties(one)), Remove)
    known = [
        step.terms.replaces is not None
        and (_keys([step], Remove) <= emptied if _empties(step) else _keys([step], Add) <= added)
        for step in steps
    ]
    return [
        _without_replacing(step, _keys(steps[:number], Add)) if known[number] else step
        for number, step in enumerate(steps)
    ]


def _keys(steps: Iterable[Step], kind: type[Add] | type[Remove]) -> set[FileKey]:
    return {one.key for step in steps for one in step.actions if isinstance(one, kind)}


def _empties(step: Step) -> bool:
    return step.terms.replaces is not None and not any(isinstance(one, Add) for one in step.actions)


def _without_replacing(step: Step, own: set[FileKey]) -> Step:
    actions = tuple(one for one in step.actions if not isinstance(one, Remove) or one.key in own)
    return step._replace(actions=actions, terms=msgspec.structs.replace(step.terms, replaces=None))


class News(NamedTuple):
    """What came meanwhile, as far as it is news to a branch."""

    winners: list[Step]
    shared: frozenset[FileKey]
    """Files of the branch's net change that are there already: the same change came another way."""


def news(winners: Sequence[Step], known: Iterable[Step], net: Net) -> News:
    """The winners without what the branch has itself, in commits known to both sides or in the net change.

    Also without files that winners both added and removed: at the end of the line they are as they were.
    """
    passed = _Passed.of(known)
    left = [step._replace(actions=tuple(passed.unknown(step.actions))) for step in winners]
    adds, removes = {one.key for one in net.adds}, {one.key for one in net.removes}
    shared: set[FileKey] = set()
    for number, step in enumerate(left):
        files = [one for one in step.actions if isinstance(one, Add | Remove)]
        same = {one.key for one in files if isinstance(one, Add) and one.key in adds}
        # New files have names that nobody else gives: whoever adds the same ones repeats the same change.
        if same and all(one.key in (adds if isinstance(one, Add) else removes) for one in files):
            same |= {one.key for one in files}
        shared |= same
        left[number] = step._replace(actions=tuple(_but_files(step.actions, same)))
    return News(_lasting(left), frozenset(shared))


class _Passed(NamedTuple):
    """What commits of a branch did that have been merged before."""

    added: set[FileKey]
    removed: set[FileKey]
    state: list[Action]

    @classmethod
    def of(cls, steps: Iterable[Step]) -> _Passed:
        actions = [action for step in steps for action in step.actions]
        return cls(
            {one.key for one in actions if isinstance(one, Add)},
            {one.key for one in actions if isinstance(one, Remove)},
            [one for one in actions if not isinstance(one, Add | Remove | CommitInfo)],
        )

    def unknown(self, actions: Iterable[Action]) -> Iterator[Action]:
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


def _lasting(steps: Sequence[Step]) -> list[Step]:
    """Commits without the files that came and went, or went and came back."""
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
            elif action.data_change:  # else it may have been there before
                added[action.key] = number
    return [
        step._replace(
            actions=tuple(
                one
                for one in step.actions
                if not isinstance(one, Add | Remove) or (number, one.key) not in dropped
            )
        )
        for number, step in enumerate(steps)
    ]


def _but_files(actions: Iterable[Action], keys: set[FileKey]) -> Iterator[Action]:
    return (one for one in actions if not isinstance(one, Add | Remove) or one.key not in keys)
