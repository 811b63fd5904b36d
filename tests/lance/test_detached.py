"""Versions that belong to no chain: Lance finds them again, and asking for one takes no other one away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import lance_namespace as ln
import pytest

import penstock
from penstock.formats.lance.lake.namespace import PenstockNamespace
from penstock.lake.lake import Lake
from tests.lance.tables import ids_at, ids_of, opened, rows, written

ITEMS = ["items"]
NUMBER = -5
NAME = f"d{NUMBER % 2**64}.manifest"
STAGED = "0f3d8a52-6c0e-4d6b-9f6e-2f3a1c9b7e10"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as made:
        yield made


@pytest.fixture
def namespace(lake: Lake) -> PenstockNamespace:
    found = lake.lance()
    written(found, "items", ids=[0], mode="create")
    written(found, "items", ids=[1])
    lake.finish_background()
    return found


def folder(namespace: PenstockNamespace) -> Path:
    return Path(str(namespace.describe_table({"id": ITEMS}).location), "_versions")


def create(namespace: PenstockNamespace, path: Path | str, **more: Any) -> Any:
    request = {"id": ITEMS, "version": NUMBER, "manifest_path": str(path).lstrip("/"), **more}
    return namespace.create_table_version(request)


def commit(namespace: PenstockNamespace) -> Any:
    base = opened(namespace, "items")
    fragments = lance.fragment.write_fragments(rows([10]), base, mode="append")
    return lance.LanceDataset.commit(
        base,
        lance.LanceOperation.Append(fragments),
        read_version=base.version,
        detached=True,
        namespace_client=namespace,
        table_id=ITEMS,
        namespace_client_managed_versioning=True,
    )


def test_a_version_that_the_lake_has_is_not_taken_for_one_that_belongs_to_no_chain(
    namespace: PenstockNamespace,
) -> None:
    before = sorted(one.name for one in folder(namespace).iterdir() if one.suffix == ".manifest")
    for number in (1, 2):
        found = namespace.describe_table_version({"id": ITEMS, "version": number}).version
        with pytest.raises(ln.InvalidInputError, match="cannot become version"):
            create(namespace, found.manifest_path)
    assert sorted(one.name for one in folder(namespace).iterdir() if one.suffix == ".manifest") == before
    assert [ids_at(namespace, "items", version=one) for one in (1, 2)] == [[0], [0, 1]]


def test_a_manifest_that_was_staged_as_another_version_stays(namespace: PenstockNamespace) -> None:
    """By its name, or by what it says of itself under a name that would do."""
    versions = folder(namespace)
    newest = versions / f"{2**64 - 3:020d}.manifest"
    by_name = versions / f"{newest.name}-{uuid4()}"
    by_content = versions / f"{NAME}-{STAGED}"
    for one in (by_name, by_content):
        shutil.copy(newest, one)
    with pytest.raises(ln.InvalidInputError, match="cannot become version"):
        create(namespace, by_name)
    with pytest.raises(ln.InvalidInputError, match="is version 2"):
        create(namespace, by_content)
    assert by_name.exists()
    assert by_content.exists()
    assert not (versions / NAME).exists()


PATHS = {
    "a folder": "",
    "a zero byte": "\0",
    "a zero byte after its name": f"{NAME}-\0",
    "a folder below": f"x/{NAME}-{STAGED}",
    "a way round": f"../_versions/{NAME}-{STAGED}",
}


@pytest.mark.parametrize("name", PATHS.values(), ids=PATHS)
def test_a_path_that_names_no_staged_manifest_is_refused(namespace: PenstockNamespace, name: str) -> None:
    with pytest.raises(ln.InvalidInputError, match="cannot become version"):
        create(namespace, f"{folder(namespace)}/{name}")


def test_a_branch_of_lances_own_that_is_none_names_no_place(namespace: PenstockNamespace) -> None:
    with pytest.raises(ln.TableBranchNotFoundError, match="has no branch"):
        create(namespace, f"{folder(namespace)}/{NAME}-{STAGED}", branch="../../..")


def test_another_version_of_the_same_number_is_not_answered_for(namespace: PenstockNamespace) -> None:
    apart = commit(namespace)
    found = next(one for one in folder(namespace).iterdir() if one.name.startswith("d"))
    staged = found.with_name(f"{found.name}-{STAGED}")
    shutil.copy(found, staged)
    found.write_bytes(b"another one")
    with pytest.raises(ln.ConcurrentModificationError, match="or a different one"):
        create(namespace, staged, version=apart.version - 2**64)
    assert staged.exists()


def test_it_is_found_again(namespace: PenstockNamespace) -> None:
    apart = commit(namespace)
    assert ids_of(apart) == [0, 1, 10]
    assert ids_at(namespace, "items", version=apart.version) == [0, 1, 10]
    assert ids_at(namespace, "items") == [0, 1]
    assert not [one for one in folder(namespace).iterdir() if one.name.startswith("d") and "-" in one.name]
