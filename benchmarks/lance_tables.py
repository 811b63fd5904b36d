"""Lance tables to measure on: manifests that are staged already, and Lance's own directory namespace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
from lance_namespace import DeclareTableRequest

import penstock
from penstock import Lake, Settings
from penstock.formats.lance.lake.calls import CommitLance, CreateLanceVersion, DeclareLance
from penstock.formats.lance.manifests import Manifest, ManifestOperation, make_transaction
from penstock.formats.lance.names import make_manifest_path
from penstock.formats.lance.plugin import LancePlugin
from penstock.formats.lance.protobuf import ProtobufMessage
from penstock.model.clock import now_us
from penstock.model.keys import Key
from penstock.stores.port import Store
from tests.lance.collecting import Collecting
from tests.plugins import plugin_of

if TYPE_CHECKING:
    from lance.namespace import DirectoryNamespace

DATA: Final = pa.table({"id": pa.array(range(100)), "amount": pa.array([n / 4 for n in range(100)])})
DECLARED_AT_ONCE: Final = 64
NAMESPACE: Final = "bench"
RETRIES: Final = 100

Batch = tuple[CreateLanceVersion, ...]
"""The next version of some tables, to be committed together."""


# -- ours --------------------------------------------------------------------------------------------------


@contextmanager
def opened(target: Path | Store, *, wait_s: float = 0.0) -> Iterator[Lake]:
    """A lake whose commits wait so long for the promotion of what they decided, if at all. Nobody waits for
    what is left of it at the end."""
    settings = Settings(promote_wait_s=wait_s, publish_close_s=0.0)
    with penstock.open(target, create=True, settings=settings, catch_up=False) as lake:
        yield lake


def key(writer: int, number: int) -> Key:
    return Key(NAMESPACE, f"w{writer:02}t{number:03}")


def declare(lake: Lake, writers: int, tables: int) -> dict[Key, str]:
    """Tables of so many writers, and where they are."""
    keys = [key(writer, number) for writer in range(writers) for number in range(tables)]
    places: dict[Key, str] = {}
    for start in range(0, len(keys), DECLARED_AT_ONCE):
        some = keys[start : start + DECLARED_AT_ONCE]
        wishes = tuple(DeclareLance(key=one) for one in some)
        done = lake.do(CommitLance(operations=wishes)).done
        places |= {one: what.location for one, what in zip(some, done, strict=True)}
    return places


@contextmanager
def held_back(lake: Lake) -> Iterator[None]:
    """Nothing is promoted while the block runs, nor is what was decided in it afterwards."""
    promoter = plugin_of(lake.catalogue, LancePlugin).parts.promoter
    promoter.note_commit = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        del promoter.note_commit


class Staging:
    """Writes manifests of versions that nobody has committed yet."""

    def __init__(self, scratch: Path) -> None:
        import lance

        lance.write_dataset(DATA, str(scratch / "pattern"))
        (path,) = (scratch / "pattern" / "_versions").glob("*.manifest")
        self._pattern = Manifest.decode(path.read_bytes())

    def batches(
        self, places: dict[Key, str], writer: int, tables: int, first: int, count: int
    ) -> list[Batch]:
        """``count`` batches of a writer's tables, each with the next version of all of them."""
        keys = [key(writer, number) for number in range(tables)]
        return [
            tuple(self._staged(one, places[one], version) for one in keys)
            for version in range(first, first + count)
        ]

    def _staged(self, name: Key, place: str, version: int) -> CreateLanceVersion:
        said = make_transaction(
            ManifestOperation.APPEND, version - 1, str(uuid4()), ProtobufMessage.from_fields(), {}
        )
        data = self._pattern.make_version(version, None, said, now_us()).encode()
        path = Path(place) / f"{make_manifest_path('', '', version)}-{uuid4()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return CreateLanceVersion(key=name, version=version, manifest=str(path), size=len(data))


def create_all(lake: Lake, names: Sequence[Key]) -> None:
    """Tables with the same rows, made by Lance's own writer."""
    import lance

    for one in names:
        lance.write_dataset(DATA, namespace_client=lake.lance(), table_id=list(one), mode="create")


def append_all(namespace: Any, names: Sequence[Key]) -> None:
    """Append the same rows to tables by Lance's own writer, and commit all of them as one batch."""
    import lance

    collecting = Collecting(namespace)
    for one in names:
        lance.write_dataset(DATA, namespace_client=collecting, table_id=list(one), mode="append")
    collecting.commit()


# -- Lance's directory namespace ---------------------------------------------------------------------------


class Directory:
    """A directory namespace, and mutations of its ``__manifest`` table."""

    def __init__(self, root: Path) -> None:
        from lance.namespace import DirectoryNamespace

        self.root = root
        self._namespace: DirectoryNamespace = DirectoryNamespace(root=str(root))  # type: ignore[no-untyped-call]
        self.declare("first")
        self._schema = self._manifest().schema

    def declare(self, name: str) -> None:
        self._namespace.declare_table(DeclareTableRequest(id=[name]))

    def mutate(self, writer: int, version: int, tables: int) -> None:
        """Rows for the next version of some tables, in one mutation; tried again if somebody was faster."""
        rows = [self._row(writer, number, version) for number in range(tables)]
        merge = self._manifest().merge_insert("object_id").when_not_matched_insert_all()
        merge.conflict_retries(RETRIES).execute(pa.Table.from_pylist(rows, schema=self._schema))

    def append_all(self, writer: int, version: int, tables: int, mode: str = "append") -> None:
        """Append the same rows to tables, each by its own commit, then note all of them in one mutation."""
        self.write_all(writer, tables, mode)
        self.mutate(writer, version, tables)

    def write_all(self, writer: int, tables: int, mode: str) -> None:
        """Write the same rows to tables, each by its own commit."""
        import lance

        for number in range(tables):
            lance.write_dataset(DATA, str(self.root / f"w{writer:02}t{number:03}.lance"), mode=mode)

    def _manifest(self) -> Any:
        import lance

        return lance.dataset(str(self.root / "__manifest"))

    @staticmethod
    def _row(writer: int, number: int, version: int) -> dict[str, Any]:
        """As the specification of directories describes the row of a version."""
        name = f"w{writer:02}t{number:03}"
        told = {
            "manifest_path": f"{name}.lance/{make_manifest_path('', '', version)}",
            "manifest_size": 500,
            "naming_scheme": "V2",
        }
        return {
            "object_id": f"{name}${version}",
            "object_type": "table_version",
            "location": None,
            "metadata": json.dumps(told),
            "base_objects": None,
        }
