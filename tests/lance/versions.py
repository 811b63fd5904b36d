"""Versions of a Lance table that plain Lance has made, to be put into tables of a lake one by one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.intents import CreateStep, DeclareStep, NumberedStep, Step, Steps, encode_steps
from penstock.formats.lance.lake.services import LanceServices
from penstock.formats.lance.manifests import Manifest, ManifestOperation, make_transaction
from penstock.formats.lance.protobuf import ProtobufMessage
from penstock.formats.lance.relocation import move_to_folder
from penstock.formats.lance.state import NAME, LanceVersionReader, decode_state
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import read_content
from penstock.lake.lazy_formats import LazyFormat
from penstock.metrics.meter import SILENT, Meter
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.operations import Change
from penstock.model.references import Kind
from penstock.storage.places import Places
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store

VERSIONS = 5
CLOSE_S = 10.0


def make_template(folder: Path) -> Path:
    """A table of which version N has the rows 0 to N - 1."""
    import lance
    import pyarrow as pa  # type: ignore[import-untyped]

    for number in range(VERSIONS):
        lance.write_dataset(pa.table({"n": [number]}), str(folder), mode="append" if number else "create")
    return folder


def file_name(version: int) -> str:
    return f"{2**64 - 1 - version:020d}.manifest"


def put_data(template: Path, location: Path) -> None:
    """The files that the manifests name, as a writer puts them before it commits."""
    for name in ("data", "_transactions"):
        shutil.copytree(template / name, location / name, dirs_exist_ok=True)
    (location / "_versions").mkdir(parents=True, exist_ok=True)


def stage(template: Path, location: Path, version: int) -> str:
    """A manifest as a client of Lance's stages it; its name below the table's folder."""
    name = f"_versions/{file_name(version)}-{uuid4()}"
    partly = location / f"{name}.part"
    shutil.copy(template / "_versions" / file_name(version), partly)
    partly.rename(location / name)
    return name


def stage_on_line(template: Path, location: Path, line: Path, version: int) -> str:
    """The manifest of a version that goes on, in a line, from the first one; its name below the table's."""
    first = Manifest.decode((template / "_versions" / file_name(1)).read_bytes())
    said = make_transaction(ManifestOperation.CONFIG, version - 1, str(uuid4()), ProtobufMessage(), {})
    moved = move_to_folder(first, str(location), str(line)).make_version(version, None, said, 0)
    name = line / "_versions" / f"{file_name(version)}-{uuid4()}"
    name.parent.mkdir(parents=True, exist_ok=True)
    name.write_bytes(moved.encode())
    return name.relative_to(location).as_posix()


def manifests(location: Path) -> list[str]:
    """The manifests that everybody sees, oldest first."""
    found = (one.name for one in (location / "_versions").glob("*.manifest"))
    return sorted(found, reverse=True)


def staged(location: Path) -> list[str]:
    """What only its writer knows of."""
    apart = (one for one in location.rglob("*") if one.is_file())
    names = [one.relative_to(location).as_posix() for one in apart]
    return [name for name in names if ".manifest-" in name or "_staging/" in name]


def rows(folder: Path | str) -> list[int]:
    """What plain Lance reads there."""
    import lance

    found: Any = lance.dataset(str(folder)).to_table().column("n").to_pylist()
    return sorted(found)


class Tables:
    """A lake's Lance tables, with nothing around them but a kernel."""

    def __init__(
        self,
        directory: Path,
        template: Path,
        *,
        store: Store | None = None,
        places: Places | None = None,
        lake: str = "this lake",
        meter: Meter = SILENT,
    ) -> None:
        self.directory, self.template = directory, template
        self.store = MemoryStore() if store is None else store
        self.places = places or Places()
        known = (LazyFormat("lance", LanceTable, lambda: self.parts.format, takes_any_base=True),)
        self.kernel = Kernel(self.store, known, meter=meter)
        self.parts = LanceServices(self.kernel, self.places, lake)
        self.promoter = self.parts.promoter
        if store is None:
            self.kernel.references.create_reference("main", Kind.BRANCH, NO_COMMIT)

    def close(self) -> None:
        self.parts.close(CLOSE_S)
        self.places.close()
        self.kernel.close()

    def location(self, name: str = "t") -> Path:
        return self.directory / name

    def declare(self, name: str = "t", *, is_private: bool = False, branch: str = "main") -> Path:
        location = self.location(name)
        step = DeclareStep(id=uuid5(NAMESPACE_URL, name), location=str(location), is_private=is_private)
        self.change(name, step, branch=branch)
        location.mkdir(parents=True, exist_ok=True)
        put_data(self.template, location)
        return location

    def change(self, name: str, *steps: Step, branch: str = "main") -> None:
        placed = Steps(tuple(NumberedStep(number, step) for number, step in enumerate(steps)))
        self.kernel.commit(branch, [Change(Key(name), NAME, encode_steps(placed))], CommitMeta())

    def create(self, *versions: int, name: str = "t", branch: str = "main") -> None:
        """Commit versions, all of them at once."""
        staged = [stage(self.template, self.location(name), version) for version in versions]
        steps = [
            CreateStep(version=version, path=path) for version, path in zip(versions, staged, strict=True)
        ]
        self.change(name, *steps, branch=branch)

    def content(self, name: str = "t", branch: str = "main") -> LanceTable:
        head = self.kernel.references.get_reference(branch).head
        found = read_content(self.kernel.objects, self.kernel.read_state(head).get(Key(name).encode()))
        assert isinstance(found, LanceTable)
        return found

    def newest(self, name: str = "t", branch: str = "main") -> int:
        found = LanceVersionReader(
            self.kernel.objects, decode_state(self.content(name, branch))
        ).find_newest()
        return 0 if found is None else found[0]

    def settle(self, name: str = "t", timeout_s: float = 30.0) -> bool:
        """Wait until all is promoted, and what was staged of it is gone; whether a table is."""
        return Key(name) not in self.promoter.finish(timeout_s)
