"""Rows of a Lance table that no branch has yet: Lance itself reads them, told by a namespace of one version.

A client of Lance's that is sent to what a writer has staged puts that where everybody looks: a version would
be seen that was never published. So it is sent to a copy, whose name ends as that of a manifest which needs
nothing more, and which goes when nobody reads the rows any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4
from weakref import finalize

from lance_namespace import (
    DescribeTableResponse,
    DescribeTableVersionResponse,
    LanceNamespace,
    ListTableVersionsResponse,
)
from lance_namespace_urllib3_client.models.table_version import TableVersion

from penstock.formats.lance.lake.paths import make_path_from_root
from penstock.formats.lance.manifest_reader import is_manifest_of
from penstock.formats.lance.names import MAIN, make_staged_path
from penstock.formats.lance.state import LanceTableVersion, LanceVersionReader, decode_state, make_folder_url
from penstock.formats.rows.arrow_types import pa
from penstock.storage.places import Place

if TYPE_CHECKING:
    from penstock.formats.lance.content import LanceTable
    from penstock.formats.lance.lake.services import LanceServices
    from penstock.kernel.checks import BranchProposal
    from penstock.lake.embedded import Embedded
    from penstock.model.keys import Key


class ProposedVersion(NamedTuple):
    """A version that no branch has yet, and where it can be opened."""

    folder: str
    number: int
    manifest: str
    size: int


class LanceRows:
    """The rows that a Lance table would have. It is opened once, however often they are read."""

    def __init__(
        self, lake: Embedded, parts: LanceServices, proposal: BranchProposal, key: Key, content: LanceTable
    ) -> None:
        self._lake, self._parts, self._key, self._content = lake, parts, key, content
        self._newest = LanceVersionReader(proposal.objects, decode_state(content)).find_newest(MAIN)
        self._opened: Any = None

    def begin_reading(self) -> Any:
        """The rows as a ``pyarrow.RecordBatchReader``; none of a table that has no version yet."""
        if self._opened is None:
            self._opened = open_rows(self._key, self.version)
        dataset = self._opened()
        return pa.RecordBatchReader.from_batches(dataset.schema, self._watch_batches(dataset))

    @cached_property
    def version(self) -> ProposedVersion | None:
        """What is read, as long as this object is there; nothing of a table that has no version yet."""
        if self._newest is None:
            return None
        number, version = self._newest
        location = self._content.location
        place = self._lake.places.open_place(location)
        name, size = version.promoted_path(MAIN, number), version.size
        if self._lake.moved or not _is_file_there(place, name, version):
            data = self._parts.manifests.read_readable_bytes(location, MAIN, number, version)
            name, size = make_staged_path(version.chain, MAIN, f"checked-{uuid4().hex}", number), len(data)
            place.create(name, data)
            finalize(self, _delete_copy, place, name)
        return ProposedVersion(
            make_folder_url(place.url, version.chain),
            number,
            make_path_from_root(f"{place.url}/{name}"),
            size,
        )

    def _watch_batches(self, reader: Any) -> Iterator[Any]:
        yield from reader  # and this object stays as long as somebody reads


def open_rows(key: Key, version: ProposedVersion | None) -> Callable[[], Any]:
    """What begins to read the rows of a version, as often as it is called."""
    if version is None:
        return lambda: pa.RecordBatchReader.from_batches(pa.schema([]), [])
    import lance

    shown = TableVersion(version=version.number, manifest_path=version.manifest, manifest_size=version.size)
    dataset = lance.dataset(namespace_client=_OneVersionNamespace(version.folder, shown), table_id=[*key])
    return lambda: dataset.scanner().to_reader()


def _delete_copy(place: Place, name: str) -> None:
    """Delete a copy. On a disk it has a folder of its own, which goes as well."""
    place.delete([name])
    if "://" not in place.url:
        with suppress(OSError):
            Path(place.url, name).parent.rmdir()


def _is_file_there(place: Place, canonical: str, version: LanceTableVersion) -> bool:
    """Whether a version is where everybody looks: it, and not another one of its number."""
    (data,) = place.read([canonical])
    return data is not None and is_manifest_of(version, data)


class _OneVersionNamespace(LanceNamespace):
    """A namespace that knows of one version of one table."""

    def __init__(self, folder: str, version: TableVersion) -> None:
        self._folder, self._version = folder, version

    def namespace_id(self) -> str:
        return f"proposed version {self._version.version} of {self._folder}"

    def describe_table(self, _request: Any) -> DescribeTableResponse:
        return DescribeTableResponse(
            location=self._folder, version=self._version.version, managed_versioning=True
        )

    def describe_table_version(self, _request: Any) -> DescribeTableVersionResponse:
        return DescribeTableVersionResponse(version=self._version)

    def list_table_versions(self, _request: Any) -> ListTableVersionsResponse:
        return ListTableVersionsResponse(versions=[self._version])
