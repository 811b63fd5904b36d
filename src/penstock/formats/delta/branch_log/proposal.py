"""A proposal: a commit as its writer gives it, before anybody has decided about it."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any, Final

from penstock.errors import InvalidContent, InvalidRequest
from penstock.formats.delta.branch_log.branch_log import CommitTerms
from penstock.formats.delta.branch_log.composed_commit import BODIES, METRICS, CommitBody, operation_metrics
from penstock.formats.delta.branch_log.intents import ActionsBodyFile, CommitIntent
from penstock.formats.delta.branch_log.replacements import check_partitions
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from penstock.formats.delta.protocol.engine_name import engine_info
from penstock.formats.delta.protocol.lint import LintProblem
from penstock.formats.delta.protocol.lint_files import Fault, Numbered, has_whole_address
from penstock.formats.delta.protocol.lint_lines import read_lines
from penstock.formats.delta.protocol.row_ids import is_high_water_mark
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.model.keys import Key
from penstock.storage.places import Place, Places

MAINTENANCE: Final = frozenset({"OPTIMIZE", "REORG", "COMPUTE STATS"})
"""Operations that never change rows, by the words that writers have for them."""

BODY_MAX_BYTES: Final = 1 << 30
"""How large a file with actions may be. All of it is read before a commit is decided about."""


class DeltaProposal:
    """The lines of a commit to a table at a location, read."""

    def __init__(self, key: Key, intent: CommitIntent, places: Places, location: str) -> None:
        self.key, self.intent = key, intent
        self.body: CommitBody | None = None
        data = intent.actions
        if isinstance(data, ActionsBodyFile):
            self.body = CommitBody(data.name, data.sha256, data.size)
            data = _read_body(key, places.open_place(location), data)
        self.info: CommitInfo | None = None
        """As the writer gave it, if it did."""
        self.info_line = b""
        self.actions: list[Numbered] = []
        """All the others that are known, with the numbers of their lines."""
        self.raw: dict[type[Action], bytes] = {}
        """The lines that tell what the table is."""
        self.row_id_lines: dict[int, Action] = {}
        """The actions that tell ids of rows, or should, by the places of their lines in ``lines``."""
        self.problems: list[LintProblem] = []
        """Lines that cannot be read, or stand where they must not."""
        self.lines: bytes = b"\n".join((*self._read_lines(data), b""))

    def _read_lines(self, data: bytes) -> list[bytes]:
        raws: list[bytes] = []
        faults: list[Fault] = []
        for number, raw, action in read_lines(data, faults):
            if isinstance(action, CommitInfo):
                is_misplaced = raws or self.info is not None or self.body is not None
                if is_misplaced and len(self.problems) < _KEPT:
                    where = "it must be the first action of a commit"
                    self.problems.append(LintProblem(number, "commitInfo", where))
                self.info, self.info_line = action, raw
                continue
            if isinstance(action, Add | Remove) or is_high_water_mark(action):
                assert action is not None
                self.row_id_lines[len(raws)] = action
            raws.append(raw)
            if action is not None:
                self.actions.append((number, action))
            if isinstance(action, Protocol | Metadata):
                self.raw[type(action)] = raw
        self.problems += (LintProblem(number, "", reason) for number, reason in faults)
        return raws

    @cached_property
    def plain_actions(self) -> tuple[Action, ...]:
        return tuple(action for _, action in self.actions)

    @cached_property
    def batches(self) -> dict[str, int]:
        """The batches that it records, by application."""
        return {action.app_id: action.version for action in self.plain_actions if isinstance(action, Txn)}

    @cached_property
    def touches_files(self) -> bool:
        """Whether it says something about files that must be in the table for it."""
        return any(
            isinstance(action, Remove)
            or (isinstance(action, Add) and (action.deletion_vector is not None or has_whole_address(action)))
            for action in self.plain_actions
        )

    @cached_property
    def may_repeat_files(self) -> bool:
        """Whether it adds files that may be in the table already.

        Penstock's own writers name every file anew, and are known by what they say of their reading: their
        files are not looked up.
        """
        intent = self.intent
        is_own = intent.table is not None and intent.read_tip is not None and intent.reads is not None
        return not is_own and any(isinstance(action, Add) for action in self.plain_actions)

    @cached_property
    def paths(self) -> frozenset[str]:
        """The decoded paths of the files that it speaks of."""
        return frozenset(action.key.path for action in self.plain_actions if isinstance(action, Add | Remove))

    @property
    def depends_on_table_state(self) -> bool:
        """Whether more of the table matters at its turn than what the table is."""
        intent = self.intent
        asks = intent.read_version is not None or intent.replaces is not None
        return asks or self.touches_files or bool(self.batches)

    @cached_property
    def terms(self) -> CommitTerms:
        """On what it rests. A writer that does not tell what it read has read everything."""
        intent, info = self.intent, self.info
        operation = None if info is None else info.operation
        return CommitTerms(
            reads=self._make_blind_reads() if intent.reads is None else intent.reads,
            replaces=intent.replaces,
            changes_data=(operation or "").upper() not in MAINTENANCE,
        )

    def _make_blind_reads(self) -> DeltaReads:
        says = None if self.info is None else self.info.is_blind_append
        if self.intent.replaces is not None and self.intent.read_version is None:
            return DeltaReads()
        only_adds = all(
            isinstance(action, Add | Cdc | Txn) or is_high_water_mark(action) for action in self.plain_actions
        )
        was_read = self.intent.version is not None or self.intent.read_version is not None
        is_blind = only_adds and (says is True if was_read else says is not False)
        return DeltaReads() if is_blind else DeltaReads(whole_table=True)

    def check_conditions(self, metadata: Metadata) -> None:
        """``InvalidRequest`` if what it looked at is told by a condition on other than partition columns of
        the table that it read."""
        reads = self.intent.reads
        parts = (
            ()
            if reads is None
            else (partition for partition in reads.partitions if partition.where is not None)
        )
        check_partitions(parts, metadata, f"'{self.key}'")

    @cached_property
    def commit_info(self) -> CommitInfo:
        """The ``commitInfo`` that the owner writes as the first line of the commit, without the timestamp."""
        writer_fields: dict[str, Any] = {} if self.info is None else self.info.fields
        only_adds = not any(isinstance(action, Remove) for action in self.plain_actions)
        is_blind = only_adds and self.intent.replaces is None and self.terms.reads.nothing
        fields: dict[str, Any] = {
            "operation": "WRITE",
            "operationParameters": {},
            **writer_fields,
            "isBlindAppend": is_blind,
            "txnId": self.transaction_id,
        }
        fields.setdefault("engineInfo", engine_info())
        if METRICS not in fields and (figures := operation_metrics(fields["operation"], self.plain_actions)):
            fields[METRICS] = figures
        if self.intent.read_version is not None:
            fields.setdefault("readVersion", self.intent.read_version)
        return CommitInfo(fields)

    @property
    def transaction_id(self) -> str:
        """The writer's, if it gave one."""
        return (self.info and self.info.transaction_id) or str(self.intent.uuid)


