"""The format contract notices formats that are broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock.kernel.format import AppliedChange
from penstock.lake.embedded import Embedded
from penstock.testing.format_contract import FormatContract
from tests.journal_format.installation import install, installed


class Journals(FormatContract):
    name = "journal"
    row_format = "journal"
    column = "line"
    can_erase = False

    def read_published(self, lake: penstock.Lake, path: Path) -> list[str] | None:
        newest = sorted((path / "warehouse" / "journals").rglob("*2.txt"))
        return newest[-1].read_text().split() if newest else []


def _lose_what_landed(rules: Any, apply: Any) -> Any:
    """A change acts on the table as it was when it was prepared."""
    seen: dict[bytes, Any] = {}

    def prepare(table: Any, change: Any) -> None:
        seen.setdefault(change.intent, table.content)

    rules.prepare = prepare
    return lambda table, change, prepared: apply(
        msgspec.structs.replace(table, content=seen.get(change.intent, table.content)), change, prepared
    )


BREAKS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "a_write_that_lands_after_another_was_prepared_is_kept": ("apply", _lose_what_landed),
    "rows_of_both_branches_are_merged_once": (
        "merge",
        lambda *_: lambda _table, _base, source, _intents: AppliedChange(source),
    ),
    "a_transaction_whose_table_changed_since_it_was_read_does_not_land": (
        "check_read",
        lambda *_: lambda _table, _was, _parts: None,
    ),
    "a_table_is_restored_and_goes_on": (
        "restore",
        lambda *_: lambda table, _wanted: AppliedChange(table.content),
    ),
}
"""Tests of the contract, and how a format has to be broken for each to fail."""


@pytest.mark.parametrize("test", BREAKS)
def test_a_broken_format_fails(tmp_path: Path, test: str) -> None:
    step, broken = BREAKS[test]
    path, contract = tmp_path / "lake", Journals()
    with installed(install(tmp_path / "site")), penstock.open(path, create=True) as lake:
        contract.write(lake, "contract", "first")
        rules = contract.rules(lake)
        setattr(rules, step, broken(rules, getattr(rules, step)))
        check = getattr(contract, f"test_{test}")
        given = (lake, path) if "path" in check.__annotations__ else (lake,)
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check(*given)


def test_a_format_that_does_not_catch_up_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, contract = tmp_path / "lake", Journals()
    with installed(install(tmp_path / "site")), penstock.open(path, create=True) as lake:
        contract.write(lake, "contract", "first")
        assert isinstance(lake.catalogue, Embedded)
        plugin = lake.catalogue.find_plugin(lake.table("contract").content)
        monkeypatch.setattr(type(plugin), "catch_up", lambda _: None)
        with pytest.raises(AssertionError):
            contract.test_what_a_process_left_when_it_died_is_published_by_the_next(lake, path)
