"""A lake as a namespace of Lance: what Lance's own clients read and commit through.

    namespace = lake.lance()
    lance.write_dataset(rows, namespace_client=namespace, table_id=["vectors", "items"])

Every commit of theirs is one of the lake's. It works for a lake in this process and for one behind a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.formats.lance.lake.batches import BatchOperations
from penstock.formats.lance.lake.data import DataOperations
from penstock.lake.opener import open_lake

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.model.keys import Key


class PenstockNamespace(BatchOperations, DataOperations):
    """The Lance tables of a lake at a branch, in a transaction (``tx/…``), or at a commit.

    A revision that is no branch is looked up once: such a namespace never changes, and cannot be written to.
    Errors are those of ``lance_namespace``.
    """

    def __init__(
        self,
        lake: Lake | str,
        ref: str | None = None,
        *,
        via: str | None = None,
        is_read_only: bool | str = False,
        token: str | None = None,
        author: str | None = None,
    ) -> None:
        """A namespace of a lake; or, as ``lance_namespace.connect`` makes one, of the lake at an address."""
        opened = open_lake(lake, token=token, author=author) if isinstance(lake, str) else lake
        super().__init__(opened, ref, via=via, is_read_only=is_read_only in (True, "true"))

    def __repr__(self) -> str:
        return f"<PenstockNamespace {self.namespace_id()}>"

    def namespace_id(self) -> str:
        return f"PenstockNamespace {{ lake: {self.lake.url}, ref: {self.branch or self.at['at']} }}"

    def describe_details(self, key: Key, branch: str, version: int | None) -> dict[str, Any]:
        return self.describe_schema(list(key), branch, version)
