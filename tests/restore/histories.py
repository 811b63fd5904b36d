"""Random histories over tables of every format, with restores, and a plain model of each ref."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from penstock.errors import MergeConflict
from penstock.lake.lake import Lake
from tests.restore.tables import FORMATS, Rows, key_of, rows_for_others, rows_of, write

State = dict[str, Rows]
"""The rows of every table."""


class History:
    """A lake and its model: what each branch has, and what each commit had."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.random = lake, Random(seed)
        self.keys = [key_of(format_name, name) for format_name in FORMATS for name in ("a", "b")]
        self.branches: dict[str, State] = {"main": {}}
        self.commits: dict[str, State] = {}
        self.count: dict[str, int] = {}
        self.last = "main"
        """The branch of the last step."""
        self._next = 0

    def step(self) -> str:
        """Do something; returns what."""
        ways = [self.append] * 4 + [self.overwrite, self.drop, self.branch, self.merge, self.restore_version]
        ways += [self.restore_keys] * 3 + [self.restore_namespace] * 2 + [self.restore_all] * 2
        way = self.random.choice(ways)
        self.last = ref = self.random.choice(sorted(self.branches))
        done = way(ref)
        if done:
            self.commits[self.lake.branch(ref).head] = dict(self.branches[ref])
            self.count[way.__name__] = self.count.get(way.__name__, 0) + 1
        return f"{way.__name__} on {ref}"

    def _rows(self) -> Rows:
        self._next += 2
        return [self._next - 1, self._next]

    def append(self, ref: str) -> bool:
        key, rows = self.random.choice(self.keys), self._rows()
        write(self.lake, key, rows, ref=ref)
        self.branches[ref] |= {key: sorted(self.branches[ref].get(key, []) + rows)}
        return True

    def overwrite(self, ref: str) -> bool:
        key, rows = self.random.choice(self.keys), self._rows()
        write(self.lake, key, rows, mode="overwrite", ref=ref)
        self.branches[ref] |= {key: rows}
        return True

    def drop(self, ref: str) -> bool:
        if not self.branches[ref]:
            return False
        key = self.random.choice(sorted(self.branches[ref]))
        self.lake.branch(ref).drop(key)
        del self.branches[ref][key]
        return True

    def branch(self, ref: str) -> bool:
        if len(self.branches) == 3:
            return False
        name = f"b{len(self.branches)}"
        self.lake.branch(name).create(at=ref)
        self.branches[name] = dict(self.branches[ref])
        return True

    def merge(self, ref: str) -> bool:
        """A merge that nothing stands against; what it comes to is what the lake says, and checked later on.

        The rules of merges have models of their own.
        """
        source = self.random.choice(sorted(self.branches))
        try:
            self.lake.merge(source, ref)
        except MergeConflict:
            return False
        tables = [str(one.key) for one in self.lake.branch(ref).tables()]
        self.branches[ref] = {key: rows_of(self.lake, key, ref) for key in tables}
        return True

    # -- restores ------------------------------------------------------------------------------------------

    def _commit(self) -> str | None:
        return self.random.choice(sorted(self.commits)) if self.commits else None

    def restore_keys(self, ref: str) -> bool:
        to = self._commit()
        if to is None or not (there := self.commits[to]):
            return False
        keys = self.random.sample(sorted(there), self.random.randint(1, len(there)))
        self.lake.restore(keys, to=to, branch=ref)
        self.branches[ref] |= {key: there[key] for key in keys}
        return True

    def restore_namespace(self, ref: str) -> bool:
        to, namespace = self._commit(), self.random.choice(FORMATS)
        if to is None or namespace not in map(str, self.lake.at(to).namespaces()):
            return False
        self.lake.restore(namespace=namespace, to=to, branch=ref)
        kept = {key: rows for key, rows in self.branches[ref].items() if not key.startswith(f"{namespace}.")}
        came = {key: rows for key, rows in self.commits[to].items() if key.startswith(f"{namespace}.")}
        self.branches[ref] = kept | came
        return True

    def restore_all(self, ref: str) -> bool:
        to = self._commit()
        if to is None:
            return False
        preview = self.lake.restore(all=True, to=to, branch=ref, dry_run=True)
        self._check_preview(ref, to, preview.keys)
        self.lake.restore(all=True, to=to, branch=ref)
        self.branches[ref] = dict(self.commits[to])
        return True

    def _check_preview(self, ref: str, to: str, keys: object) -> None:
        """What a preview counts leads from the rows that are there to those that are wanted."""
        now, then = self.branches[ref], self.commits[to]
        for one in keys:  # type: ignore[attr-defined]
            key, change = str(one.key), one.change
            if change is None or key.startswith("files."):
                continue
            more = len(then.get(key, [])) - len(now.get(key, []))
            assert change.rows_added - change.rows_removed == more, (key, change)

    def restore_version(self, ref: str) -> bool:
        keys = [key for key in self.branches[ref] if not key.startswith("files.")]
        if not keys:
            return False
        key = self.random.choice(sorted(keys))
        newest = self.lake.table(key, ref).version
        first = 0 if key.startswith("delta.") else 1
        version = self.random.randint(first, newest)
        wanted = self._rows_at_version(key, ref, version)
        self.lake.table(key, ref).restore(version=version)
        self.branches[ref] |= {key: wanted}
        return True

    def _rows_at_version(self, key: str, ref: str, version: int) -> Rows:
        table = self.lake.table(key, ref)
        if key.startswith("delta."):
            return sorted(table.snapshot(version).to_arrow()["id"].to_pylist())
        found = table.to_lance().checkout_version(version).to_table()
        return sorted(found["id"].to_pylist())

    # -- checks --------------------------------------------------------------------------------------------

    def check(self, refs: Collection[str] | None = None) -> None:
        """The lake has what the model says, on some branches or all; and so do other programs on the default
        one."""
        chosen = {ref: state for ref, state in self.branches.items() if refs is None or ref in refs}
        for ref, state in chosen.items():
            assert {str(one.key) for one in self.lake.branch(ref).tables()} == state.keys()
            assert {key: rows_of(self.lake, key, ref) for key in state} == state
        for key, rows in chosen.get("main", {}).items():
            assert rows_for_others(self.lake, key) == rows, key

    def check_commits(self) -> None:
        """History has not changed."""
        for commit, state in self.commits.items():
            assert {key: rows_of(self.lake, key, commit) for key in state} == state
