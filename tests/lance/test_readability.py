"""A branch or a tag whose Lance table cannot be read is told of, with the table and the way out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from lance_namespace import DropTableRequest

import penstock
from penstock.cli.root import penstock as main
from penstock.lake.lake import Lake
from tests.lance.tables import opened, written
from tests.lance.test_sweep import place_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        written(lake.lance(), "a", ids=[1, 2], mode="create")
        lake.branch("dev").create()
        lake.tag("v1").create()
        written(lake.lance(), "a", ids=[3], mode="overwrite")
        yield lake


def damages(lake: Lake) -> dict[str, str]:
    return {one.object: one.what for one in lake.fsck().damages}


def remove(place: Path, pattern: str) -> None:
    (found,) = place.glob(pattern)
    found.unlink()


def test_a_sound_lake_has_nothing_to_tell_of(lake: Lake) -> None:
    written(lake.lance("dev"), "a", ids=[4])
    opened(lake.lance(), "a").create_scalar_index("id", "BTREE")
    opened(lake.lance(), "a").delete("id = 3")
    begun = lake.transaction()
    written(begun.lance, "a", ids=[5])
    assert damages(lake) == {}


def test_a_version_whose_manifest_is_gone_is_told_of_by_branch_and_tag(lake: Lake) -> None:
    place = place_of(lake, "a")
    remove(place, f"_versions/{2**64 - 2:020d}.manifest")
    lake.tag("v2").create()
    found = damages(lake)
    assert set(found) == {"branch 'dev'", "tag 'v1'"}
    for what in found.values():
        assert "the Lance table 'a' cannot be read there: the manifest of version 1" in what
        assert f"Restore what is missing from a backup of {place}" in what
    assert "drop the table there" in found["branch 'dev'"]
    assert "delete the tag" in found["tag 'v1'"]


def test_the_advice_for_a_branch_and_a_tag_leaves_nothing_to_tell_of(lake: Lake) -> None:
    remove(place_of(lake, "a"), f"_versions/{2**64 - 2:020d}.manifest")
    lake.tag("v1").delete()
    lake.lance("dev").drop_table(DropTableRequest(id=["a"]))
    assert damages(lake) == {}
    written(lake.lance("dev"), "a", ids=[9], mode="create")
    assert damages(lake) == {}


def test_a_version_whose_rows_are_gone_is_told_of(lake: Lake) -> None:
    written(lake.lance("dev"), "a", ids=[4])  # the branch has a manifest of its own now
    place = place_of(lake, "a")
    (first, _) = sorted(place.glob("data/*.lance"), key=lambda one: one.stat().st_mtime_ns)
    first.unlink()
    found = damages(lake)
    assert set(found) == {"branch 'dev'", "tag 'v1'"}
    assert f"files of version 2 are gone (data/{first.name})" in found["branch 'dev'"]


def test_the_command_and_the_doctor_tell_of_it(lake: Lake, tmp_path: Path) -> None:
    remove(place_of(lake, "a"), f"_versions/{2**64 - 2:020d}.manifest")
    lake.close()
    run = CliRunner()
    checked = run.invoke(main, ["--lake", str(tmp_path / "lake"), "fsck"])
    assert checked.exit_code == 1
    assert "branch 'dev'" in checked.output
    looked = run.invoke(main, ["--lake", str(tmp_path / "lake"), "--json", "doctor"])
    assert looked.exit_code == 1
    (told,) = [one for one in json.loads(looked.output)["checks"] if one["name"] == "Lance tables"]
    assert (told["state"], told["finding"].startswith("at branch 'dev' the Lance table 'a'")) == (
        "failed",
        True,
    )


def test_the_doctor_finds_a_sound_lake_well(lake: Lake, tmp_path: Path) -> None:
    lake.close()
    looked = CliRunner().invoke(main, ["--lake", str(tmp_path / "lake"), "--json", "doctor"])
    (told,) = [one for one in json.loads(looked.output)["checks"] if one["name"] == "Lance tables"]
    assert (told["state"], told["finding"][:8]) == ("ok", "1 table,")
