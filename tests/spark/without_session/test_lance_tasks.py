"""What travels to executors, which have Lance and nothing of Penstock; and attempts that fail there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.formats.lance.spark import tasks

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
        "from penstock.formats.lance.spark import tasks\n"
        "cloudpickle.register_pickle_by_value(tasks)\n"
        f"folder = {str(tmp_path / 't')!r}\n"
        "table = lance.write_dataset(pa.table({'id': range(5)}), folder, max_rows_per_file=3)\n"
        "scan = tasks.make_scan_task(pickle.dumps(table), [0, 1], table.schema, None, 'gone')\n"
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
    assert json.loads(tasks._write_refusal_text('{"message":"{}","details":{}}', 'a "b"')) == {
        "message": 'a "b"',
        "details": {},
    }


def _all_null(kind: Any, length: int = 2) -> Any:
    """Null lists as Spark sends them: their numbers are nowhere."""
    none = pa.Array.from_buffers(kind, 0, [None, None])
    bits, offsets = pa.py_buffer(b"\x00"), pa.py_buffer(b"\x00" * 4 * (length + 1))
    return pa.Array.from_buffers(pa.list_(kind), length, [bits, offsets], children=[none])


VECTOR = pa.list_(pa.float32(), 2)


@pytest.mark.parametrize(
    ("around", "wanted"),
    [
        (lambda none: none, VECTOR),
        (lambda none: pa.StructArray.from_arrays([none], names=["v"]), pa.struct([("v", VECTOR)])),
        (lambda none: pa.ListArray.from_arrays([0, 1, 2], none), pa.list_(VECTOR)),
        (lambda none: pa.ListArray.from_arrays([0, 1, 2], none), pa.large_list(VECTOR)),
        (lambda none: pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], none), pa.map_("string", VECTOR)),
    ],
    ids=["alone", "in a struct", "in a list", "in a large list", "in a map"],
)
def test_vectors_that_are_all_null_stay_so(around: Callable[[Any], Any], wanted: Any) -> None:
    """Arrow's own cast of them ends the process."""
    given = around(_all_null(pa.float32()))
    batch = pa.RecordBatch.from_arrays([given], names=["v"])
    found = tasks.convert_rows(batch, pa.schema([("v", wanted)]), "{}").column(0)
    found.validate(full=True)
    assert (found.type, found.to_pylist()) == (wanted, given.to_pylist())


@pytest.mark.parametrize("is_sliced", [False, True])
def test_vectors_inside_of_values_keep_their_places(is_sliced: bool) -> None:
    kind = pa.struct([("v", pa.list_(pa.list_(pa.float32())))])
    values: list[Any] = [{"v": [[1.0, 2.0], None]}, None, {"v": None}, {"v": []}, {"v": [None, [3.0, 4.0]]}]
    given = pa.array(values, kind)[1:] if is_sliced else pa.array(values, kind)
    wanted = pa.schema([("s", pa.struct([("v", pa.list_(VECTOR))]))])
    found = tasks.convert_rows(pa.RecordBatch.from_arrays([given], names=["s"]), wanted, "{}").column(0)
    found.validate(full=True)
    assert found.to_pylist() == given.to_pylist()


def test_a_number_too_large_for_16_bits_is_refused_and_infinity_is_not() -> None:
    schema = pa.schema([("v", pa.list_(pa.float16(), 2))])

    def written(*numbers: float) -> Any:
        batch = pa.RecordBatch.from_pydict({"v": pa.array([[*numbers], None], pa.list_(pa.float32()))})
        return tasks.convert_rows(batch, schema, "{}").column(0).to_pylist()

    assert written(65504, float("inf")) == [[65504, float("inf")], None]
    with pytest.raises(ValueError, match="a number of 'v' is too large"):
        written(1, 1e6)
