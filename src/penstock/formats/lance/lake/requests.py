"""What a commit to Lance tables asks of each of them: operations as steps, one change for a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, TypeVar
from uuid import UUID, uuid4

from penstock.errors import InvalidManifest, InvalidRequest, PenstockError
from penstock.formats.lance import intents
from penstock.formats.lance.intents import NumberedStep, Steps, encode_steps
from penstock.formats.lance.lake import calls
from penstock.formats.lance.lake.calls import LanceOperation
from penstock.formats.lance.names import VERSION_MAX, lance_branch_name
from penstock.formats.lance.state import NAME
from penstock.model.keys import Key
from penstock.model.operations import Change

P = ParamSpec("P")
R = TypeVar("R")

OPERATIONS_MAX: Final = 10_000
MESSAGE_MAX_CHARS: Final = 1000
_VERBS: Final[dict[type, str]] = {
    calls.DeclareLance: "declare",
    calls.RegisterLance: "register",
    calls.CreateLanceVersion: "write",
    calls.DeleteLanceVersions: "delete versions of",
    calls.PutLanceTag: "tag",
    calls.DropLanceTag: "untag",
    calls.PutLanceBranch: "branch",
    calls.DropLanceBranch: "delete a branch of",
    calls.DeregisterLance: "deregister",
}

NewPlace = Callable[[UUID, calls.DeclareLance | calls.RegisterLance], str]
"""The place of a new table: of the lake's own making, or one that was named, if it can be that."""
LocationOf = Callable[[Key], str]
"""Where a table is that the lake has."""


def make_changes(
    operations: Sequence[tuple[int, LanceOperation]], new_place: NewPlace, location_of: LocationOf
) -> list[Change]:
    """Operations, each with its number in the request, as one change for each table.

    ``InvalidRequest`` for operations that contradict each other.
    """
    if len(operations) > OPERATIONS_MAX:
        raise InvalidRequest(f"a commit to Lance tables can have at most {OPERATIONS_MAX} operations")
    by_key: dict[Key, list[tuple[int, LanceOperation]]] = {}
    for number, operation in operations:
        by_key.setdefault(operation.key, []).append((number, operation))
    changes = []
    for key, ones in by_key.items():
        check_together(ones)
        steps = _StepBuilder(key, new_place, location_of)
        placed = tuple(
            NumberedStep(number, run_for_operation(number, steps.make_step, number, operation))
            for number, operation in ones
        )
        try:
            changes.append(Change(key, NAME, encode_steps(Steps(placed))))
        except (OverflowError, UnicodeEncodeError) as problem:
            raise InvalidRequest(f"invalid commit to '{key}': {problem}") from None
    return changes


def run_for_operation(number: int, work: Callable[P, R], *given: P.args, **named: P.kwargs) -> R:
    """Do something for one operation of a batch; what is raised says which it was."""
    try:
        return work(*given, **named)
    except PenstockError as problem:
        problem.details.setdefault("operation", number)
        raise


def write_commit_message(operations: Sequence[LanceOperation]) -> str:
    """What a commit says of itself, if its writer says nothing."""
    keys_by_verb: dict[str, list[str]] = {}
    for operation in operations:
        keys = keys_by_verb.setdefault(_VERBS.get(type(operation), "change"), [])
        if str(operation.key) not in keys:
            keys.append(str(operation.key))
    text = "; ".join(f"{verb} {', '.join(keys)}" for verb, keys in keys_by_verb.items())
    return text if len(text) <= MESSAGE_MAX_CHARS else f"{text[:MESSAGE_MAX_CHARS]}…"


