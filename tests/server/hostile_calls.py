"""Well-formed requests of a hostile token: calls that name what is somebody else's, wherever a call can."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from penstock.formats.delta.lake import calls as delta_calls
from penstock.formats.files.content import FilesTable
from penstock.formats.files.lake import calls as files
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake import calls as lance
from penstock.lake import calls
from penstock.lake.call import Call
from penstock.lake.transactions import calls as transactions
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable, IcebergTable
from penstock.model.operations import Change, Delete, Put, Unchanged
from penstock.model.references import Kind

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
)


class Calls:
    """Calls at random, made of what is known of a lake."""

    def __init__(self, pool: dict[str, list[Any]], chance: random.Random) -> None:
        self._pool, self._chance = pool, chance
        self._kinds: list[Callable[[], Call[Any]]] = [
            self._operations, self._files, self._files, self._lance, self._lance, self._delta, self._delta,
            self._bring, self._reference, self._transaction, self._job, self._read, self._read, self._outcome,
        ]  # fmt: skip

    def next(self) -> Call[Any]:
        return self._chance.choice(self._kinds)()

    def _of(self, *options: Callable[[], Any]) -> Any:
        return self._chance.choice(options)()

    def _call(self, *options: Callable[[], Call[Any]]) -> Call[Any]:
        return self._chance.choice(options)()

    def _pick(self, kind: str) -> Any:
        return self._chance.choice(self._pool[kind])

    def _key(self) -> Key:
        """Mostly one of theirs: what is somebody else's is named by something else, then."""
        return Key(*(self._pick("elements") or ("hr",))) if self._chance.random() < 0.4 else self._own()

    def _own(self) -> Key:
        name = self._chance.choice(["delta", "lance", "files", "orders", "new"])
        return Key("sales", name if name != "new" else f"n{self._chance.randrange(5)}")

    def _branch(self) -> str:
        return (
            str(self._pick("ref"))
            if self._chance.random() < 0.3
            else self._chance.choice(["main", "dev/x", "own/x"])
        )

    def _id(self) -> str:
        return str(self._pick("id"))

    def _uuid(self) -> UUID:
        try:
            return UUID(self._id())
        except ValueError:
            return uuid4()

    def _idempotency_key(self) -> str | None:
        return self._chance.choice([None, "hr-nightly", self._id(), uuid4().hex])

    def _written(self, **more: Any) -> dict[str, Any]:
        key = self._idempotency_key()
        return {"branch": self._branch(), **({"idempotency_key": key} if key else {}), **more}

    def _operations(self) -> Call[Any]:
        place, id = self._pick("place"), self._uuid()  # noqa: A001
        content = self._of(
            lambda: IcebergTable(metadata_location=place),
            lambda: IcebergTable(metadata_location=place, id=id),
            lambda: DeltaTable(location=place, id=id),
            lambda: LanceTable(location=place, id=id),
            lambda: FilesTable(location=place, id=id),
            lambda: Namespace(properties={"location": place}),
        )
        operation = self._of(
            lambda: Put(self._key(), content),
            lambda: Delete(self._key()),
            lambda: Unchanged(self._key()),
            lambda: Change(self._key(), self._chance.choice(["delta", "lance", "files"]), b"\x91\x01"),
        )
        wanted = self._written(base=self._of(lambda: None, lambda: self._pick("ref")))
        return calls.CommitOperations(operations=(operation,), **wanted)

    def _files(self) -> Call[Any]:
        place = str(self._pick("place"))
        folder = "/".join(place.rstrip("/").split("/")[-2:]) + "/"
        new = files.NewFile(
            path=f"x{self._chance.randrange(9)}", name=self._chance.choice(["a.csv", "b.csv", ""]), size=1
        )
        copied = files.CopiedFile(path="c", source="a.csv", key=self._key(), at=self._pick("ref"))
        what = self._of(
            lambda: {"folder": folder, "added": (new,)},
            lambda: {"folder": folder, "put": (new,), "job": self._id(), "fence": self._id()},
            lambda: {"copied": (copied,)},
            lambda: {"folder": folder, "added": files.ListOfFiles(name="a.csv", size=1, sha256=bytes(32))},
            lambda: {"replaced": ("",)},
        )
        return files.WriteFiles(key=self._key(), **self._written(**what))

    def _lance(self) -> Call[Any]:
        key, place = self._key(), str(self._pick("place"))
        operation = self._of(
            lambda: lance.DeclareLance(key=key, id=self._uuid()),
            lambda: lance.DeclareLance(key=key, location=place),
            lambda: lance.RegisterLance(key=key, location=place),
            lambda: lance.CreateLanceVersion(key=key, version=2, manifest=place, size=100),
            lambda: lance.PutLanceTag(key=key, tag_name="t", version=1),
            lambda: lance.DropLanceBranch(key=key, branch="b"),
            lambda: lance.DeregisterLance(key=key),
        )
        return lance.CommitLance(operations=(operation,), **self._written())

    def _delta(self) -> Call[Any]:
        place, key = str(self._pick("place")), self._key()
        path = self._chance.choice(
            [place, f"file://{place}", f"../{self._id()}/part.parquet", "%2e%2e/x", "a.parquet"]
        )
        vector = {
            "storageType": "p",
            "pathOrInlineDv": place,
            "sizeInBytes": 1,
            "cardinality": 1,
            "offset": 1,
        }
        add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
        if self._chance.random() < 0.3:
            add["deletionVector"] = vector
        actions = json.dumps({"add": add})
        return self._call(
            lambda: delta_calls.CommitTables(
                tables=(delta_calls.TableCommit(key=key, actions=actions, table=self._uuid()),),
                **self._written(),
            ),
            lambda: delta_calls.CommitTables(
                tables=(delta_calls.TableCommit(key=key, actions=actions),), **self._written()
            ),
            lambda: delta_calls.CreateTable(
                key=key, schema=SCHEMA, id=self._uuid(), actions=actions, **self._written()
            ),
            lambda: delta_calls.CreateTable(key=key, schema=SCHEMA, location=place, **self._written()),
            lambda: delta_calls.CloneTable(source=key, key=key, at=str(self._pick("ref")), **self._written()),
            lambda: delta_calls.AdoptTable(key=key, location=place, **self._written()),
            lambda: delta_calls.AdoptTables(location=place, namespace=key),
            lambda: delta_calls.ReleaseTables(namespace=key),
            lambda: delta_calls.PublishTable(key=key, branch=self._branch()),
        )

    def _bring(self) -> Call[Any]:
        ref = str(self._pick("ref"))
        how: dict[str, Any] = {"dry_run": self._chance.random() < 0.5}
        return self._call(
            lambda: calls.Merge(source=ref, into=self._branch(), **how),
            lambda: calls.Transplant(commits=(ref,), onto=self._branch(), **how),
            lambda: calls.Revert(commit=ref, on=self._branch(), **how),
            lambda: calls.Restore(all=True, to=ref, branch=self._branch(), **how),
            lambda: calls.Restore(keys=(self._key(),), to=ref, branch=self._branch(), **how),
            lambda: calls.Rebase(branch=self._branch(), onto=ref, **how),
        )

    def _reference(self) -> Call[Any]:
        ref, name = str(self._pick("ref")), f"dev/n{self._chance.randrange(20)}"
        return self._call(
            lambda: calls.CreateReference(name=name, kind=Kind.BRANCH, at=ref),
            lambda: calls.CreateReference(name=self._branch(), kind=Kind.TAG, at=ref),
            lambda: calls.AssignReference(name=self._chance.choice([name, "secret", "main"]), to=ref),
            lambda: calls.DeleteReference(name=self._chance.choice([name, "secret", "secret-v1"])),
            lambda: calls.GetReferenceLog(name=self._branch()),
        )

    def _transaction(self) -> Call[Any]:
        id = self._id()  # noqa: A001
        return self._call(
            lambda: transactions.GetTransaction(id=id, reads=True),
            lambda: transactions.CommitTransaction(id=id),
            lambda: transactions.AbortTransaction(id=id),
            lambda: transactions.RenewTransaction(id=id),
            lambda: transactions.BeginTransaction(id=id, target=self._branch()),
            lambda: transactions.ListTransactions(all=True),
        )

    def _job(self) -> Call[Any]:
        id, fence = self._id(), self._id()  # noqa: A001
        return self._call(
            lambda: files.BeginJob(id=id, fence=fence, key=self._key(), branch=self._branch()),
            lambda: files.AbortJob(id=id),
            lambda: files.AbortJob(id=id, fence=fence),
            lambda: files.ListJobs(all=True),
            lambda: files.ListJobs(id=id, all=True),
        )

    def _read(self) -> Call[Any]:
        at: dict[str, Any] = {"at": self._pick("ref"), "via": self._of(lambda: None, self._branch)}
        key = self._key()
        return self._call(
            lambda: files.ListFiles(key=key, **at),
            lambda: files.GetFilesTable(key=key, **at),
            lambda: lance.GetLanceTable(key=key, **at),
            lambda: lance.GetLanceStatus(key=key),
            lambda: lance.ListLanceVersions(key=key, **at),
            lambda: delta_calls.GetTableVersions(key=key, **at),
            lambda: delta_calls.FindTable(id=self._id(), **at),
            lambda: calls.GetContents(key=(key,), **at),
            lambda: calls.ListEntries(prefix=self._of(lambda: None, lambda: key), **at),
            lambda: calls.ListCommits(ref=at["at"], text=self._of(lambda: None, lambda: "a"), via=at["via"]),
            lambda: calls.SearchLog(ref=at["at"], text=self._of(lambda: None, lambda: "a"), via=at["via"]),
            lambda: calls.GetCommit(revision=at["at"], via=at["via"]),
            lambda: calls.GetChanges(revision=at["at"], via=at["via"]),
            lambda: calls.Diff(before=at["at"], to=self._pick("ref")),
            lambda: calls.Compare(one=at["at"], other=self._pick("ref")),
            lambda: calls.GetFigures(ref=at["at"], via=at["via"], table=self._of(lambda: None, lambda: key)),
            lambda: calls.Resolve(revision=at["at"]),
        )

    def _outcome(self) -> Call[Any]:
        who = self._chance.choice([None, "boss", "sales_writer"])
        return calls.GetOutcome(
            key=self._chance.choice(["hr-nightly", self._id()]), branch=self._branch(), who=who
        )