def refusal_error(key: Key, problems: list[LintProblem] | tuple[LintProblem, ...]) -> InvalidContent:
    """The error that lists everything that is wrong with a commit."""
    shown = [f"  {problem}" for problem in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        shown.append(f"  … and {len(problems) - _SHOWN} more")
    return InvalidContent(
        "\n".join((f"the commit to '{key}' would make the table invalid:", *shown)),
        table=str(key),
        problems=[(problem.line, problem.action, problem.reason) for problem in problems[:_KEPT]],
    )


_SHOWN: Final = 20
_KEPT: Final = 1000
_NAME_MAX: Final = 500


def _read_body(key: Key, place: Place, body: ActionsBodyFile) -> bytes:
    """The actions that a writer put into a file. They stay there, as a part of the commit."""
    shown = body.name if len(body.name) <= _NAME_MAX else f"{body.name[:60]}…"
    if not _is_body_name(body.name):
        raise InvalidRequest(
            f"the actions for '{key}' must be in a file directly below {BODIES}, with a path of at most "
            f"{_NAME_MAX} characters, got {shown!r}"
        )
    if not 0 < body.size <= BODY_MAX_BYTES:
        raise InvalidRequest(
            f"the commit body {body.name} for '{key}' is declared with {body.size} bytes; it must have 1 to "
            f"{BODY_MAX_BYTES}"
        )
    size = place.size(body.name)
    if size is None:
        raise InvalidRequest(f"the actions for '{key}' should be in {body.name}, which does not exist")
    # No more is read than was said, even if the file grows meanwhile.
    data = place.read_range(body.name, 0, body.size) if size == body.size else None
    if data is None or len(data) != body.size or hashlib.sha256(data).digest() != body.sha256:
        raise InvalidRequest(f"{body.name} does not match its size and SHA-256; write it again")
    return data


def _is_body_name(name: str) -> bool:
    """Everywhere else below the table, files go by other rules than whether a commit names them as its body.
    A dot comes first in names that storage gives to what is not finished."""
    if not name.startswith(BODIES) or len(name) > _NAME_MAX or not name.isprintable():
        return False
    plain = name.removeprefix(BODIES)
    return bool(plain) and not plain.startswith(".") and not {"/", "\\"}.intersection(plain)
