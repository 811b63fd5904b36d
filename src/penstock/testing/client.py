"""A client that writes down what it does: small tables whose whole content is one short text."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from uuid import uuid4

from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import read_content
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import make_table_pointer
from penstock.model.operations import Delete, Operation, Put, Unchanged
from penstock.testing.recorder import RecordedCall, Recorder, Values


def content_for(value: str) -> AnyContent:
    return make_table_pointer(value)


def value_of(content: AnyContent | None) -> str | None:
    """The text that a table was given; what else a content is, is told by its type."""
    if content is None:
        return None
    return content.locations[0] if content.locations else f"a {content.type}"


class Client:
    """Writes and reads keys of one branch, and records every call and answer."""

    def __init__(self, kernel: Kernel, recorder: Recorder, branch: str = "main") -> None:
        self.kernel, self.recorder, self.branch = kernel, recorder, branch

    def write(
        self,
        values: Mapping[str, str | None],
        *,
        key: str | None = None,
        base: ObjectId | None = None,
        reads: Mapping[str, str | None] | None = None,
    ) -> str:
        """Write values (``None`` deletes) in one commit and return its id.

        With a ``base``, ``reads`` is what the client saw there, and all of it must be unchanged.
        """
        key = key or uuid4().hex
        seen = dict(reads or {})
        operations: list[Operation] = [
            Delete(Key(name)) if value is None else Put(Key(name), content_for(value))
            for name, value in values.items()
        ]
        if base is not None:
            operations += [Unchanged(Key(name)) for name in seen if name not in values]
        named = base.hex() if base is not None else None
        with self.recorder.call(key, values, seen if base is not None else {}, named) as call:
            meta = CommitMeta(message=", ".join(values), committer=self.recorder.client)
            outcome = self.kernel.commit(self.branch, operations, meta, base=base, key=key)
            call.commit = outcome.head.hex()
        return outcome.head.hex()

    def repeat(self, call: RecordedCall) -> str:
        """Make a request again that was made before, by anyone."""
        base = bytes.fromhex(call.base) if call.base is not None else None
        return self.write(call.writes, key=call.key, base=base, reads=call.reads)

    def look(self, names: Collection[str]) -> tuple[ObjectId, Values]:
        """What keys hold now, and the commit at which they do; not recorded."""
        head = self.kernel.references.get_reference(self.branch).head
        values = self.kernel.read_state(head).get_many([Key(name).encode() for name in names])
        objects = self.kernel.objects
        return head, {name: value_of(read_content(objects, values.get(Key(name).encode()))) for name in names}

    def read(self, names: Collection[str]) -> Values:
        """What keys hold now."""
        start_ns = time.monotonic_ns()
        head, values = self.look(names)
        self.recorder.read(start_ns, values, head.hex())
        return values

    def update(self, names: Collection[str], label: str, *, key: str | None = None) -> str:
        """Read keys, then write all of them on the condition that none changed since."""
        base, seen = self.look(names)
        return self.write({name: f"{label} {name}" for name in names}, key=key, base=base, reads=seen)
