"""Work on a table's rows, done by Lance in the process that asks, through the namespace that was asked.

A dataset is opened by the namespace and commits by it, so that whatever Lance does to it becomes a commit of
the lake: on the branch, in the transaction or at the revision that the namespace stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from lance_namespace import LanceNamespace

from penstock.errors import InvalidRequest, PenstockError
from penstock.formats.lance.lake.data_errors import watch_lance_work
from penstock.formats.lance.lake.data_requests import require_table_id
from penstock.formats.lance.lake.errors import to_lance_error
from penstock.formats.lance.names import check_ref_name, lance_branch_name

if TYPE_CHECKING:
    from lance import LanceDataset

    from penstock.lake.lake import Lake


class TableAbout(Protocol):
    """A request about a table."""

    id: list[str] | None


class DatasetAccess(LanceNamespace):
    """A namespace that opens its own tables."""

    lake: Lake
    branch: str | None
    """The one that is written to, if any is."""
    cache_max_bytes: int | None = None
    """What Lance may keep of the indexes of a table that is open; as it does by itself if nothing is said."""

    def require_branch(self) -> str:
        """The branch that is written to; raises where nothing can be."""
        raise NotImplementedError

    def require_writable(self) -> None:
        """Refuse work before it has written any file, where it could not be committed."""
        try:
            self.require_branch()
        except PenstockError as problem:
            raise to_lance_error(problem) from problem

    @contextmanager
    def open_to_write(
        self, request: TableAbout, branch: str | None = None, version: int | None = None
    ) -> Iterator[LanceDataset]:
        """Open a table that is about to be changed. Raises where nothing can be written."""
        self.require_writable()
        with self.open_dataset(request, branch, version) as dataset:
            yield dataset

    @contextmanager
    def open_dataset(
        self, request: TableAbout, branch: str | None = None, version: int | None = None
    ) -> Iterator[LanceDataset]:
        """Open a version of a table, the newest by default, on one of Lance's own branches.

        What fails while it is open is told as namespaces do.
        """
        import lance

        table = require_table_id(request.id)
        on_main = not lance_branch_name(branch)
        if not on_main:
            _check_own_branch(str(branch))
        with watch_lance_work(self, table, None if on_main else branch) as namespace:
            dataset = lance.dataset(
                namespace_client=namespace,
                table_id=table,
                version=version if on_main else None,
                index_cache_size_bytes=self.cache_max_bytes,
            )
            yield dataset if on_main else dataset.checkout_version((branch, version))


def _check_own_branch(name: str) -> None:
    """``InvalidInputError`` for what no branch can be named: Lance makes a path of it before it looks."""
    try:
        check_ref_name(name, "branch")
    except InvalidRequest as problem:
        raise to_lance_error(problem) from problem
