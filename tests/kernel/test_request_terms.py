"""A request is complete when it is constructed: others change only what happens to it on its way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock
from penstock.kernel.format import DRY_RUN
from penstock.kernel.merge import MergeRequest
from penstock.kernel.three_way import MergeOptions, ThreeWayTerms
from penstock.kernel.transplant import TransplantRequest
from penstock.model.commits import CommitMeta
from penstock.stores.memory import MemoryStore
from tests.queue.hooks import new_kernel, put

SOURCE = Path(penstock.__file__).parent
ON_ITS_WAY = {
    ("kernel/batch.py", "key"): "a key that the caller did not give is made at the first turn",
    ("kernel/checks.py", "checked"): "what checks agreed to, and then nothing again",
    ("kernel/kernel.py", "doubt_from"): "where a key that Penstock made may be found in the log",
}


def _changed_from_outside() -> Iterator[tuple[str, str]]:
    """The attributes that are set of something called a request, by file."""
    for path in sorted(SOURCE.rglob("kernel/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(each, ast.Attribute) and ast.unparse(each.value).endswith("request"):
                        yield str(path.relative_to(SOURCE)), each.attr


def test_nobody_completes_a_request_that_was_constructed() -> None:
    assert set(_changed_from_outside()) == set(ON_ITS_WAY)


def test_a_dry_run_may_read_and_says_so_to_formats() -> None:
    kernel = new_kernel(MemoryStore())
    head = put(kernel, "a").head
    for is_dry_run in (False, True):
        terms = ThreeWayTerms(is_dry_run=is_dry_run)
        merge = MergeRequest(kernel.history, kernel.formats, head, CommitMeta(), MergeOptions(), terms)
        assert (merge.is_dry_run, merge.may_read, DRY_RUN in merge.notes) == (is_dry_run,) * 3
        assert (merge.key, merge.key_is_given) == ("", False)


def test_a_later_try_goes_by_the_notes_of_an_earlier_one_and_adds_to_them() -> None:
    kernel = new_kernel(MemoryStore())
    head, notes = put(kernel, "a").head, {"read": 1}
    terms = ThreeWayTerms(key="k", may_read=True, notes=notes)
    again = TransplantRequest(kernel.history, kernel.formats, [head], CommitMeta(), MergeOptions(), terms)
    assert again.notes is notes
    assert (again.may_read, again.is_dry_run, again.key_is_given) == (True, False, True)
