"""A manifest is looked at before it can become a version: a wrong one would make a table unreadable."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock import Key, Lake
from penstock.errors import InvalidManifest, PenstockError, VersionTaken
from penstock.formats.lance.lake.calls import CommitLance, CreateLanceVersion
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.names import make_manifest_path
from tests.formats.lance.tables import content, keys_of, keys_seen, newest, rows, state, write

lance = pytest.importorskip("lance")
ITEMS = Key("items")


@pytest.fixture
def table(lake: Lake) -> Path:
    write(lake, "main", 1, mode="create")
    lake.finish_background()
    return Path(content(lake).location)


def next_manifest(table: Path, tmp_path: Path) -> bytes:
    """What Lance would write as the next version of a table; it has not."""
    copy = tmp_path / "copy"
    shutil.copytree(table, copy, ignore=shutil.ignore_patterns("*.manifest-*"))
    before = set((copy / "data").iterdir())
    made = lance.write_dataset(rows(2), str(copy), mode="append")
    for one in set((copy / "data").iterdir()) - before:
        shutil.copy(one, table / "data")
    return (copy / make_manifest_path("", "", made.version)).read_bytes()


def create(lake: Lake, table: Path, name: str, version: int = 2, size: int | None = None) -> None:
    path = str(table / name)
    asked = CreateLanceVersion(key=ITEMS, version=version, manifest=path, size=size)
    lake.do(CommitLance(operations=(asked,)))


def put(table: Path, name: str, data: bytes) -> str:
    path = table / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return name


STAGED = f"{make_manifest_path('', '', 2)}-9d8f"


def test_a_manifest_that_is_what_was_said_becomes_a_version(lake: Lake, table: Path, tmp_path: Path) -> None:
    data = next_manifest(table, tmp_path)
    create(lake, table, put(table, STAGED, data), size=len(data))
    assert keys_of(lake) == keys_seen(lake) == [1, 2]


@pytest.mark.parametrize(
    ("name", "version", "size", "why"),
    [
        (STAGED, 3, None, "is the manifest of version 2, not of 3"),
        (STAGED, 2, 7, "bytes, not 7"),
        (STAGED, 2, 0, "the size of a manifest"),
        ("_versions/none.manifest-1", 2, None, "there is no manifest"),
        ("data/x.manifest", 2, None, "is not where versions of 'items' are written"),
        ("_versions/x.txt", 2, None, "not a name of a manifest"),
        (make_manifest_path("", "", 1), 2, None, "not a name of a manifest"),
        ("_versions/d9223372036854775809.manifest", 2, None, "not a name of a manifest"),
        ("_penstock/abc/_versions/x.manifest-1", 2, None, "is no longer written in"),
    ],
    ids=["number", "size", "nothing", "absent", "elsewhere", "name", "another", "detached", "line"],
)
def test_a_manifest_that_is_not_what_was_said_is_refused(
    lake: Lake, table: Path, tmp_path: Path, name: str, version: int, size: int | None, why: str
) -> None:
    data = next_manifest(table, tmp_path)
    put(table, STAGED, data)
    with pytest.raises(PenstockError, match=why) as refused:
        create(lake, table, name, version, size)
    assert isinstance(refused.value, InvalidManifest | VersionTaken)
    assert refused.value.details["operation"] == 0
    assert newest(lake)[0] == 1


@pytest.mark.parametrize("cut", [0, 3, 40], ids=["empty", "short", "half"])
def test_a_file_that_is_no_manifest_is_refused(lake: Lake, table: Path, tmp_path: Path, cut: int) -> None:
    data = next_manifest(table, tmp_path)
    with pytest.raises(InvalidManifest, match="is not a manifest"):
        create(lake, table, put(table, STAGED, data[:cut]))


def test_a_version_of_another_of_lances_branches_is_refused(lake: Lake, table: Path, tmp_path: Path) -> None:
    manifest = Manifest.decode(next_manifest(table, tmp_path))
    other = manifest._replace(body=manifest.body.replace_field(20, "exp"))
    with pytest.raises(InvalidManifest, match="belongs to branch 'exp'"):
        create(lake, table, put(table, STAGED, other.encode()))


def test_a_version_that_is_not_the_next_one_is_refused(lake: Lake, table: Path, tmp_path: Path) -> None:
    data = next_manifest(table, tmp_path)
    put(table, STAGED, data)
    write(lake, "main", 9)
    with pytest.raises(VersionTaken, match="not the next version, which is 3"):
        create(lake, table, STAGED)
    assert keys_of(lake) == [1, 9]


def test_a_manifest_that_is_at_its_place_already_stays_there(lake: Lake, table: Path, tmp_path: Path) -> None:
    """Who wrote to the table directly may tell the lake; what was promoted is not removed."""
    create(lake, table, put(table, make_manifest_path("", "", 2), next_manifest(table, tmp_path)))
    assert keys_seen(lake) == keys_of(lake) == [1, 2]
    assert newest(lake)[1].staged == ""


def test_the_same_version_asked_for_twice_is_one(lake: Lake, table: Path, tmp_path: Path) -> None:
    put(table, STAGED, next_manifest(table, tmp_path))
    asked = CreateLanceVersion(key=ITEMS, version=2, manifest=str(table / STAGED))
    lake.do(CommitLance(operations=(asked,)))
    lake.finish_background()
    put(table, STAGED, (table / make_manifest_path("", "", 2)).read_bytes())
    lake.do(CommitLance(operations=(asked,)))
    assert newest(lake)[0] == 2


def test_a_version_asked_for_again_when_what_was_staged_is_gone_is_the_same_one(
    lake: Lake, table: Path, tmp_path: Path
) -> None:
    put(table, STAGED, next_manifest(table, tmp_path))
    asked = CreateLanceVersion(key=ITEMS, version=2, manifest=str(table / STAGED))
    lake.do(CommitLance(operations=(asked,)))
    keys_seen(lake)
    (table / STAGED).unlink(missing_ok=True)
    done = lake.do(CommitLance(operations=(asked,))).done
    assert (newest(lake)[0], done[0].version and done[0].version.version) == (2, 2)
    other = CreateLanceVersion(key=ITEMS, version=2, manifest=str(table / f"{STAGED}0"))
    with pytest.raises(VersionTaken, match="already has a version 2"):
        lake.do(CommitLance(operations=(other,)))


def test_what_a_branch_wrote_to_the_folder_of_another_is_refused(
    lake: Lake, table: Path, tmp_path: Path
) -> None:
    lake.branch("dev").create()
    put(table, STAGED, next_manifest(table, tmp_path))
    asked = CreateLanceVersion(key=ITEMS, version=2, manifest=str(table / STAGED))
    with pytest.raises(InvalidManifest, match="on this branch"):
        lake.do(CommitLance(branch="dev", operations=(asked,)))
    assert state(lake, "dev") == state(lake)
