"""Tables that are larger than memory are changed and compacted without Spark in 1 GiB, however large a file
is."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.chance import RecordCounts, times
from tests.row_changes import large_table
from tests.row_changes.large_table import EVERY, NEW_ROWS, measure

MEMORY_MAX_BYTES = 2**30
TOTAL_BYTES = int(float(os.environ.get("PENSTOCK_LARGE_BYTES", "10e9")))
"""How large the table is in `make reliability`."""
LARGE_BYTES = 1_200_000_000
"""How large one of its files is."""
SHARED_BYTES = 1_500_000_000
ON_DISK = Path(os.environ.get("PENSTOCK_LARGE_PLACE", "/var/tmp"))


@pytest.fixture
def place() -> Iterator[Path]:
    with TemporaryDirectory(prefix="penstock-large-", dir=ON_DISK) as folder:
        yield Path(folder, "lake")


@pytest.mark.reliability
@pytest.mark.share
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells how much memory a process had at most")
def test_a_table_larger_than_memory_is_changed_and_compacted_in_one_gib(
    place: Path, record_counts: RecordCounts
) -> None:
    wanted = TOTAL_BYTES if times(4) == 4 else SHARED_BYTES
    if shutil.disk_usage(place.parent).free < 3 * wanted:
        pytest.skip(f"{ON_DISK} has no room for {3 * wanted / 1e9:.1f} GB")
    count = large_table.make_table(place, wanted, LARGE_BYTES)
    assert large_table.total_size(place) > wanted * 0.9
    peaks = {}

    def change(name: str) -> object:
        answer, peaks[name] = measure(place, getattr(large_table, name), count)
        if name != "read":
            large_table.remove_former_files(place)
        return answer

    ids = count * (count - 1) // 2
    assert change("read") == (count, ids, 0)
    each, new = count // EVERY, sum(range(count, count + NEW_ROWS))

    def of(rest: int) -> int:
        """The sum of the numbers of the rows that one change is for."""
        return sum(range(rest, count, EVERY))

    assert change("delete") == each
    assert change("update") == each
    assert change("merge") == each
    rows, ids = count - each + NEW_ROWS, ids - of(large_table.DELETED) + new
    amounts = each + 5 * (each + NEW_ROWS)
    assert change("read") == (rows, ids, amounts)
    assert change("optimize")
    assert change("optimize_again") == 0
    assert change("read") == (rows, ids, amounts)
    marked = len(range(large_table.MARKED, count + NEW_ROWS, EVERY))
    assert change("delete_by_vectors") == marked
    left = ids - sum(range(large_table.MARKED, count + NEW_ROWS, EVERY))
    assert change("read") == (rows - marked, left, amounts - 5)
    record_counts({f"MiB of {name}": peak >> 20 for name, peak in peaks.items()})
    assert {name: peak for name, peak in peaks.items() if peak > MEMORY_MAX_BYTES} == {}
