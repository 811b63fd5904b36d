"""One of everything that is stored, with every field told, in the order in which the vectors list them."""

from __future__ import annotations

from uuid import UUID

from penstock.formats.files.content import FilesTable
from penstock.formats.lance.content import LanceTable
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.description import HistoryRule, LakeDescription
from penstock.kernel.grace_periods import GracePeriods
from penstock.kernel.objects import Objects, split_value
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent, Namespace, SqlView, Unknown
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.nessie import DeltaTable, IcebergTable, IcebergView, Udf
from penstock.model.objects import (
    AnyObject,
    Blob,
    CommitObject,
    Holder,
    Intent,
    Landed,
    Large,
    Leaf,
    LogEntry,
    Node,
    Receipt,
    Segment,
)
from penstock.model.references import Kind, Reference
from penstock.storage.moved_roots import MovedRoot
from penstock.stores.memory import MemoryStore

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
ONE, TWO = b"\x11" * 32, b"\x22" * 32

CONTENTS: dict[str, AnyContent] = {
    "namespace": Namespace(id=ID, properties={"b": "2", "a": "1"}),
    "iceberg table": IcebergTable(
        id=ID, metadata_location="s3://b/t", snapshot_id=-5, schema_id=1, spec_id=300, sort_order_id=70_000
    ),
    "iceberg view": IcebergView(
        id=ID, metadata_location="s3://b/v", version_id=2, schema_id=3, sql_text="SELECT 1", dialect="spark"
    ),
    "udf": Udf(id=ID, metadata_location="m", version_id="v", signature_id="s", sql_text="1", dialect="d"),
    "delta table": DeltaTable(
        id=ID,
        location="s3://b/d",
        state=b"\x00\xff",
        held=(ONE,),
        metadata_location_history=("m",),
        checkpoint_location_history=("c",),
        last_checkpoint="l",
    ),
    "lance table": LanceTable(id=ID, location="s3://b/l", state=b"s", held=(ONE,)),
    "files table": FilesTable(id=ID, location="s3://b/f", state=b"s", held=(ONE,)),
    "view": SqlView(
        id=ID,
        sql_text="SELECT 1",
        dialect="spark",
        columns="{}",
        query_columns=("1",),
        catalog="c",
        namespace=("n",),
        settings={"b": "2", "a": "1"},
        schema_mode="COMPENSATION",
        comment="ü",
        properties={"p": "q"},
    ),
    "unknown": Unknown(id=ID, type_name="PAIMON_TABLE", payload=b"\x01\x02", held=(ONE,)),
    "without id": IcebergTable(metadata_location=""),
}

OBJECTS: dict[str, AnyObject] = {
    "blob": Blob(b"bytes"),
    "holder": Holder(b"bytes", (ONE, TWO)),
    "empty leaf": Leaf(b"", [], []),
    "leaf": Leaf(b"sales\0", [b"a", b"b"], [b"v", Large(300_000, (ONE, TWO))]),
    "node": Node(1, b"sales\0", [b"m", b"z"], [ONE, TWO]),
    "segment": Segment([b"k", b"gone", b"l"], [b"v", None, Large(2000, (ONE,))]),
    "commit": CommitObject(
        parent=ONE,
        further_parents=(TWO,),
        jump=ONE,
        depth=7,
        generation=9,
        merges=1,
        root=TWO,
        recent=((ONE, 3), (TWO, 1)),
        time_us=1_793_491_200_000_000,
        committer="ci",
        authors=("ann", "bob"),
        author_time_us=1_793_491_100_000_000,
        signed_off_by=("carl",),
        message="load \u00e4",
        properties={"b": ("2",), "a": ("1", "3")},
        key="request",
        intents=b"intents",
    ),
    "log entry": LogEntry(
        previous=ONE,
        jump=TWO,
        position=300,
        time_us=1_793_491_200_000_000,
        kind="commit",
        name="main",
        incarnation=b"\x33" * 16,
        before=ONE,
        after=TWO,
        who="ann",
        key="",
        landed=(Landed("commit", "request", "ann", TWO, 2),),
    ),
    "receipt": Receipt(ONE, 300, 1_793_491_200_000_000),
}

INTENTS = (Intent(b"k", "delta", b"append"), Intent(b"l", "lance", b"", True))

ROWS: dict[str, Reference | LakeDescription] = {
    "branch": Reference(
        kind=Kind.BRANCH,
        name="main",
        head=ONE,
        incarnation=b"\x33" * 16,
        log=TWO,
        position=300,
        created_us=1_793_491_200_000_000,
        note=b"n",
    ),
    "deleted tag": Reference(
        kind=Kind.DELETED,
        name="v1",
        head=ONE,
        incarnation=b"\x33" * 16,
        log=TWO,
        position=2,
        created_us=1,
        was=Kind.TAG,
    ),
    "lake": LakeDescription(
        id=str(ID),
        created_us=1,
        default_branch="main",
        warehouse="/w",
        roots=("s3://b",),
        expired=(ONE,),
        history=(HistoryRule("job/*", 100, None, 7), HistoryRule("*", None, 30.5, 8)),
        settings={"a": "b"},
    ),
    "lake with graces": LakeDescription(
        format_version=2, id=str(ID), created_us=1, graces=(GracePeriods(), GracePeriods(3600.0, 30.0, 9))
    ),
    "lake with many expired commits": LakeDescription(
        format_version=3, id=str(ID), created_us=1, more_expired=Large(9600, (ONE,))
    ),
    "lake with moved roots": LakeDescription(
        format_version=7,
        id=str(ID),
        created_us=1,
        moved_roots=(MovedRoot("s3://a", "s3://b"), MovedRoot("/a", "/a", ("/b",))),
    ),
}


def line() -> list[tuple[ObjectId, CommitObject]]:
    """Three commits of a lake's first batch and one that folds, at a fixed time and with fixed ids."""
    chain = CommitChain(Objects(MemoryStore()), NO_COMMIT)
    large, blobs = split_value(b"x" * 5000)
    said = CommitMeta(message="first", authors=("ann",), committer="ci", properties={"p": ("1",)})
    chain.add_draft(CommitDraft({b"a": b"1", b"b": large}, said, "one", blobs=blobs))
    chain.add_draft(CommitDraft({}, CommitMeta(), "two"))
    chain.add_draft(CommitDraft({b"a": None}, CommitMeta(), "three", further_parents=(NO_COMMIT,)))
    sealed = chain.build_commits(1_793_491_200_000_000)
    chain.add_draft(CommitDraft({b"%04d" % number: b"v" for number in range(600)}, CommitMeta(), "four"))
    return sealed + chain.build_commits(1_793_491_200_000_000)
