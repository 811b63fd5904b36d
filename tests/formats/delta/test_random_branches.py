"""Random lives of a Delta table on three branches: no row is lost, doubled or changed by what others did."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.chance import RecordCounts, share, times
from tests.formats.delta.random_branches import RandomBranches


@pytest.mark.reliability
@pytest.mark.parametrize("turn", share(range(24), 2))
def test_random_lives_of_a_table_on_three_branches_end_as_a_model_says(
    tmp_path: Path, duckdb: Any, seed: int, turn: int, record_counts: RecordCounts
) -> None:
    counts = Counter[str]()
    lives = times(8)
    for number in range(turn * lives, (turn + 1) * lives):
        life = RandomBranches(tmp_path / f"lake{number}", duckdb, seed + number)
        life.run(30)
        counts += life.counts
    record_counts(counts)
    assert counts["conditions"] > counts["conditions refused"]
