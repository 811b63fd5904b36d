"""Checks as programs write them: functions that look at what is about to be published on a branch.

They run in the process that decides about commits: where the lake is embedded, or in the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from penstock.errors import FileNotFound, InvalidRequest, KeyNotFound, NotManaged
from penstock.formats.files import trees
from penstock.formats.files.files import is_managed, state_of
from penstock.kernel import checks
from penstock.lake.audits.rows import TableRows, rows_proposed
from penstock.lake.embedded import Embedded
from penstock.lake.files.answers import FileEntry
from penstock.lake.files.paths import as_folder
from penstock.lake.files.pool import pool_of
from penstock.model.content import AnyContent, FilesTable
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.lake import Lake


class CheckInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A check that this process runs."""

    name: str
    branch: str
    """The branch that it looks at, or a pattern of names."""


class Proposed:
    """What is about to be published on a branch. No reference has it yet, and none may ever have it."""

    def __init__(self, lake: Embedded, proposal: checks.Proposal) -> None:
        self._lake, self._proposal = lake, proposal

    def __repr__(self) -> str:
        return f"<Proposed for {self.branch}: {', '.join(map(str, self.changed))}>"

    @property
    def branch(self) -> str:
        return self._proposal.branch

    @property
    def base(self) -> str:
        """The id of the branch's head that it would take the place of."""
        return self._proposal.base.hex()

    @property
    def message(self) -> str:
        return self._proposal.meta.message

    @property
    def author(self) -> str:
        """Who says to have made it; empty if nobody does."""
        meta = self._proposal.meta
        return meta.authors[0] if meta.authors else meta.committer

    @property
    def properties(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(values) for name, values in self._proposal.meta.properties.items()}

    @property
    def changed(self) -> tuple[Key, ...]:
        """The keys at which it differs from the branch as it is, also those that it removes."""
        return self._proposal.changed

    def get(self, key: str | Key) -> AnyContent | None:
        """What a key would hold; ``None`` if nothing."""
        return self._proposal.get(Key.parse(key))

    def table(self, key: str | Key) -> TableRows:
        """The rows that a table would have, as Arrow's: of a Delta, Lance or file table that the lake keeps.

        ``KeyNotFound`` if there would be none, ``NotManaged`` if it is something else.
        """
        return rows_proposed(self._lake, self._proposal, Key.parse(key))

    def files(self, key: str | Key) -> ProposedFiles:
        """The files that a table would have; ``KeyNotFound`` if there would be none."""
        key = Key.parse(key)
        content = self.get(key)
        if content is None:
            raise KeyNotFound(f"there would be no '{key}' on '{self.branch}'", key=str(key))
        if not isinstance(content, FilesTable) or not is_managed(content):
            raise NotManaged(f"'{key}' is no table of files, but a {content.type}", table=str(key))
        return ProposedFiles(self._lake, self._proposal, key, state_of(content).root)


class ProposedFiles:
    """The files that a table would have."""

    def __init__(self, lake: Embedded, proposal: checks.Proposal, key: Key, root: ObjectId) -> None:
        self._lake, self._objects, self._key, self._root = lake, proposal.objects, key, root
        self._pool = pool_of(lake.warehouse)

    def walk(self, folder: str = "") -> Iterator[FileEntry]:
        """Files in a folder and in those below it, or all, by path."""
        for path, file in trees.below(self._objects, self._root, as_folder(folder)):
            yield FileEntry.of(self._pool, path, file)

    def list(self, folder: str = "") -> list[FileEntry]:
        """All of them at once."""
        return [*self.walk(folder)]

    def stat(self, path: str) -> FileEntry:
        """``FileNotFound`` if there would be no file at a path."""
        found = trees.find(self._objects, self._root, [path]).get(path)
        if found is None:
            raise FileNotFound(f"'{self._key}' has no file at '{path}'", table=str(self._key), path=path)
        return FileEntry.of(self._pool, path, found)

    def open(self, path: str) -> BinaryIO:
        """A file as a file object, which reads what is asked for; ``FileNotFound`` as ``stat``."""
        from penstock.lake.files.reader import TableBytes

        entry = self.stat(path)
        return TableBytes(self._lake.delta.places, self._lake.warehouse, self._key).open(entry)


def add_check(lake: Lake, name: str, function: Callable[[Proposed], Any], branch: str) -> None:
    """Have a function look at whatever is about to be published on a branch."""
    if not name or not callable(function):
        raise InvalidRequest("a check has a name and a function")
    catalogue = _embedded(lake)
    catalogue.kernel.checks.add(
        checks.Check(name, branch, lambda proposal: function(Proposed(catalogue, proposal)))
    )


def remove_check(lake: Lake, name: str) -> None:
    """``InvalidRequest`` if there is none of that name."""
    _embedded(lake).kernel.checks.remove(name)


def checks_of(lake: Lake) -> list[CheckInfo]:
    """In the order in which they run."""
    return [CheckInfo(name=one.name, branch=one.branch) for one in _embedded(lake).kernel.checks.all()]


def _embedded(lake: Lake) -> Embedded:
    if isinstance(catalogue := lake.catalogue, Embedded):
        return catalogue
    raise InvalidRequest(
        f"checks run where commits are decided, and {lake.url} is a server\n"
        "  Add them in the server's own process, to the lake that it serves."
    )
