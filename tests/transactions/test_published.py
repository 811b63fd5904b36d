"""Who reads the log of a table itself finds there what landed, without waiting: as after any commit."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Settings

ROWS = pa.table({"x": [1]})


@pytest.mark.parametrize("how", ["transaction", "merge"])
def test_what_landed_is_in_the_logs_of_all_its_tables_when_the_answer_comes(tmp_path: Path, how: str) -> None:
    keys = [f"a.t{number}" for number in range(10)]
    with penstock.open(tmp_path / "lake", settings=Settings(publish_wait_s=60.0)) as lake:
        lake.table(keys[0]).write(ROWS)
        if how == "merge":
            lake.branch("dev").create()
        tx = lake.transaction("dev" if how == "merge" else "main")
        for key in keys:
            tx.write(ROWS, key)
        tx.land()
        if how == "merge":
            lake.merge("dev")
        for key in keys:
            found = deltalake.DeltaTable(lake.table(key).location)
            assert found.to_pyarrow_table().num_rows == lake.table(key).to_arrow().num_rows
