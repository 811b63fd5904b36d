"""How large packed rows will be is told without unpacking them."""

from __future__ import annotations

import io
from contextlib import suppress

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.lance.lake.unpacked_sizes import UnreadableRows, measure_unpacked_size

TABLES = {
    "numbers": pa.table(
        {"id": pa.array(range(5000), pa.int64()), "small": pa.array([None, 1] * 2500, pa.int8())}
    ),
    "texts": pa.table({"text": [f"row {number}" for number in range(5000)]}),
    "vectors": pa.table({"vector": pa.array([[0.5, 1.5]] * 1000, pa.list_(pa.float32(), 2))}),
    "lists": pa.table({"list": [[{"a": 1, "b": "x"}], [], None] * 300}),
    "dictionary": pa.table({"word": pa.array(["a", "b", "c"] * 500).dictionary_encode()}),
    "views": pa.table({"view": pa.array(["a text that is too long to be inlined"] * 500, pa.string_view())}),
    "booleans": pa.table({"is": pa.array([True, None, False] * 100)}),
    "nothing": pa.table({"id": pa.array([], pa.int64())}),
    "no values": pa.table({"null": pa.nulls(100)}),
}


def written(rows: pa.Table, compression: str | None, *, is_file: bool = False) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    make = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with make(sink, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=400)
    return sink.getvalue()


@pytest.mark.parametrize("is_file", [False, True], ids=["stream", "file"])
@pytest.mark.parametrize("name", TABLES)
def test_packed_rows_are_as_large_as_those_that_are_not_packed(name: str, is_file: bool) -> None:
    rows = TABLES[name]
    plain = measure_unpacked_size(written(rows, None, is_file=is_file))
    assert measure_unpacked_size(written(rows, "zstd", is_file=is_file)) == plain
    assert measure_unpacked_size(written(rows, "lz4", is_file=is_file)) == plain
    assert plain >= rows.get_total_buffer_size() * 0.9 or plain >= rows.nbytes


def test_a_batch_that_a_file_names_twice_counts_twice() -> None:
    rows = pa.table({"id": pa.array([7] * 400, pa.int64())})
    data = written(
        pa.concat_tables([rows, pa.table({"id": pa.array([8] * 400, pa.int64())})]), None, is_file=True
    )
    starts = [place for place in range(len(data) - 24) if data[place : place + 24] == block(data, 0)]
    assert len(starts) == 1, "the footer names each batch once"
    twice = data.replace(block(data, 1), block(data, 0))
    assert pa.ipc.open_file(twice).read_all()["id"].to_pylist() == [7] * 800
    assert measure_unpacked_size(twice) == measure_unpacked_size(data) == 6400


def block(data: bytes, number: int) -> bytes:
    """Where a batch is, as the footer of a file says it: the blocks stand one after the other."""
    size = int.from_bytes(data[-10:-6], "little")
    footer = data[-10 - size : -10]
    at = next(
        place
        for place in range(0, len(footer) - 52, 4)
        if int.from_bytes(footer[place : place + 4], "little") == 2
        and 0 < int.from_bytes(footer[place + 4 : place + 12], "little") < len(data)
    )
    return footer[at + 4 + 24 * number : at + 28 + 24 * number]


@given(st.binary(max_size=200), st.integers(0, 5000), st.integers(0, 255))
def test_bytes_that_are_no_rows_are_refused_or_counted(junk: bytes, place: int, value: int) -> None:
    spoilt = bytearray(written(TABLES["numbers"].slice(0, 10), "zstd"))
    spoilt[place % len(spoilt)] = value
    for data in (junk, b"ARROW1" + junk, bytes(spoilt)):
        with suppress(UnreadableRows):
            assert measure_unpacked_size(data) >= 0
