"""Contents: every type comes back as it was stored, also one that this version does not know."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidContent
from penstock.formats.files.content import FilesTable
from penstock.formats.lance.content import LanceTable
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.objects import split_value
from penstock.kernel.request import Request, RequestTerms
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.content import (
    CONTENT_MAX_BYTES,
    AnyContent,
    Content,
    Namespace,
    SqlView,
    Unknown,
    decode_content,
    encode_checked_content,
    encode_content,
    load_content_types,
)
from penstock.model.encoding import encode
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable, IcebergTable, IcebergView, Udf
from penstock.model.operations import Delete, Put
from penstock.model.references import Event, Reference
from tests.kernel.lakes import branch, commit, head, new_kernel, puts, reopened, state

identities = st.one_of(st.none(), st.uuids())
words = st.text(st.characters(codec="utf-8"), max_size=8)
held = st.lists(st.binary(min_size=32, max_size=32), max_size=3).map(tuple)
integers = st.integers(-(2**63), 2**63 - 1)
managed = {"location": words, "state": st.binary(max_size=8), "held": held}
contents: st.SearchStrategy[AnyContent] = st.one_of(
    st.builds(Namespace, id=identities, properties=st.dictionaries(words, words, max_size=4)),
    st.builds(
        IcebergTable,
        id=identities,
        metadata_location=words,
        snapshot_id=integers,
        schema_id=integers,
        spec_id=integers,
        sort_order_id=integers,
    ),
    st.builds(IcebergView, id=identities, metadata_location=words, version_id=integers, sql_text=words),
    st.builds(Udf, id=identities, metadata_location=words, version_id=words, sql_text=words, dialect=words),
    st.builds(
        DeltaTable,
        id=identities,
        metadata_location_history=st.lists(words, max_size=3).map(tuple),
        checkpoint_location_history=st.lists(words, max_size=3).map(tuple),
        last_checkpoint=words,
        **managed,
    ),
    st.builds(
        SqlView,
        id=identities,
        sql_text=words,
        columns=words,
        namespace=st.lists(words, max_size=3).map(tuple),
        settings=st.dictionaries(words, words, max_size=4),
        properties=st.dictionaries(words, words, max_size=4),
    ),
    st.builds(LanceTable, id=identities, **managed),
    st.builds(FilesTable, id=identities, **managed),
    st.builds(
        Unknown,
        id=identities,
        type_name=words.filter(bool),
        payload=st.binary(max_size=8),
        held=held,
    ),
)
quick = settings(derandomize=True, deadline=None, max_examples=200)


@quick
@given(contents)
def test_every_content_comes_back_as_it_was_stored(content: AnyContent) -> None:
    data = encode_content(content)
    again = decode_content(data)
    assert again == content
    assert type(again) is type(content)
    assert again.objects == content.objects
    assert encode_content(again) == encode_checked_content(again) == data


def test_every_type_has_a_name_and_a_round_trip() -> None:
    samples: list[AnyContent] = [
        Namespace(),
        IcebergTable(metadata_location="s3://a"),
        IcebergView(metadata_location="s3://a"),
        Udf(),
        DeltaTable(),
        LanceTable(),
        FilesTable(),
        SqlView(sql_text="SELECT 1"),
        Unknown(type_name="PAIMON_TABLE"),
    ]
    assert {type(sample) for sample in samples} == set(load_content_types().values())
    assert [decode_content(encode_content(sample)) for sample in samples] == samples
    assert all(load_content_types()[sample.type] is type(sample) for sample in samples[:-1])
    assert samples[-1].type == "PAIMON_TABLE"


def test_equal_contents_have_equal_bytes_whatever_the_order_of_their_properties() -> None:
    one = Namespace(properties={"a": "1", "b": "2", "c": "3"})
    other = Namespace(properties={"c": "3", "b": "2", "a": "1"})
    assert encode_content(one) == encode_content(other)


# -- a type of a newer version -------------------------------------------------------------------------


def _newer(identity: UUID | None, text: str = "x") -> bytes:
    """What a newer version would store for a type that this one does not have."""
    return encode([99, identity, text, {"nested": [1, 2.5, None, b"bytes"]}])


@pytest.mark.parametrize("identity", [None, UUID(int=7)])
def test_a_type_of_a_newer_version_is_kept_byte_for_byte(identity: UUID | None) -> None:
    data = _newer(identity)
    content = decode_content(data)
    assert isinstance(content, Unknown)
    assert content.id == identity
    assert content.type == "UNKNOWN"
    assert encode_content(content) == encode_checked_content(content) == data


class _NewerVersion(Request):
    """A commit of a newer version: it lets a key hold bytes that this version cannot read."""

    event = Event.COMMIT
    fingerprint = b"newer"

    def __init__(self, stored: bytes, data: bytes) -> None:
        self._stored = stored
        self._value, self._blobs = split_value(data)
        super().__init__("", RequestTerms(key=uuid4().hex))

    def draft_commits(self, chain: CommitChain, reference: Reference) -> list[CommitDraft]:
        return [CommitDraft({self._stored: self._value}, CommitMeta(), self.key, blobs=self._blobs)]


@pytest.mark.parametrize("size", [1, 5000])
def test_a_newer_versions_content_passes_through_rename_diff_and_merge_untouched(size: int) -> None:
    kernel = new_kernel()
    key, renamed = Key("t"), Key("u")
    data = _newer(uuid4(), "x" * size)
    commit(kernel, "main", puts(other=1))
    before = head(kernel)
    branch(kernel, "dev")
    kernel.submit_request("dev", _NewerVersion(key.encode(), data))
    content = state(kernel, "dev")[key]
    assert encode_checked_content(content) == data

    commit(kernel, "dev", [Delete(key), Put(renamed, content)])
    assert encode_checked_content(state(kernel, "dev")[renamed]) == data

    kernel.merge(head(kernel, "dev"), "main", CommitMeta(), MergeOptions())
    cold = reopened(kernel)
    assert encode_checked_content(state(cold)[renamed]) == data
    ((stored, (was, now)),) = cold.diff_commits(before, head(cold)).items()
    assert (stored, was) == (renamed.encode(), None)
    assert now is not None
    assert cold.objects.read_value(now) == data


def test_a_newer_versions_content_can_be_put_by_this_version_if_it_has_no_id_yet() -> None:
    kernel = new_kernel()
    content = decode_content(_newer(None))
    commit(kernel, "main", [Put(Key("t"), content)])
    assert kernel.read_state(head(kernel)).get(b"t") == _newer(None)


def test_a_newer_versions_content_is_as_limited_in_size_as_any() -> None:
    content = Unknown(type_name="", payload=encode([99, None, bytes(CONTENT_MAX_BYTES)]))
    with pytest.raises(InvalidContent, match="bytes"):
        encode_content(content)


@pytest.mark.parametrize(
    "content",
    [
        Unknown(type_name=""),
        Unknown(type_name="", payload=b"\xc1"),
        Unknown(type_name="", payload=b"plain"),
        Unknown(type_name="", payload=encode(5)),
        Unknown(type_name="", payload=encode(IcebergTable(metadata_location="s3://a"))),
        Unknown(type_name="", payload=_newer(UUID(int=1)), id=UUID(int=2)),
        Unknown(type_name="", payload=_newer(None), held=(b"x" * 32,)),
        Unknown(type_name="", payload=_newer(None) + b"\0"),
    ],
)
def test_an_unknown_content_without_a_type_name_is_refused_unless_a_newer_version_wrote_it(
    content: Unknown,
) -> None:
    with pytest.raises(InvalidContent):
        encode_content(content)


# -- what cannot be stored -----------------------------------------------------------------------------


def test_sixteen_mebibytes_are_a_content_and_one_byte_more_is_none() -> None:
    overhead = len(encode(Unknown(type_name="X", payload=bytes(70_000)))) - 70_000
    largest = Unknown(type_name="X", payload=bytes(CONTENT_MAX_BYTES - overhead))
    assert len(encode_content(largest)) == CONTENT_MAX_BYTES == 16 * 1024 * 1024
    with pytest.raises(InvalidContent, match="at most 16777216 bytes"):
        encode_content(Unknown(type_name="X", payload=bytes(CONTENT_MAX_BYTES - overhead + 1)))


@pytest.mark.parametrize(
    "content",
    [
        None,
        "s3://lake/t",
        {"metadata_location": "s3://lake/t"},
        Content(),
        IcebergTable,
        IcebergTable(metadata_location=5),  # type: ignore[arg-type]
        IcebergTable(metadata_location="\ud800"),
        IcebergTable(metadata_location="a", snapshot_id=2**64),
        IcebergTable(metadata_location="a", snapshot_id="1"),  # type: ignore[arg-type]
        IcebergTable(metadata_location="a", id="not an id"),  # type: ignore[arg-type]
        IcebergTable(metadata_location=object()),  # type: ignore[arg-type]
        Namespace(properties={"a": 1}),  # type: ignore[dict-item]
        Namespace(properties={"\udc00": "a"}),
        Namespace(properties=None),  # type: ignore[arg-type]
        DeltaTable(state="text"),  # type: ignore[arg-type]
        DeltaTable(held=("text",)),  # type: ignore[arg-type]
        Unknown(type_name=7),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_of_its_declared_type_is_refused_and_nothing_is_written(content: Any) -> None:
    kernel = new_kernel()
    with pytest.raises(InvalidContent):
        encode_content(content)
    with pytest.raises(InvalidContent):
        commit(kernel, "main", [Put(Key("t"), content)])
    assert state(kernel) == {}


def test_a_content_that_holds_objects_which_do_not_exist_is_refused() -> None:
    kernel = new_kernel()
    with pytest.raises(InvalidContent):
        commit(kernel, "main", [Put(Key("t"), Unknown(type_name="X", held=(b"x" * 32,)))])
    assert state(kernel) == {}


# -- identity ------------------------------------------------------------------------------------------


def test_the_id_survives_replacement_and_rename_and_changes_on_re_creation() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    first = state(kernel)[Key("t")]
    assert first.id is not None

    commit(kernel, "main", puts(t=2))
    replaced = state(kernel)[Key("t")]
    assert replaced.id == first.id

    commit(kernel, "main", [Delete(Key("t")), Put(Key("u"), replaced)])
    assert state(kernel) == {Key("u"): replaced}

    commit(kernel, "main", [Delete(Key("u")), *puts(u=3)])
    recreated = state(kernel)[Key("u")]
    assert recreated.id not in (None, first.id)

    commit(kernel, "main", [Delete(Key("u"))])
    commit(kernel, "main", puts(u=3))
    assert state(kernel)[Key("u")].id not in (None, first.id, recreated.id)
