"""Landing: what formats are told once what a request did to their tables is visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.kernel.format import Formats
from penstock.kernel.ledger import TableChange
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key


class LandingNotice:
    """The managed tables that a request's commits change, each as the last of them leaves it."""

    def __init__(self, formats: Formats, branch: str) -> None:
        self._branch, self._is_default = branch, formats.is_default(branch)
        self._tables: dict[Key, tuple[TableChange, int]] = {}
        self._commits = 0

    def add(self, tables: Mapping[Key, TableChange]) -> None:
        """What the next commit changes."""
        self._tables.update((key, (change, self._commits)) for key, change in tables.items())
        self._commits += 1

    def tell(self, commits: Sequence[ObjectId]) -> None:
        """Have formats publish what has landed as these commits.

        One that fails keeps no other from being told; the first failure is raised in the end.
        """
        failed: Exception | None = None
        for key, (change, number) in self._tables.items():
            managing, after = change.managing, change.after
            content = after if after is not None and managing.manages(after) else None
            try:
                managing.after_commit(
                    key, content, commits[number], branch=self._branch, is_default=self._is_default
                )
            except Exception as problem:  # noqa: BLE001 - raised below, once the others were told
                failed = failed or problem
        if failed is not None:
            raise failed
