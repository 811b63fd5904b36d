"""What messages about history and sweeps advise is done, and nothing goes that a kept commit has."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import penstock
from penstock import IcebergTable, Lake
from penstock.errors import InvalidRequest
from penstock.kernel.settings import Settings
from tests.advice.rows import numbers, rows

SHORT = Settings(grace_s=0.0, data_grace_days=0.0, idempotency_days=0.0, nobody_writes=True)


def grow_old(folder: Path) -> None:
    long_ago = time.time() - 90 * 86_400
    for path in folder.rglob("*"):
        os.utime(path, (long_ago, long_ago))


def sweep(place: Path) -> str:
    """Sweep a lake that nobody writes to; what it says of its tables."""
    grow_old(place / "warehouse")
    with penstock.open(place, settings=SHORT) as lake:
        lake.sweep()
        return "".join(one.problem for one in lake.sweep_tables(remove_data=True))


def let_history_expire(place: Path) -> None:
    with penstock.open(place, settings=SHORT) as lake:
        lake.keep_history(max_commits=1)
        lake.sweep()
        lake.sweep()


def test_history_that_cannot_be_read_expires_and_branches_stay(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("a.t", data=rows(1))
    for number in (2, 3):
        table.append(rows(number))
        table.backfill_to_version()
    lake.finish_background()
    lake.delta.checkpoint("a.t")
    place = Path(table.location)
    lake.close()
    (place / "_delta_log" / f"{0:020}.json").unlink()
    (place / "_delta_log" / f"{1:020}.json").unlink()
    assert "let that history expire: penstock horizon" in sweep(tmp_path / "lake")
    with penstock.open(tmp_path / "lake") as anew:
        anew.finish_background()  # it is known then which versions are published, and noted with the next one
        anew.table("a.t").append(rows(4))
        anew.finish_background()
    let_history_expire(tmp_path / "lake")
    assert sweep(tmp_path / "lake") == ""
    with penstock.open(tmp_path / "lake") as anew:
        assert numbers(anew) == [1, 2, 3, 4]


def test_a_table_inside_of_another_is_dropped_and_the_other_one_stays(lake: Lake, tmp_path: Path) -> None:
    location = lake.create_table("a.t", data=rows(1, 2)).location
    lake.branch().put("a.inside", IcebergTable(metadata_location=f"{location}/metadata/1.json"))
    lake.finish_background()
    lake.close()
    assert "Drop the table that should not be there" in sweep(tmp_path / "lake")
    with penstock.open(tmp_path / "lake") as anew:
        anew.branch().drop("a.inside")
    let_history_expire(tmp_path / "lake")
    assert sweep(tmp_path / "lake") == ""
    with penstock.open(tmp_path / "lake") as anew:
        assert numbers(anew) == [1, 2]


def test_a_sweep_takes_nothing_that_a_kept_commit_has(lake: Lake, tmp_path: Path) -> None:
    lake.create_table("a.t", data=rows(1))
    lake.table("a.v").write(rows(1), format="lance")
    before = lake.resolve()
    for key in ("a.t", "a.v"):
        lake.table(key).write(rows(2), mode="overwrite")
    lake.finish_background()
    lake.close()
    hasty = penstock.open(tmp_path / "lake", settings=Settings(grace_s=0.0))
    with hasty, pytest.raises(InvalidRequest, match="nobody"):
        hasty.sweep()
    assert sweep(tmp_path / "lake") == ""
    with penstock.open(tmp_path / "lake") as anew:
        for key in ("a.t", "a.v"):
            assert (numbers(anew, key), numbers(anew, key, before)) == ([2], [1])
        assert anew.fsck().damages == ()
