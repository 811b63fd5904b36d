"""Files of a table that never came to be: a sweep finds and removes them, when they are old."""

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.lake.job_files import JobStart

ROWS = pa.table({"id": [1, 2]})


class Died(BaseException):
    """The process ends right here."""


def test_what_a_creation_left_that_died_before_its_commit_is_swept_when_it_is_old(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        kept = lake.delta.create("sales.orders", data=ROWS)
        with patch.object(JobStart, "check_in_time", side_effect=Died), pytest.raises(Died):
            lake.delta.create("sales.lost", data=ROWS)
        left = [
            one for one in Path(lake.warehouse).rglob("*.parquet") if not str(one).startswith(kept.location)
        ]
        assert left
        lake.sweep_tables(remove_data=True)
        assert left[0].exists()  # it could still be about to commit
        lake.finish_background()
        old_s = time.time() - 30 * 86_400
        for path in Path(lake.warehouse).rglob("*"):
            if path.is_file():
                os.utime(path, (old_s, old_s))
        lake.sweep_tables(remove_data=True)
        assert not left[0].exists()
        assert kept.to_arrow().num_rows == 2
