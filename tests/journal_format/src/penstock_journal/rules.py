"""How a journal changes, and how two changes meet: what the kernel asks of the format."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from penstock.kernel.format import AppliedChange, Format, FormatRefused, Table, blob
from penstock.model.content import AnyContent, Unknown
from penstock.model.decoders import get_msgpack_decoder
from penstock.model.encoding import ObjectId, encode
from penstock.model.keys import Key
from penstock.model.operations import Change
from penstock_journal.lines import CONTENT_TYPE, make_content, state_of, write_line

Publish = Callable[[AnyContent], None]


class Append(msgspec.Struct, frozen=True, array_like=True):
    """What a change intends: add lines. A merge repeats it on the other branch."""

    lines: tuple[str, ...]
    read_version: int | None = None
    """If the lines answer what was read: the version of the journal then."""


_decode = get_msgpack_decoder(Append).decode


def append(key: Key, lines: Sequence[str], read_version: int | None = None) -> Change:
    return Change(key, JournalRules.name, encode(Append(tuple(lines), read_version)))


class JournalRules(Format):
    """Lines of two branches are all kept. Lines that answer a version are refused once others came."""

    name = "journal"

    def __init__(self, publish: Publish) -> None:
        self._publish = publish

    def manages(self, content: AnyContent) -> bool:
        return isinstance(content, Unknown) and content.type_name == CONTENT_TYPE

    def prepare(self, table: Table, change: Change) -> None:
        if any("\n" in line for line in _decode(change.intent).lines):
            raise FormatRefused("takes lines: a text with a line break is several")

    def apply(self, table: Table, change: Change, prepared: None) -> AppliedChange:
        intent, version = _decode(change.intent), state_of(table.content).version
        if intent.read_version is not None and intent.read_version != version:
            raise FormatRefused(
                "has got other lines", expected=f"v{intent.read_version}", found=f"v{version}"
            )
        blobs = dict(
            blob(write_line(version + number, text)) for number, text in enumerate(intent.lines, start=1)
        )
        held = () if table.content is None else table.content.objects
        content = make_content(table.content, version + len(blobs), (*held, *blobs))
        return AppliedChange(content, blobs)

    def describe_state(self, content: AnyContent) -> str:
        return f"v{state_of(content).version}"

    def check_direct_change(self, table: Table, content: AnyContent | None) -> None:
        """A journal may be dropped. What it holds is not for other programs to make up."""
        if content is not None and content != table.content:
            raise FormatRefused("is a journal: add lines with 'penstock journal append'")

    def after_commit(
        self,
        key: Key,
        content: AnyContent | None,
        commit: ObjectId,
        *,
        branch: str,
        is_default: bool,
    ) -> None:
        if content is not None and is_default:
            self._publish(content)
