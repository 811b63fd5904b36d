"""The tree of errors: drawn as it is, told apart by code, and carried whole between processes."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator

import pytest

from penstock import errors
from penstock.errors import CommitConflict, MergeConflict, PenstockError
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key

CONFLICTS = (
    Conflict(ConflictKind.KEY_EXISTS, Key.parse("a.b"), "", "ICEBERG_TABLE s3://b/1 [12345678]"),
    Conflict(ConflictKind.FORMAT, Key.parse('a."b.c"'), "version 3", "version 4", "was overwritten"),
)


def _classes(root: type[PenstockError] = PenstockError) -> Iterator[type[PenstockError]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from _classes(kind)


CLASSES = sorted(set(_classes()), key=lambda kind: kind.__name__)


def _sample(kind: type[PenstockError]) -> PenstockError:
    if issubclass(kind, CommitConflict):
        return kind(CONFLICTS)
    return kind("it did not work\n  try again", key="a.b", expected="1", objects=["00", "ff"])


def _drawn() -> dict[str, str]:
    """Each class of the drawing, with the class it hangs from."""
    parents: dict[str, str] = {}
    path: list[str] = []
    assert errors.__doc__ is not None
    for line in errors.__doc__.splitlines():
        found = re.match(r"    ((?:[│ ]   )*)(?:[├└]── )?([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4 + ("── " in line)
            path[depth:] = [found[2]]
            parents[found[2]] = path[depth - 1] if depth else ""
    return parents


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    real = {kind.__name__: kind.__base__.__name__ for kind in CLASSES if kind.__base__ is not None}
    real["PenstockError"] = ""
    assert _drawn() == real


def test_every_class_has_a_code_of_its_own() -> None:
    codes = [vars(kind).get("code") for kind in CLASSES]
    assert None not in codes
    assert len(set(codes)) == len(CLASSES) > 25
    assert all(re.fullmatch(r"[a-z_]+", str(code)) for code in codes)


def test_every_class_says_what_it_means() -> None:
    assert [kind.__name__ for kind in CLASSES if not kind.__doc__] == []


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (errors.RequestError, 1),
        (errors.InvalidKey, 1),
        (errors.ConflictError, 3),
        (errors.CommitConflict, 3),
        (errors.MergeConflict, 3),
        (errors.ReferenceExists, 3),
        (errors.NotFound, 4),
        (errors.ReferenceNotFound, 4),
        (errors.CommitNotFound, 4),
        (errors.KeyNotFound, 4),
        (errors.LakeNotFound, 4),
        (errors.HistoryExpired, 4),
        (errors.Unavailable, 5),
        (errors.RetriesExhausted, 5),
        (errors.Throttled, 5),
        (errors.Denied, 6),
        (errors.OutcomeUnknown, 7),
        (errors.Damaged, 1),
    ],
)
def test_exit_codes_are_as_documented(kind: type[PenstockError], exit_code: int) -> None:
    assert kind.exit_code == exit_code


def test_http_statuses_tell_whose_turn_it_is() -> None:
    for kind in CLASSES:
        blames_the_caller = issubclass(
            kind,
            errors.RequestError
            | errors.ConflictError
            | errors.Throttled
            | errors.TimedOut
            | errors.Unauthenticated
            | errors.Denied
            | errors.OutOfSync,  # the table is not what the caller counts on, and no other try helps
        )
        expected = 4 if blames_the_caller else 5
        assert kind.http_status // 100 == expected, kind


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_and_copying_whole(kind: type[PenstockError]) -> None:
    error = _sample(kind)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is kind
        assert (str(again), again.message, again.details) == (str(error), error.message, error.details)
    for other in (copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert (str(other), other.message, other.details) == (str(error), error.message, error.details)


@pytest.mark.parametrize(
    ("kind", "when"), [(CommitConflict, "by another writer since"), (MergeConflict, "on both sides")]
)
def test_conflicts_are_named_one_by_one_and_survive_pickling(kind: type[CommitConflict], when: str) -> None:
    error = pickle.loads(pickle.dumps(kind(CONFLICTS)))
    assert error.conflicts == CONFLICTS
    assert "2 conflicts" in str(error)
    found = "ICEBERG_TABLE s3://b/1 [12345678]"
    assert f"'a.b' was created {when} (expected nothing, found {found})" in str(error)
    assert "'a.\"b.c\"' was overwritten (expected version 3, found version 4)" in str(error)
    assert kind(CONFLICTS, "said otherwise").message == "said otherwise"


def test_many_conflicts_are_all_kept_and_the_first_twenty_are_told() -> None:
    many = [Conflict(ConflictKind.VALUE_DIFFERS, Key(f"t{number:02}")) for number in range(25)]
    error = CommitConflict(many)
    assert len(error.conflicts) == 25
    assert "'t19'" in str(error)
    assert "'t20'" not in str(error)
    assert "5 more" in str(error)
    assert "1 conflict\n" in str(CommitConflict(many[:1]))
