"""The format contract: what every table format promises, as tests.

A format's test is a subclass that says how rows are written; everything else goes by the lake's own calls::

    class TestJournals(FormatContract):
        name = "journal"
        row_format = "journal"
        column = "line"

Races are forced: another program does something after a given step of the first. So are crashes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, ClassVar, Final

import pytest

import penstock
from penstock.errors import (
    ConflictError,
    EraseRefused,
    HistoryExpired,
    MergeConflict,
    PenstockError,
)
from penstock.kernel.format import Format
from penstock.kernel.revert import RevertRequest
from penstock.kernel.settings import Settings
from penstock.lake.audits.rows import open_rows_at
from penstock.lake.calls import EraseTable
from penstock.lake.embedded import Embedded
from penstock.lake.erase import EraseRun
from penstock.lake.lake import Lake
from penstock.model.keys import Key

KEY: Final = "contract"
OTHER: Final = "contract_other"
ALONE: Final = Settings(grace_s=0, data_grace_days=0, nobody_writes=True)
"""For a program that looks after a lake while nobody writes."""
ERASED: Final = "MARKER-4711"
"""The row that has to be gone. No other text has it."""
ERASE_STEPS: Final = {
    "files are rewritten": "rewrite_files",
    "it is noted": "_note_begun",
    "the first version is committed": "commit_first_version",
    "the horizon is set": "_set_horizon",
    "the log is cut": "cut_history",
    "files are swept": "sweep_unneeded_files",
    "the store is scrubbed": "scrub",
    "it is noted that it has ended": "_note_run",
}
"""Steps of every erase, and what does each: a method of ``Erase``, of the format's half, or of the store."""
FINISH_MAX_S: Final = 30


class Crash(BaseException):
    """The process dies here."""


