"""What travels to executors, which have Lance and nothing of Penstock; and attempts that fail there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import InvalidRequest
from penstock.spark.java import find_java
from penstock.spark.lance import tasks

PROGRAM = Path(__file__).parent / "retries_program.py"

WITHOUT_PENSTOCK = """
import pickle, sys
sys.modules["penstock"] = None
scan = pickle.load(sys.stdin.buffer)
import pyarrow as pa
places = pa.RecordBatch.from_pydict({"at": [1]})
print(sum(one.num_rows for one in scan(iter([places]))))
"""


def test_tasks_need_nothing_of_penstock(tmp_path: Path) -> None:
    """Neither the package nor this process: what they are given is whole."""
    make = (
        "import pickle, sys, lance, pyarrow as pa\n"
        "from pyspark import cloudpickle\n"
        "from penstock.spark.lance import tasks\n"
        "cloudpickle.register_pickle_by_value(tasks)\n"
        f"folder = {str(tmp_path / 't')!r}\n"
        "table = lance.write_dataset(pa.table({'id': range(5)}), folder, max_rows_per_file=3)\n"
        "scan = tasks.scanning(pickle.dumps(table), [0, 1], table.schema, None)\n"
        "sys.stdout.buffer.write(cloudpickle.dumps(scan))\n"
    )
    made = subprocess.run([sys.executable, "-c", make], capture_output=True, check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PENSTOCK],
        input=made.stdout,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == b"2"


def test_a_value_that_cannot_be_is_told_in_words_that_the_driver_reads() -> None:
    assert json.loads(tasks._told('{"message":"{}","details":{}}', 'a "b"')) == {
        "message": 'a "b"',
        "details": {},
    }


@pytest.mark.reliability
def test_attempts_that_fail_or_come_twice_leave_each_row_once(tmp_path: Path) -> None:
    """An attempt that fails in its rows, and one that fails when all that it wrote is in its place."""
    try:
        find_java()
    except InvalidRequest as missing:
        pytest.skip(missing.message)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        capture_output=True,
        check=False,
        timeout=240,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told["in rows"] == told["after writing"] == list(range(30))
    assert told["attempts"] == 2
    assert told["left"] == 1  # what the attempt wrote that was lost is nobody's, and is swept later
