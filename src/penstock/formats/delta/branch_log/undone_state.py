"""Whether a change is undone for a file, as one later version after the other undid it or did it again."""

from __future__ import annotations

from typing import NamedTuple

from penstock.formats.delta.branch_log.later_versions import LaterVersion, LaterVersions


class _PassedVersion(NamedTuple):
    """A version that was looked at, with whether the change was undone before and after it."""

    version: LaterVersion
    was_undone: bool
    is_undone: bool


class UndoneState:
    """What later versions, taken in their order, leave of a change."""

    def __init__(self, later_versions: LaterVersions, *, is_undone: bool) -> None:
        self.is_undone = is_undone
        self._is_undone_here = is_undone
        """Where this branch was last, before others came by a merge."""
        self._later_versions = later_versions
        self._passed: list[_PassedVersion] = []

    def note_change(self) -> None:
        """The change itself comes here: it stands."""
        self.is_undone = self._is_undone_here = False

    def note_earlier_version(self, later: LaterVersion) -> None:
        """Note a version from before the change."""
        self._passed.append(_PassedVersion(later, was_undone=False, is_undone=False))

    def note_later_version(self, later: LaterVersion, *, brings_file: bool) -> None:
        """Note what a version makes of the change; ``brings_file`` if it adds the file, or its rows."""
        if self._passed and not self._passed[-1].version.is_elsewhere:
            self._is_undone_here = self.is_undone
        was_undone = self._is_undone_here if later.is_sum and not later.is_elsewhere else self.is_undone
        own, undoes, repeats = (
            self._later_versions.own_versions_on(later),
            later.undone_version,
            later.redone_version,
        )
        named = self._find_passed(repeats if undoes is None else undoes, later)
        if brings_file:
            self.is_undone = True
        elif undoes is not None:
            is_older = bool(own) and undoes < own.start
            self.is_undone = named.was_undone if named else self.is_undone and is_older
        elif repeats is not None:
            self.is_undone = named.is_undone if named else self.is_undone and repeats not in own
        elif later.is_undo:
            self.is_undone = False
        self._passed.append(_PassedVersion(later, was_undone, self.is_undone))

    def _find_passed(self, version: int | None, later: LaterVersion) -> _PassedVersion | None:
        """The newest version looked at that has a number on the line of another one."""
        for passed in reversed(self._passed):
            if self._later_versions.is_version_on_line(passed.version, version, later):
                return passed
        return None
