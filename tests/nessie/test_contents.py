"""Contents: Nessie's types and Penstock's, one as the other without loss."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidContent, InvalidRequest
from penstock.formats.files.content import FilesTable
from penstock.formats.lance.content import LanceTable
from penstock.model.content import AnyContent, Namespace, SqlView, Unknown
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable, IcebergTable, IcebergView, Udf
from penstock.server.nessie import json_types
from penstock.server.nessie.contents import get_type_name, make_nessie_content, parse_nessie_content

KEY = Key("sales", "orders")
ID = UUID("12345678-1234-4234-8234-123456789abc")
quick = settings(derandomize=True, deadline=None, max_examples=200)

texts = st.text(max_size=8)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
identities = st.none() | st.uuids()
locations = st.lists(texts, max_size=3).map(tuple)
contents: st.SearchStrategy[AnyContent] = st.one_of(
    st.builds(Namespace, id=identities, properties=st.dictionaries(texts, texts, max_size=3)),
    st.builds(
        IcebergTable,
        id=identities,
        metadata_location=texts,
        snapshot_id=longs,
        schema_id=ints,
        spec_id=ints,
        sort_order_id=ints,
    ),
    st.builds(
        IcebergView,
        id=identities,
        metadata_location=texts,
        version_id=longs,
        schema_id=ints,
        sql_text=texts,
        dialect=texts,
    ),
    st.builds(
        Udf,
        id=identities,
        metadata_location=texts,
        version_id=texts,
        signature_id=texts,
        sql_text=texts,
        dialect=texts,
    ),
    st.builds(
        DeltaTable,
        id=identities,
        metadata_location_history=locations,
        checkpoint_location_history=locations,
        last_checkpoint=texts,
    ),
)
managed: st.SearchStrategy[AnyContent] = st.one_of(
    st.builds(LanceTable, id=st.uuids(), location=texts, state=st.binary(max_size=8)),
    st.builds(FilesTable, id=st.uuids(), location=texts, state=st.binary(max_size=8)),
    st.builds(DeltaTable, id=st.uuids(), location=texts, state=st.binary(max_size=8)),
    st.builds(Unknown, id=st.uuids(), type_name=st.just("NEW"), payload=st.binary(max_size=8)),
    st.builds(SqlView, id=st.uuids(), sql_text=texts, columns=texts, namespace=locations),
)


def sent(content: AnyContent) -> json_types.AnyContent:
    """A content as a client receives it and sends it back."""
    data = msgspec.json.encode(make_nessie_content(KEY, content))
    read: json_types.AnyContent = msgspec.json.decode(data, type=json_types.AnyContent)
    return read


@quick
@given(contents)
def test_a_content_comes_back_as_it_was_shown(content: AnyContent) -> None:
    assert parse_nessie_content(KEY, sent(content)) == content


@quick
@given(managed)
def test_a_managed_table_that_is_put_back_as_it_was_shown_stays_as_it_is(content: AnyContent) -> None:
    assert parse_nessie_content(KEY, sent(content), content) is content


@quick
@given(st.one_of(contents, managed))
def test_every_content_is_shown_under_its_type_and_id(content: AnyContent) -> None:
    raw = msgspec.to_builtins(make_nessie_content(KEY, content))
    assert raw["type"] == get_type_name(content)
    assert raw["id"] == (str(content.id) if content.id else None)


@pytest.mark.parametrize(
    ("content", "history", "format_name"),
    [
        (LanceTable(id=ID, location="s3://lake/x"), ("s3://lake/x",), "lance"),
        (FilesTable(id=ID), (), "files"),
        (Unknown(id=ID, type_name="NEW", payload=b"x"), (), "new"),
    ],
    ids=["LanceTable", "FilesTable", "Unknown"],
)
def test_what_nessie_has_no_type_for_looks_like_a_delta_table_that_names_its_format(
    content: AnyContent, history: tuple[str, ...], format_name: str
) -> None:
    assert msgspec.to_builtins(make_nessie_content(KEY, content)) == {
        "type": "DELTA_LAKE_TABLE",
        "id": str(ID),
        "metadataLocationHistory": history,
        "checkpointLocationHistory": (),
        "lastCheckpoint": format_name,
    }
    changed = json_types.DeltaLakeTable(id=str(ID), metadata_location_history=("s3://elsewhere",))
    with pytest.raises(InvalidContent, match=content.type):
        parse_nessie_content(KEY, changed, content)


def test_a_clients_history_of_a_delta_table_leaves_what_it_does_not_see() -> None:
    stored = DeltaTable(id=ID, location="s3://lake/orders", state=b"kept", metadata_location_history=("a",))
    given_ = json_types.DeltaLakeTable(id=str(ID), metadata_location_history=("b", "a"), last_checkpoint="c")
    assert parse_nessie_content(KEY, given_, stored) == DeltaTable(
        id=ID,
        location="s3://lake/orders",
        state=b"kept",
        metadata_location_history=("b", "a"),
        last_checkpoint="c",
    )


def test_a_content_of_another_type_is_not_mixed_with_what_is_there() -> None:
    view = json_types.NessieIcebergView(id=str(ID), metadata_location="v", version_id=1, schema_id=1)
    assert parse_nessie_content(KEY, view, LanceTable(id=ID)) == IcebergView(
        id=ID, metadata_location="v", schema_id=1
    )


@pytest.mark.parametrize("text", ["", "12345678", "x" * 36])
def test_an_id_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Invalid UUID string"):
        parse_nessie_content(KEY, json_types.DeltaLakeTable(id=text))


def test_absent_and_null_are_the_same() -> None:
    given_ = msgspec.json.decode(
        b'{"type": "UDF", "sqlText": null, "dialect": "x"}', type=json_types.NessieUdf
    )
    assert parse_nessie_content(KEY, given_) == Udf(dialect="x")


def test_a_namespace_shows_the_elements_of_its_key_and_no_empty_properties() -> None:
    assert msgspec.to_builtins(make_nessie_content(KEY, Namespace(id=ID))) == {
        "type": "NAMESPACE",
        "id": str(ID),
        "elements": ("sales", "orders"),
    }
