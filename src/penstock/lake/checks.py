"""Checks as programs write them: functions that look at what is about to be published on a branch.

They run in the process that decides about commits: where the lake is embedded, or in the server.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest, KeyNotFound
from penstock.formats.registry import load_member
from penstock.formats.rows.reader import TableRows
from penstock.kernel import checks
from penstock.lake.audits.rows import open_proposed_rows
from penstock.lake.embedded import Embedded
from penstock.lake.moved_locations import answer_with_storage_locations
from penstock.model.content import AnyContent
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.formats.public_types import ProposedFiles
    from penstock.lake.lake import Lake

WILDCARDS: Final = frozenset("*?[")
"""A branch with one of these is a pattern, which may be there before the first branch that matches it."""


class CheckInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A check that this process runs."""

    name: str
    branch: str
    """The branch that it looks at, or a pattern of names."""


class Proposed:
    """What is about to be published on a branch. No reference has it yet, and none may ever have it."""

    def __init__(self, lake: Embedded, proposal: checks.BranchProposal) -> None:
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
        return answer_with_storage_locations(self._proposal.get_content(Key.parse(key)), self._lake.moved)

    def table(self, key: str | Key) -> TableRows:
        """The rows that a table would have, as Arrow's: of a Delta table, Lance
        table or table of files that the lake keeps.

        ``KeyNotFound`` if there would be none, ``NotManaged`` if it is something else.
        """
        return open_proposed_rows(self._lake, self._proposal, Key.parse(key))

    def files(self, key: str | Key) -> ProposedFiles:
        """The files that a table would have; ``KeyNotFound`` if there would be none."""
        key = Key.parse(key)
        content = self.get(key)
        if content is None:
            raise KeyNotFound(f"'{key}' would not exist on '{self.branch}'", key=str(key))
        files: ProposedFiles = load_member("proposed.files")(self._lake, self._proposal, key, content)
        return files


def add_check(lake: Lake, name: str, function: Callable[[Proposed], Any], branch: str) -> None:
    """Have a function look at whatever is about to be published on a branch."""
    if not name or not callable(function):
        raise InvalidRequest("a check must have a name and a function")
    catalogue = _require_embedded(lake)
    catalogue.kernel.checks.add_check(
        checks.Check(name, branch, lambda proposal: function(Proposed(catalogue, proposal)))
    )
    if WILDCARDS.isdisjoint(branch) and not lake.branch(branch).exists:
        warnings.warn(
            f"the check '{name}' has no effect yet: there is no branch '{branch}'. It runs once a branch of "
            "exactly that name exists.",
            stacklevel=3,
        )


def remove_check(lake: Lake, name: str) -> None:
    """``InvalidRequest`` if there is none of that name."""
    _require_embedded(lake).kernel.checks.remove_check(name)


def list_checks(lake: Lake) -> list[CheckInfo]:
    """In the order in which they run."""
    return [
        CheckInfo(name=check.name, branch=check.branch)
        for check in _require_embedded(lake).kernel.checks.list_checks()
    ]


def _require_embedded(lake: Lake) -> Embedded:
    if isinstance(catalogue := lake.catalogue, Embedded):
        return catalogue
    raise InvalidRequest(
        f"checks must be added in the process that decides commits, but {lake.url} is a server\n  Add them "
        "in the process of the server, to the lake that it serves."
    )