class _StepBuilder:
    """Operations of one table, one after the other, as steps."""

    def __init__(self, key: Key, new_place: NewPlace, location_of: LocationOf) -> None:
        self._key, self._new_place, self._location_of = key, new_place, location_of
        self._location: str | None = None

    def make_step(self, number: int, operation: LanceOperation) -> intents.Step:
        match operation:
            case calls.DeclareLance():
                identity = operation.id or uuid4()
                self._location = self._new_place(identity, operation)
                return intents.DeclareStep(
                    id=identity,
                    location=self._location,
                    is_private=operation.is_private,
                    properties=operation.properties,
                )
            case calls.RegisterLance():
                identity = uuid4()
                self._location = self._new_place(identity, operation)
                return intents.RegisterStep(
                    id=identity,
                    location=self._location,
                    replaces=operation.replaces,
                    is_private=operation.is_private,
                    properties=operation.properties,
                )
            case calls.CreateLanceVersion():
                return self._make_create_step(number, operation)
            case _:
                return _make_step(operation)

    def _make_create_step(self, number: int, operation: calls.CreateLanceVersion) -> intents.CreateStep:
        if self._location is None:
            self._location = self._location_of(self._key)
        folder = f"{self._location}/"
        if not operation.manifest.startswith(folder):
            raise InvalidManifest(
                f"{operation.manifest} is not inside the folder of '{self._key}', which is {self._location}",
                operation=number,
                table=str(self._key),
            )
        if not 1 <= operation.version <= VERSION_MAX:
            raise InvalidRequest(f"'{self._key}' cannot have a version {operation.version}", operation=number)
        return intents.CreateStep(
            branch=lance_branch_name(operation.branch),
            version=operation.version,
            path=operation.manifest.removeprefix(folder),
            size=operation.size,
            is_v1=operation.is_v1,
            e_tag=operation.e_tag,
            metadata=operation.metadata,
        )


def _make_step(operation: LanceOperation) -> intents.Step:
    """A step that says the same as its operation."""
    match operation:
        case calls.DeleteLanceVersions():
            return intents.DeleteStep(branch=lance_branch_name(operation.branch), ranges=operation.ranges)
        case calls.AlterLance():
            return intents.AlterStep(properties=operation.properties)
        case calls.PutLanceTag():
            return intents.PutTagStep(
                name=operation.tag_name,
                branch=lance_branch_name(operation.branch),
                version=operation.version,
                is_new=operation.is_new,
                metadata=operation.metadata,
            )
        case calls.DropLanceTag():
            return intents.DropTagStep(name=operation.tag_name)
        case calls.PutLanceBranch():
            return intents.PutBranchStep(
                name=operation.branch,
                parent=lance_branch_name(operation.parent),
                version=operation.version,
                metadata=operation.metadata,
            )
        case calls.DropLanceBranch():
            return intents.DropBranchStep(name=operation.branch)
        case _:
            return intents.DeregisterStep()


# -- what goes together ------------------------------------------------------------------------------------


def check_together(ones: Sequence[tuple[int, LanceOperation]]) -> None:
    """``InvalidRequest`` for operations on one table of which one would undo or repeat another."""
    named: dict[tuple[str, str | int], int] = {}
    created: dict[str, dict[int, int]] = {}
    for place, (number, operation) in enumerate(ones):
        if isinstance(operation, calls.DeclareLance | calls.RegisterLance) and place > 0:
            raise _contradiction_error(
                operation.key, number, ones[0][0], "the creation of a table must be its first operation"
            )
        if isinstance(operation, calls.DeregisterLance) and len(ones) > 1:
            other = ones[0][0] if place else ones[1][0]
            raise _contradiction_error(
                operation.key, number, other, "a table that is dropped cannot also be changed"
            )
        if isinstance(operation, calls.CreateLanceVersion):
            versions = created.setdefault(lance_branch_name(operation.branch), {})
            if (other_one := versions.setdefault(operation.version, number)) != number:
                raise _contradiction_error(
                    operation.key, number, other_one, f"both create version {operation.version}"
                )
        for name in _list_touched_names(operation):
            if (other_one := named.setdefault(name, number)) != number:
                raise _contradiction_error(
                    operation.key, number, other_one, f"both are about {name[0]} '{name[1]}'"
                )
    for number, operation in ones:
        if isinstance(operation, calls.DeleteLanceVersions):
            for version, other_one in created.get(lance_branch_name(operation.branch), {}).items():
                if any(start <= version and (end < 0 or version < end) for start, end in operation.ranges):
                    raise _contradiction_error(
                        operation.key,
                        number,
                        other_one,
                        f"one creates version {version}, the other deletes it",
                    )


def _list_touched_names(operation: LanceOperation) -> list[tuple[str, str | int]]:
    if isinstance(operation, calls.PutLanceTag | calls.DropLanceTag):
        return [("tag", operation.tag_name)]
    if isinstance(operation, calls.PutLanceBranch | calls.DropLanceBranch):
        return [("branch", operation.branch)]
    return []


def _contradiction_error(key: Key, number: int, other: int, why: str) -> InvalidRequest:
    first, second = sorted((number, other))
    return InvalidRequest(
        f"operations {first} and {second} on '{key}' contradict each other: {why}",
        operation=second,
        table=str(key),
    )
