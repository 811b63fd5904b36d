"""Grants that are bound to keys: what is outside of them is not seen, by whatever way somebody asks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import CommitConflict, Denied, InvalidRequest, PenstockError
from penstock.lake import calls
from penstock.lake.answers import LogSearch
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.tokens import parse_grant
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Delete, Operation, Put, Unchanged
from penstock.model.references import Kind
from penstock.model.tokens import Role
from penstock.server.access import Caller, CheckedCatalogue
from penstock.server.access.caller import GrantedKeys
from penstock.stores.memory import MemoryStore
from tests.chance import examples
from tests.server.access import ROOT, guarded, new_lake, put


def keys(*patterns: str) -> GrantedKeys:
    return GrantedKeys(frozenset(patterns))


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        (
            "sales.*",
            ["sales", "sales.orders", "sales.eu.orders", 'sales."2026.11"'],
            ["sales2", "hr", "hr.sales.x"],
        ),
        ("sales.orders", ["sales.orders"], ["sales", "sales.orders.x", "sales.Orders"]),
        ("sales", ["sales"], ["sales.orders"]),
        ("*.orders", ["sales.orders", "a.b.orders"], ["orders", "sales.orders2"]),
        ("s?les.*", ["sales.x", "sxles"], ["ssales.x"]),
        ("[sh]*", ["sales", "hr.pay"], ["ops"]),
        ('"sales.x"', ['"sales.x"'], ["sales.x"]),
        ("*", ["a", "a.b.c"], []),
    ],
)
def test_patterns_cover_keys_as_people_write_them(
    pattern: str, covered: list[str], others: list[str]
) -> None:
    assert [key for key in covered if not keys(pattern).covers_key(Key.parse(key))] == []
    assert [key for key in others if keys(pattern).covers_key(Key.parse(key))] == []


@pytest.mark.parametrize(
    ("patterns", "namespace"),
    [
        (["sales.*"], "sales"),
        (["sales.eu.*"], "sales.eu"),
        (["sales.eu.*", "sales.us.*"], "sales"),
        (["sales.or*"], "sales"),
        (["a.b.c", "a.x.c"], "a"),
        (["sales.*", "hr.*"], None),
        (["*"], None),
        (["s*"], None),
        (['"a.b".*'], None),
    ],
)
def test_only_the_part_of_a_lake_is_looked_through_that_patterns_point_to(
    patterns: list[str], namespace: str | None
) -> None:
    assert keys(*patterns).namespace == (Key.parse(namespace) if namespace else None)


def test_lists_leave_out_other_keys_and_fill_their_pages() -> None:
    lake = open_lake(MemoryStore())
    names = [f"{letter}{number:02}" for number in range(40) for letter in "ab"]
    lake.commit([Put(Key(name), IcebergTable(metadata_location=f"{ROOT}/{name}")) for name in names])
    mine = guarded(lake, "read:main:b?[02468]")
    found: list[str] = []
    after: Key | None = None
    while page := mine.do(calls.ListEntries(at="main", limit=6, after=after)):
        found += [str(entry.key) for entry in page]
        after = page[-1].key
    assert found == [f"b{number:02}" for number in range(0, 40, 2)]
    assert len(mine.do(calls.GetChanges(revision="main", limit=7))) == 7
    assert len(mine.do(calls.ListEntries(at="main", limit=None))) == 20
    assert mine.do(calls.ListEntries(at="main", prefix=Key("a00"))) == ()


def test_a_difference_is_shown_where_both_sides_may_be_read() -> None:
    mine = guarded(new_lake(), "read:main:sales.*", "read:dev/*:*.returns", "read:dev/*:hr.*")
    assert [str(one.key) for one in mine.do(calls.Diff(before="main", to="dev/etl"))] == ["sales.returns"]


def test_a_message_is_shown_to_those_who_may_read_all_that_it_is_about() -> None:
    lake = new_lake()
    mine = guarded(lake, "read:*:sales.*")
    log = mine.do(calls.ListCommits(ref="dev/etl"))
    assert [one.message for one in log] == ["returns of dev/etl", "", "orders of dev/etl", ""]
    assert [one.id for one in log] == [one.id for one in lake.log("dev/etl")]
    assert mine.do(calls.GetCommit(revision="dev/etl~1")).message == ""
    assert mine.do(calls.GetCommit(revision="dev/etl")).message == "returns of dev/etl"
    assert [one.message for one in mine.do(calls.ListCommits(ref="dev/etl", text="of dev"))] == [
        "returns of dev/etl",
        "orders of dev/etl",
    ]
    assert mine.do(calls.ListCommits(ref="dev/etl", text="hr.pay")) == ()


def test_the_log_of_a_namespace_tells_nothing_about_keys_in_it_that_may_not_be_read() -> None:
    lake = new_lake()
    mine = guarded(lake, "read:*:sales", "read:*:sales.returns")
    found = mine.do(calls.ListCommits(ref="dev/etl", table=Key("sales")))
    assert [one.id for one in found] == [lake.resolve("dev/etl"), lake.resolve("main")]
    whole = guarded(lake, "read:*:sales.*").do(calls.ListCommits(ref="dev/etl", table=Key("sales")))
    assert len(whole) == 3


def test_a_search_stops_nowhere_that_tells_of_messages_or_keys_that_may_not_be_read() -> None:
    lake = new_lake()
    mine = guarded(lake, "read:*:sales", "read:*:sales.returns")
    nowhere = mine.do(calls.SearchLog(ref="dev/etl", text="nowhere", limit=1))
    assert mine.do(calls.SearchLog(ref="dev/etl", text="hr.pay", limit=1)) == nowhere
    assert nowhere == LogSearch(commits=(), searched=len(lake.log("dev/etl")))
    below = mine.do(calls.SearchLog(ref="dev/etl", table=Key("sales"), limit=2))
    assert [one.id for one in below.commits] == [lake.resolve("dev/etl"), lake.resolve("main")]


def test_a_search_that_leaves_out_commits_goes_on_where_it_stopped() -> None:
    lake = open_lake(MemoryStore())
    for number in range(300):
        name = ("a", "b", "c")[number % 3]
        lake.commit([put(name, f"{number}")], message=f"load {number}")
    mine = guarded(lake, "read:main:a")
    found, asked, call = list[str](), 0, calls.SearchLog(text="7", limit=3, within=130)
    while True:
        page = mine.do(call)
        asked += 1
        found += [one.message for one in page.commits]
        assert len(page.commits) <= 3
        assert page.searched <= 130
        if page.reached is None:
            break
        assert lake.log(page.reached, limit=1)[0].time == page.reached_time
        call = msgspec.structs.replace(call, after=page.reached)
    assert found == [f"load {number}" for number in reversed(range(0, 300, 3)) if "7" in str(number)]
    assert asked > 3
    with pytest.raises(InvalidRequest, match="within must be 1 or greater"):
        mine.do(calls.SearchLog(text="7", within=0))


def test_who_works_below_a_namespace_may_create_it_but_none_above_it() -> None:
    lake = new_lake()
    mine = guarded(lake, "write:dev/*:ops.eu.*", "write:dev/*:logs.*")

    def commit(*operations: Operation, create: bool = False) -> None:
        mine.do(calls.CommitOperations(operations=operations, branch="dev/etl", create_namespaces=create))

    commit(Put(Key("logs"), Namespace()), put("logs.raw"))
    with pytest.raises(Denied, match="'ops'"):
        commit(put("ops.eu.raw"), create=True)
    lake.commit([Put(Key("ops"), Namespace())], branch="dev/etl")
    commit(put("ops.eu.raw"), create=True)
    assert lake.table("ops.eu.raw", "dev/etl").content is not None


def test_a_restore_takes_the_role_and_reading_for_every_key_that_it_is_about() -> None:
    lake = new_lake()
    then = f"dev/etl@{lake.resolve('dev/etl~3')}"
    asked = calls.Restore(keys=(Key("sales", "orders"),), to=then, branch="dev/etl")
    of_all = calls.Restore(all=True, to=then, branch="dev/etl")
    of_sales = calls.Restore(namespace=Key("sales"), to=then, branch="dev/etl")
    for grants in (("restore",), ("write",), ("restore:main", "read"), ("restore:dev/*:hr.*", "read")):
        for call in (asked, of_all, of_sales):
            with pytest.raises(Denied):
                guarded(lake, *grants).do(call)
    some = guarded(lake, "restore:dev/*:sales.*", "read:dev/*:sales.*")
    with pytest.raises(Denied, match="may not restore everything there: that needs a grant for all keys"):
        some.do(of_all)
    elsewhere = msgspec.structs.replace(asked, to="secret")
    with pytest.raises(Denied, match="read 'secret'"):
        some.do(elsewhere)
    with pytest.raises(Denied, match=r"restore 'hr\.pay' there"):
        some.do(msgspec.structs.replace(asked, keys=(Key("hr", "pay"),)))
    assert some.do(asked).applied
    assert lake.show("dev/etl").committer == "tester"
    assert some.do(of_sales).applied
    assert guarded(lake, "restore", "read").do(of_all).applied


def test_a_conflict_tells_only_about_keys_that_the_caller_named() -> None:
    lake = new_lake()
    mine = guarded(lake, "write:dev/*:sales.*")
    call = calls.CommitOperations(
        operations=(put("sales.orders", "mine"),), branch="dev/etl", base="dev/etl~3"
    )
    with pytest.raises(CommitConflict) as conflict:
        mine.do(call)
    assert [str(one.key) for one in conflict.value.conflicts] == ["sales.orders"]


# -- by whatever way: random callers, random calls, one after the other --------------------------------------

TABLES = ["a.x", "a.y", "a.n.x", "b.x", "b.y", "c"]
BRANCHES = ["main", "dev/one", "dev/two", "secret"]
KEY_PATTERNS = ["*", "a.*", "a.x", "b.*", "*.x", "?.y", "[bc]*", "a.n.*", "c"]
REFERENCE_PATTERNS = ["*", "main", "dev/*", "dev/one", "s*"]


class Marked:
    """A lake in which everything that a commit says about a key carries a mark."""

    def __init__(self, seed: int) -> None:
        chosen = random.Random(seed)
        self._store = MemoryStore()
        self.lake: Lake = open_lake(self._store, author="ada")
        self.lake.add_root(ROOT)
        self.marks: dict[str, tuple[Key, str]] = {}
        """By mark: the key that it is about, and the commit that brought it."""
        self._commit("main", chosen.sample(TABLES, 5), namespaces=True)
        for branch in BRANCHES[1:]:
            self.lake.branch(branch).create(
                at=chosen.choice(["main", "main", "dev/one"]) if "two" in branch else "main"
            )
        for _ in range(8):
            self._commit(chosen.choice(BRANCHES), chosen.sample(TABLES, chosen.choice([1, 1, 2])))
        self.lake.tag("v1").create(at="secret~0")
        heads = {one.name: one.id for kind in (Kind.BRANCH, Kind.TAG) for one in self.lake.references(kind)}
        self._reached = {name: {one.id for one in self.lake.log(name, all_parents=True)} for name in heads}
        self.ids = list(dict.fromkeys([*heads.values(), *(commit for _, commit in self.marks.values())]))
        self.calls = any_call(self.ids)

    def _commit(self, branch: str, tables: list[str], namespaces: bool = False) -> None:
        operations: list[Operation] = []
        if namespaces:
            operations += [Put(Key.parse(name), Namespace()) for name in ("a", "b", "a.n")]
        marks = {f"mark{len(self.marks) + number}-": Key.parse(name) for number, name in enumerate(tables)}
        operations += [
            Put(key, IcebergTable(metadata_location=f"{ROOT}/{mark}")) for mark, key in marks.items()
        ]
        done = self.lake.commit(
            operations, branch=branch, message=f"changed {' '.join(marks)}", properties={"marks": list(marks)}
        )
        self.marks.update({mark: (key, done.id) for mark, key in marks.items()})

    def copy(self) -> Lake:
        """The same lake once more, to be changed."""
        store = MemoryStore()
        store._objects, store._rows = dict(self._store._objects), dict(self._store._rows)
        return open_lake(store)

    def hidden(self, caller: Caller) -> list[str]:
        """The marks that a caller may not see: no reference that led there, when all began, shows them."""
        return [
            mark
            for mark, (key, commit) in self.marks.items()
            if not any(
                commit in reached and caller.find_granted_keys(Role.READ, name).covers_key(key)
                for name, reached in self._reached.items()
            )
        ]


grants = st.builds(
    lambda role, references, keys: parse_grant(f"{role}:{references}:{keys}"),
    st.sampled_from(["read", "write"]),
    st.sampled_from(REFERENCE_PATTERNS),
    st.sampled_from(KEY_PATTERNS),
)
callers = st.builds(
    lambda found: Caller(name="tester", grants=tuple(found)), st.lists(grants, min_size=1, max_size=4)
)
names = st.sampled_from([*BRANCHES, "v1", "dev/new", "dev/newer"])
table_keys = st.sampled_from([Key.parse(name) for name in [*TABLES, "a", "b", "a.n"]])


def revisions(ids: list[str]) -> st.SearchStrategy[str]:
    whole = st.sampled_from(ids)
    short = st.builds(lambda one, length: one[:length], whole, st.sampled_from([8, 64]))
    start = st.one_of(names, names, whole, short, st.builds(lambda name, one: f"{name}@{one}", names, short))
    return st.builds(lambda text, steps: text + steps, start, st.sampled_from(["", "", "", "~1", "^2"]))


def operations() -> st.SearchStrategy[tuple[Operation, ...]]:
    one: st.SearchStrategy[Operation] = st.one_of(
        st.builds(Put, table_keys, st.just(IcebergTable(metadata_location=f"{ROOT}/mine"))),
        st.builds(Delete, table_keys),
        st.builds(Unchanged, table_keys),
    )
    return st.lists(one, min_size=1, max_size=3).map(tuple)


def any_call(ids: list[str]) -> st.SearchStrategy[calls.Call[Any]]:
    revision, limit = revisions(ids), st.sampled_from([1, 2, 100, None])
    maybe: Any = st.one_of(st.none(), revision)
    rarely: Any = st.one_of(st.none(), st.none(), st.none(), revision)
    via, dry_run = st.one_of(st.none(), names), st.booleans()
    keys = st.dictionaries(
        table_keys.map(str), st.builds(KeyMerge, mode=st.sampled_from(list(MergeMode))), max_size=1
    )
    bring: dict[str, Any] = {
        "dry_run": dry_run, "if_head": rarely, "keys": keys, "default": st.sampled_from(list(MergeMode))
    }  # fmt: skip
    return st.one_of(
        st.builds(calls.GetContents, at=maybe, via=via, key=st.lists(table_keys, max_size=3).map(tuple)),
        st.builds(calls.ListEntries, at=maybe, via=via, prefix=st.one_of(st.none(), table_keys), limit=limit),
        st.builds(calls.GetCommit, revision=revision, via=via),
        st.builds(calls.GetChanges, revision=revision, via=via, limit=limit),
        st.builds(
            calls.ListCommits,
            ref=maybe,
            via=via,
            after=rarely,
            table=st.one_of(st.none(), table_keys),
            text=st.sampled_from([None, "mark"]),
            all_parents=st.booleans(),
            limit=limit,
        ),
        st.builds(
            calls.SearchLog,
            ref=maybe,
            via=via,
            after=rarely,
            table=st.one_of(st.none(), table_keys),
            text=st.sampled_from([None, "mark"]),
            all_parents=st.booleans(),
            limit=limit,
            within=limit,
        ),
        st.builds(calls.Diff, before=revision, to=revision, limit=limit),
        st.builds(calls.Compare, one=revision, other=revision),
        st.builds(calls.Resolve, revision=maybe),
        st.builds(
            calls.ListReferences, kind=st.sampled_from([Kind.BRANCH, Kind.TAG, Kind.DELETED]), limit=limit
        ),
        st.builds(calls.GetReference, name=names),
        st.builds(calls.GetReferenceLog, name=names),
        st.builds(calls.GetAbout),
        st.builds(calls.CreateReference, name=names, at=maybe),
        st.builds(calls.AssignReference, name=names, to=revision, expected=rarely),
        st.builds(calls.DeleteReference, name=names),
        st.builds(
            calls.CommitOperations,
            operations=operations(),
            branch=names,
            base=maybe,
            if_head=rarely,
            create_namespaces=st.booleans(),
        ),
        st.builds(calls.Merge, source=revision, into=names, **bring),
        st.builds(
            calls.Transplant,
            commits=st.lists(revision, min_size=1, max_size=2).map(tuple),
            onto=names,
            **bring,
        ),
        st.builds(calls.Revert, commit=revision, on=names, **bring),
        st.builds(
            calls.Restore,
            keys=st.lists(table_keys, min_size=1, max_size=2, unique=True).map(tuple),
            to=revision,
            branch=names,
            dry_run=dry_run,
            if_head=rarely,
        ),
        st.builds(calls.Restore, all=st.just(True), to=revision, branch=names, dry_run=dry_run),
        st.builds(calls.Restore, namespace=table_keys, to=revision, branch=names, dry_run=dry_run),
        st.builds(calls.Rebase, branch=names, onto=revision, **bring),
    )


marked_lake = cache(Marked)


@settings(
    max_examples=examples(250),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data(), seed=st.integers(0, 5), caller=callers)
def test_nothing_that_may_not_be_read_is_ever_seen(data: st.DataObject, seed: int, caller: Caller) -> None:
    """Not in what a call answers, not in what it fails with, and not by what it leads to."""
    marked = marked_lake(seed)
    hidden = marked.hidden(caller)
    seen = CheckedCatalogue(marked.copy().catalogue, caller)
    chosen = data.draw(st.lists(marked.calls, max_size=6))
    for call in (*chosen, *look_round(seen, marked.ids)):
        told = answer(seen, call)
        assert [mark for mark in hidden if mark in told] == [], call


def bringing(ids: list[str]) -> st.SearchStrategy[calls.Call[Any]]:
    """Calls that bring something from elsewhere, most of which can be carried out."""
    source = st.one_of(st.sampled_from(BRANCHES), st.sampled_from(BRANCHES), st.sampled_from(ids))
    target = st.sampled_from(["dev/one", "dev/two", "dev/new"])
    force: dict[str, Any] = {"default": st.just(MergeMode.FORCE)}
    return st.one_of(
        st.builds(calls.CreateReference, name=st.just("dev/new"), at=source),
        st.builds(calls.AssignReference, name=target, to=source),
        st.builds(calls.Merge, source=source, into=target, **force),
        st.builds(calls.Transplant, commits=st.tuples(source), onto=target, **force),
        st.builds(calls.Rebase, branch=target, onto=source, **force),
        st.builds(calls.Restore, keys=st.tuples(table_keys), to=source, branch=target),
        st.builds(calls.Restore, namespace=st.sampled_from([Key("a"), Key("b")]), to=source, branch=target),
        st.builds(calls.Restore, all=st.just(True), to=source, branch=target),
    )


workers = st.builds(
    lambda own, elsewhere: Caller(name="tester", grants=(*map(parse_grant, own), *elsewhere)),
    st.sampled_from(
        [
            ("write:dev/*", "restore:dev/*"),
            ("write:dev/*", "restore"),
            ("write:dev/*:a.*", "restore:*:a.*"),
            ("write:dev/*:a.*", "restore"),
        ]
    ),
    st.lists(grants.filter(lambda grant: grant.role == Role.READ), min_size=1, max_size=2),
)


@pytest.mark.verify
@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), seed=st.integers(0, 5), caller=workers)
def test_nobody_brings_what_they_may_not_read_to_where_they_may(
    data: st.DataObject, seed: int, caller: Caller
) -> None:
    marked = marked_lake(seed)
    hidden = marked.hidden(caller)
    seen = CheckedCatalogue(marked.copy().catalogue, caller)
    for call in data.draw(st.lists(bringing(marked.ids), min_size=1, max_size=3)):
        answer(seen, call)
    for call in look_round(seen, []):
        told = answer(seen, call)
        assert [mark for mark in hidden if mark in told] == [], call


def look_round(seen: CheckedCatalogue, ids: list[str]) -> Iterator[calls.Call[Any]]:
    """Calls that show everything, by each branch that there is by now."""
    for name in [one.name for one in seen.do(calls.ListReferences())]:
        yield calls.ListEntries(at=name)
        yield calls.GetContents(at=name, key=tuple(map(Key.parse, TABLES)))
        yield calls.ListCommits(ref=name, all_parents=True)
        for one in ids:
            yield calls.GetChanges(revision=one, via=name)
            yield calls.GetCommit(revision=one, via=name)


def answer(seen: CheckedCatalogue, call: calls.Call[Any]) -> str:
    try:
        return repr(_plain(seen.do(call)))
    except PenstockError as error:
        return f"{error.message} {error.details}"


def _plain(value: Any) -> Any:
    """All there is in an answer: some values leave things out when they are printed."""
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if hasattr(value, "__struct_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return value