class FormatContract:
    """To be subclassed by the test of every format. A row is a text in one column."""

    name: ClassVar[str]
    """Of the format."""
    row_format: ClassVar[str]
    """What ``Table.write`` calls it."""
    column: ClassVar[str] = "name"
    can_erase: ClassVar[bool] = True
    further_erase_steps: ClassVar[dict[str, tuple[type, str]]] = {}
    """Steps that only this format has: a class, and its method."""
    is_slow: ClassVar[bool] = False
    """Whether some of the cases are left to ``make verify``."""

    # -- what a format may do otherwise ------------------------------------------------------------------

    def write(self, lake: Lake, key: str, *texts: str, branch: str | None = None) -> None:
        """Add rows to a table, which is created if it is not there."""
        rows = [{self.column: text} for text in texts]
        lake.table(key, branch).write(rows, mode="append", format=self.row_format)

    def remove(self, lake: Lake, key: str, text: str) -> None:
        """Take a row out of a table."""
        rows = [{self.column: value} for value in self.read(lake, key) if value != text]
        lake.table(key).write(rows, mode="overwrite")

    def read(self, lake: Lake, key: str, ref: str | None = None) -> list[str]:
        """The rows of a table, in order."""
        values: list[str] = open_rows_at(lake.table(key, ref)).to_arrow()[self.column].to_pylist()
        return sorted(values)

    def read_published(self, lake: Lake, path: Path) -> list[str] | None:
        """The rows of the table at ``KEY`` as programs read them that know nothing of the lake at a path;
        ``None`` if there are no such programs."""

    def find_text(self, path: Path, text: str) -> list[str]:
        """The files below a folder whose names or bytes have a text."""
        paths = (path for path in path.rglob("*") if path.is_file())
        return sorted(
            str(file.relative_to(path))
            for file in paths
            if text in file.name or text.encode() in file.read_bytes()
        )

    # -- what every test has -----------------------------------------------------------------------------

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Where the lake is, with its warehouse."""
        return tmp_path / "lake"

    @pytest.fixture
    def lake(self, path: Path) -> Iterator[Lake]:
        """A lake with a table of one row. At the end nothing is damaged."""
        with penstock.open(path, create=True, author="ann") as lake:
            self.write(lake, KEY, "first")
            yield lake
            with suppress(AttributeError):
                lake.finish_background(FINISH_MAX_S)
        with penstock.open(path) as lake:
            assert lake.fsck().damages == ()

    def rules(self, lake: Lake) -> Format:
        rules = lake.kernel.formats.find_format(self.name)
        assert rules is not None
        return rules

    @contextmanager
    def racing(self, lake: Lake, step: str, path: Path, race: Callable[[Lake], object]) -> Iterator[None]:
        """Once the format has done a step for the first time, another program does something."""
        rules, results = self.rules(lake), list[bool]()
        real = getattr(rules, step)

        def run(*given: Any, **named: Any) -> Any:
            answer = real(*given, **named)
            if not results:
                results.append(True)
                with penstock.open(path, author="bob") as other:
                    race(other)
            return answer

        setattr(rules, step, run)
        try:
            yield
        finally:
            delattr(rules, step)
        assert results, f"the format was not asked to {step}"

    # -- prepare and apply -------------------------------------------------------------------------------

    def test_rows_are_read_as_they_were_written(self, lake: Lake, path: Path) -> None:
        self.write(lake, KEY, "second", "third")
        assert self.read(lake, KEY) == ["first", "second", "third"]
        assert self.read(lake, KEY, "main~1") == ["first"]
        with penstock.open(path) as other:
            assert self.read(other, KEY) == ["first", "second", "third"]

    def test_a_write_that_lands_after_another_was_prepared_is_kept(self, lake: Lake, path: Path) -> None:
        with self.racing(lake, "prepare", path, lambda other: self.write(other, KEY, "raced")):
            self.write(lake, KEY, "own")
        assert self.read(lake, KEY) == ["first", "own", "raced"]

    def test_a_write_that_fails_at_its_turn_leaves_nothing(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        head = lake.branch().head

        def crash(*_: Any) -> Any:
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(self.rules(lake), "apply", crash)
            with pytest.raises((Crash, PenstockError)):  # a client library may make its own error of it
                self.write(lake, KEY, "lost")
        assert (lake.branch().head, self.read(lake, KEY)) == (head, ["first"])
        self.write(lake, KEY, "second")
        assert self.read(lake, KEY) == ["first", "second"]

    # -- merge, revert, restore --------------------------------------------------------------------------

    def fork(self, lake: Lake) -> None:
        """A branch with a row of its own, and one on the default branch since."""
        lake.branch("work").create()
        self.write(lake, KEY, "work", branch="work")
        self.write(lake, KEY, "main")

    def test_rows_of_both_branches_are_merged_once(self, lake: Lake) -> None:
        self.fork(lake)
        lake.merge("work", "main")
        assert self.read(lake, KEY) == ["first", "main", "work"]
        assert self.read(lake, KEY, "work") == ["first", "work"]
        lake.merge("work", "main")
        assert self.read(lake, KEY) == ["first", "main", "work"]

    def test_a_write_that_lands_while_a_merge_is_prepared_is_kept(self, lake: Lake, path: Path) -> None:
        self.fork(lake)
        with self.racing(lake, "merge", path, lambda other: self.write(other, KEY, "raced")):
            lake.merge("work", "main")
        assert self.read(lake, KEY) == ["first", "main", "raced", "work"]

    def test_a_table_that_one_side_dropped_and_the_other_changed_is_a_conflict(self, lake: Lake) -> None:
        self.fork(lake)
        lake.branch("work").drop(KEY)
        with pytest.raises(MergeConflict, match=KEY):
            lake.merge("work", "main")
        assert self.read(lake, KEY) == ["first", "main"]

    def test_a_write_is_reverted(self, lake: Lake) -> None:
        self.write(lake, KEY, "second")
        lake.revert(lake.branch().head, "main")
        assert self.read(lake, KEY) == ["first"]
        self.write(lake, KEY, "third")
        assert self.read(lake, KEY) == ["first", "third"]

    def test_a_table_is_restored_and_goes_on(self, lake: Lake) -> None:
        then = lake.branch().head
        self.write(lake, KEY, "second")
        self.write(lake, OTHER, "other")
        lake.restore(KEY, to=then)
        assert (self.read(lake, KEY), self.read(lake, OTHER)) == (["first"], ["other"])
        self.write(lake, KEY, "third")
        assert self.read(lake, KEY) == ["first", "third"]

    def test_a_dropped_table_comes_back_with_its_rows(self, lake: Lake) -> None:
        then = lake.branch().head
        lake.branch().drop(KEY)
        lake.restore(KEY, to=then)
        assert self.read(lake, KEY) == ["first"]

    # -- what a transaction has read -----------------------------------------------------------------------

    def test_a_transaction_whose_table_changed_since_it_was_read_does_not_land(
        self, lake: Lake, path: Path
    ) -> None:
        def read_and_write() -> None:
            with lake.transaction(isolation="serializable") as tx:
                assert tx.table(KEY).to_arrow().num_rows == 1
                self.write(lake, OTHER, "other", branch=tx.branch)
                with penstock.open(path, author="bob") as other:
                    self.write(other, KEY, "raced")

        with pytest.raises(MergeConflict, match=KEY):
            read_and_write()
        assert self.read(lake, KEY) == ["first", "raced"]
        assert not lake.table(OTHER).exists

    # -- publish -------------------------------------------------------------------------------------------

    def test_what_a_process_left_when_it_died_is_published_by_the_next(self, lake: Lake, path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.rules(lake), "after_commit", lambda *_, **__: None)  # it dies once that is due
            self.write(lake, KEY, "second")
        with penstock.open(path) as other:
            assert self.read(other, KEY) == ["first", "second"]
            self.write(other, OTHER, "other")
            other.finish_background(FINISH_MAX_S)
            assert self.read_published(other, path) in (None, ["first", "second"])

    # -- backup and sweep ----------------------------------------------------------------------------------

    def test_a_backup_with_data_has_all_that_a_lost_lake_had(self, lake: Lake, path: Path) -> None:
        self.fork(lake)
        lake.finish_background(FINISH_MAX_S)
        backup = path.parent / "backup"
        penstock.backup(path, backup, data=True)
        lake.close()
        shutil.rmtree(path)
        penstock.restore_backup(backup, path, source_is_gone=True)
        with penstock.open(path) as again:
            assert self.read(again, KEY) == ["first", "main"]
            assert self.read(again, KEY, "work") == ["first", "work"]
            self.write(again, KEY, "later")
            assert self.read(again, KEY) == ["first", "later", "main"]

    def test_sweeps_remove_nothing_that_any_reference_has(self, lake: Lake, path: Path) -> None:
        self.fork(lake)
        lake.tag("v1").create("main~1")
        self.write(lake, OTHER, "other")
        lake.branch().drop(OTHER)
        lake.finish_background(FINISH_MAX_S)
        lake.close()
        with penstock.open(path, settings=ALONE) as lake:
            lake.sweep()
            assert not [
                sweep_table for sweep_table in lake.sweep_tables(remove_data=True) if sweep_table.problem
            ]
            assert lake.sweep_files(remove_data=True).problem == ""
            assert self.read(lake, KEY) == ["first", "main"]
            assert self.read(lake, KEY, "v1") == ["first"]
            assert self.read(lake, KEY, "work") == ["first", "work"]
            lake.merge("work", "main")
            assert self.read(lake, KEY) == ["first", "main", "work"]

    # -- erase ---------------------------------------------------------------------------------------------

    def prepare_erase(self, lake: Lake) -> None:
        """A table with a row that was removed by the newest commit."""
        self.write(lake, KEY, ERASED)
        self.remove(lake, KEY, ERASED)
        lake.finish_background(FINISH_MAX_S)

    def erase_steps(self, lake: Lake) -> dict[str, tuple[type, str]]:
        """What does each step of an erase."""
        assert isinstance(lake.catalogue, Embedded)
        plugin = lake.catalogue.find_plugin(lake.table(KEY).content)
        assert plugin is not None
        erasure, store = plugin.erasure(EraseTable(key=Key.parse(KEY))), lake.kernel.store
        steps = dict(self.further_erase_steps)
        for step, method in ERASE_STEPS.items():
            owner = next(
                owner_type
                for owner_type in (EraseRun, type(erasure), type(store))
                if hasattr(owner_type, method)
            )
            steps[step] = owner, method
        return steps

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "erase_step" in metafunc.fixturenames:
            steps: Sequence[str] = [*ERASE_STEPS, *self.further_erase_steps] if self.can_erase else []
            slow = [pytest.mark.verify] if self.is_slow else []
            metafunc.parametrize("erase_step", steps)
            metafunc.parametrize("is_done", [pytest.param(False, marks=slow), True], ids=["before", "after"])

    def test_an_erase_crashed_at_any_step_is_taken_up_by_the_next(
        self, lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, erase_step: str, is_done: bool
    ) -> None:
        self.prepare_erase(lake)
        remaining = self.read(lake, KEY)
        owner, name = self.erase_steps(lake)[erase_step]
        lake.close()
        real: Callable[..., Any] = getattr(owner, name)

        def crashing(*given: Any, **named: Any) -> Any:
            if current_thread() is not main_thread():  # what is published meanwhile is not a step
                return real(*given, **named)
            monkeypatch.setattr(owner, name, real)
            if is_done:
                real(*given, **named)
            raise Crash

        with penstock.open(path, settings=ALONE) as other:
            monkeypatch.setattr(owner, name, crashing)
            with suppress(Crash):
                assert other.erase(KEY).finished, "an erase without this step"
            assert self.read(other, KEY) == remaining
        with penstock.open(path, settings=ALONE) as other:
            assert other.erase(KEY).finished
            assert self.find_text(path, ERASED) == []
            assert self.read(other, KEY) == remaining

    def test_a_revert_that_was_prepared_before_an_erase_is_refused_at_its_turn(
        self, lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not self.can_erase:
            with pytest.raises(EraseRefused, match=KEY):
                lake.erase(KEY)
            return
        self.prepare_erase(lake)
        remaining, removal = self.read(lake, KEY), lake.branch().head
        prepare = RevertRequest.prepare

        def racing(request: RevertRequest, reference: Any) -> None:
            prepare(request, reference)
            monkeypatch.undo()
            with penstock.open(path, settings=ALONE) as other:
                assert other.erase(KEY).finished

        monkeypatch.setattr(RevertRequest, "prepare", racing)
        with pytest.raises((ConflictError, HistoryExpired), match="erased"):
            lake.revert(removal, "main")
        assert (self.find_text(path, ERASED), self.read(lake, KEY)) == ([], remaining)
