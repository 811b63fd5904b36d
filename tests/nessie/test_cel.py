"""Filters: what expressions mean, and that none of them harms."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from resource import RUSAGE_SELF, getrusage
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidRequest
from penstock.model.commits import Commit
from penstock.model.keys import Key
from penstock.server.nessie import cel
from penstock.server.nessie.cel import compile_filter
from penstock.server.nessie.cel_bindings import (
    FilterKind,
    KeyFacts,
    ReferencePosition,
    bind_commit,
    bind_difference,
    bind_entry,
    bind_reference,
)

COMPUTING_MAX_S = 5.0
"""Far more computing time than any expression takes that is refused, so that only one that runs away does."""
COMMIT = Commit(
    id="ab" * 32,
    parents=("cd" * 32,),
    time=datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
    author="Ada",
    message="add Größe",
    properties={"team": ("sales", "finance"), "none": ()},
    generation=3,
    depth=3,
    key="",
    authors=("Ada", "Grace"),
    author_time=datetime(2026, 2, 1, tzinfo=UTC),
    committer="service",
    signed_off_by=(),
    is_merge=False,
)
OPERATIONS = (
    KeyFacts(Key("sales", "orders.v2"), "ICEBERG_TABLE", "id-1", "PUT"),
    KeyFacts(Key("old"), operation="DELETE"),
)
A_COMMIT = bind_commit(COMMIT, OPERATIONS)
AN_ENTRY = bind_entry(Key("sales", "2026.11", "orders"), "ICEBERG_TABLE")
A_BRANCH = bind_reference(
    "BRANCH", "dev", "ab" * 32, ReferencePosition(commit=COMMIT, ahead=2, behind=0, total=3)
)
A_BARE_TAG = bind_reference("TAG", "v1", "ab" * 32)

ITEMS: dict[FilterKind, Mapping[str, Any]] = {
    "commits": A_COMMIT,
    "entries": AN_ENTRY,
    "references": A_BRANCH,
    "diff": bind_difference(Key("sales", "orders")),
}

TRUE_OF_THE_COMMIT = [
    "commit.author == 'Ada' && commit.committer == 'service'",
    "commit.authors == ['Ada', 'Grace'] && 'Grace' in commit.authors",
    "commit.authors[1] == 'Grace' && size(commit.authors) == 2",
    "commit.hash.startsWith('abab') && commit.hash.endsWith('ab')",
    "commit.message.contains('Gr') && commit.message.matches('^add .*e$')",
    "!commit.message.matches('^x') && commit.message != 'other'",
    "size(commit.message) == 9 && commit.message.size() == 9",
    "timestamp(commit.commitTime) > timestamp('2026-02-28T00:00:00+00:00')",
    "commit.commitTime < timestamp('2026-03-01T12:30:01Z') && commit.commitTime.getFullYear() == 2026",
    "commit.commitTime - commit.authorTime > duration('24h')",
    "commit.properties == {'team': 'sales'} && commit.properties.team == 'sales'",
    "commit.allProperties['team'][1] == 'finance'",
    "has(commit.properties.team) && !has(commit.properties.other)",
    "commit.signedOffBy == null && !has(commit.signedOffBy) && has(commit.author)",
    "commit.parentCommitHashes.size() == 1",
    "commit.author == 3 ? false : true",
    "commit.author > 'AAA' && commit.author <= 'Ada'",
    "commit.author in ['Bob', 'Ada']  // a comment",
    "operations.exists(op, op.type == 'PUT' && op.content.type == 'ICEBERG_TABLE')",
    "operations.exists(op, has(op.content) && op.content.id == 'id-1')",
    "operations.all(op, op.content == null || op.content.type.startsWith('ICEBERG'))",
    "operations.exists_one(op, op.type == 'DELETE') && operations.filter(op, op.key == 'old').size() == 1",
    "operations.map(op, op.name) == ['orders.v2', 'old']",
    "operations.exists(op, op.keyElements.exists(e, e == 'orders.v2'))",
    "operations.exists(op, op.key == 'sales.orders.v2' && op.encodedKey == 'sales.orders\\u001dv2')",
    "operations[0].namespace == 'sales' && operations[1].namespace == '' && operations.size() == 2",
    "r'\\' == '\\\\' && '''it's''' == \"it's\" && 'has(x)' != 'size('",
    "1 + 1 == 2 && 'a' + 'b' == 'ab' && -3 % 2 == -1 && 0x10 == 16",
    "[1.5, 2e+1].exists(x, x > 1e+1) && 3u == 3u && .5 < 1.0",
    "type(1) == int && string(1) == '1' && int('7') == 7",
]


@pytest.mark.parametrize("expression", TRUE_OF_THE_COMMIT)
def test_an_expression_means_what_the_language_says(expression: str) -> None:
    assert compile_filter("commits", expression)(A_COMMIT) is True
    assert compile_filter("commits", f"!({expression.partition('  //')[0]})")(A_COMMIT) is False


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        ("entries", "entry.contentType in ['ICEBERG_VIEW', 'ICEBERG_TABLE'] && entry.name == 'orders'"),
        ("entries", "entry.namespace == 'sales.2026\\u001d11' && entry.key == 'sales.2026.11.orders'"),
        ("entries", "entry.namespaceElements == ['sales', '2026.11'] && size(entry.keyElements) == 3"),
        ("references", "refType == 'BRANCH' && ref.name == 'dev' && ref.hash == commit.hash"),
        ("references", "refMeta.numCommitsAhead > 1 && refMeta.commitMetaOfHEAD.author == 'Ada'"),
        ("references", "ref.metadata.numTotalCommits == 3 && commit.message.startsWith('add')"),
        ("diff", "key.namespace == 'sales' && key.name == 'orders' && key.keyElements[0] == 'sales'"),
    ],
)
def test_each_kind_of_list_has_its_variables(kind: FilterKind, expression: str) -> None:
    assert compile_filter(kind, expression)(ITEMS[kind])


def test_a_reference_without_metadata_has_an_empty_commit() -> None:
    expression = "commit.message == '' && commit.author == null && refMeta.numTotalCommits == null"
    assert compile_filter("references", f"{expression} && ref.metadata == null")(A_BARE_TAG)


@pytest.mark.parametrize(
    ("kind", "expression", "why"),
    [
        ("commits", "not a filter", "1:5: Syntax error"),
        ("commits", "", "Syntax error"),
        ("commits", "'unterminated", "Syntax error"),
        ("diff", "entry.name == 'x'", "undeclared reference to 'entry'"),
        ("commits", "true || unknown == 1", "undeclared reference to 'unknown'"),
        ("commits", "true || commit.wrong == 1", "undefined field 'wrong' of 'commit'"),
        ("entries", "entry.wrong.startsWith('x')", "undefined field 'wrong' of 'entry'"),
        ("commits", "true || later(1)", "undeclared function 'later'"),
        ("commits", "commit.author", "true or false"),
        ("commits", "1", "true or false"),
        ("commits", "commit.properties['other'] == 'x'", "there is no 'other'"),
        ("commits", "commit.authors[5] == 'x'", "out of bounds"),
        ("commits", "commit.signedOffBy > 3", "overload"),
        ("commits", "1 / 0 == 1", "division by zero"),
        ("commits", "commit.message.matches('(')", "unclosed group"),
        ("commits", "timestamp('soon') == commit.commitTime", "timestamp"),
    ],
)
def test_a_wrong_expression_is_refused_and_named(kind: FilterKind, expression: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match="filter") as refused:
        compile_filter(kind, expression)(ITEMS[kind])
    assert why in refused.value.message
    assert repr(expression) in refused.value.message


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("'x' == '" + "x" * cel.EXPRESSION_MAX_CHARS + "'", "at most 4000 characters"),
        ("(" * 40 + "true" + ")" * 40, "nest more than 32 deep"),
        ("(" * 1900 + "true" + ")" * 1900, "refused"),
        ("[1].exists(a, [1].exists(b, [1].exists(c, true)))", "at most 2 nested loops"),
        ("has(" * 25 + "commit.author" + ".x)" * 25, "overload"),
        ("[1].existsOne(commit, [1].existsOne(op, [1].existsOne(x, true)))", "at most 2 nested loops"),
        ("['a']" + ".map(x, x + x)" * 60 + " == []", "'+' cannot be used inside"),
        ("'a'" + " + commit.message" * 20 + " == ''", "16 '+'"),
        ("commit.message.matches('(a{50}){50}')", "costs too much"),
        (f"('{'ab' * 1000}' + '').matches('({'[ab]?' * 90}){{100}}[cd]d')", "costs too much"),
        (f"commit.message.matches('{'a' * 600}')", "at most 500 characters"),
    ],
)
def test_an_expression_that_could_cost_too_much_is_refused_at_once(expression: str, why: str) -> None:
    start = time.thread_time()
    with pytest.raises(InvalidRequest, match="filter") as refused:
        compile_filter("commits", expression)(A_COMMIT)
    assert why in refused.value.message
    assert time.thread_time() - start < COMPUTING_MAX_S


def _with_operations(count: int, elements: int = 20) -> Mapping[str, Any]:
    parents = ("element",) * (elements - 1)
    puts = [KeyFacts(Key(*parents, f"t{n}"), "UDF", f"id-{n}", "PUT") for n in range(count)]
    return bind_commit(COMMIT, puts)


THOUSAND = _with_operations(1_000)
LARGEST = _with_operations(10_000)
LONG_LIST = f"[{'1, ' * 200}1]"


@pytest.mark.parametrize(
    "expression",
    [
        "[1]" + ".map(a, [a, a])" * 20 + " != []",
        "[1]" + ".map(a, {1: a, 2: a})" * 20 + " != []",
        "[operations, operations].map(a, a) != []",
        "[[commit]].exists(a, a == [commit])",
        "operations.map(x, operations) != []",
        "operations.map(x, commit == null ? x : operations) != []",
        "operations.map(operations, operations).map(x, operations) != []",
        "operations.map(x, x)" + ".map(x, x)" * 50 + " != []",
        "operations.filter(x, x.keyElements != []) != []",
        "operations.exists(x, x.keyElements.map(e, x) == [])",
        "operations.filter(x, x.keyElements.filter(e, e == '') == []) != []",
        "operations.all(x, x in operations)",
        "operations.all(x, operations == operations)",
        "operations.all(x, operations.all(y, x.key <= y.key))",
        "operations.all(x, .operations == .operations)",
        "operations.all(x, x in .operations)",
        "operations.all(operations, operations.keyElements.all(x, operations.keyElements == []))",
        "(operations + operations + operations).all(x, x in operations)",
        "operations.map(x, x).all(x, operations == [x])",
        f"{LONG_LIST}.all(x, {LONG_LIST}.all(y, {LONG_LIST} == {LONG_LIST}))",
        f"operations.all(x, {LONG_LIST}.all(y, {LONG_LIST} == {LONG_LIST}))",
        "[" * 30 + "operations, " * 100 + "1" + "]" * 30 + " != []",
        "operations[0].keyElements != []" + " && operations == operations" * 140,
        "operations.exists(x, x.key + x.key == '')",
    ],
)
def test_an_expression_that_multiplies_what_it_is_given_is_refused(expression: str) -> None:
    for item in (THOUSAND, LARGEST):
        start = time.thread_time()
        with pytest.raises(InvalidRequest, match=r"costs too much|supported|constants only|cannot"):
            compile_filter("commits", expression)(item)
        assert time.thread_time() - start < COMPUTING_MAX_S


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("operations.exists(op, op.type == 'DELETE')", False),
        ("operations.exists(op, op.key.startsWith('a'))", False),
        ("operations.exists(op, op.name in ['BAR', 't9999'])", True),
        ("operations.exists(op, op.key.matches('t9999$')) && commit.author == 'Ada'", True),
        ("operations.all(op, op.keyElements.exists(e, e == 'element'))", True),
        (
            "operations.exists(op, op.name == commit.author) || operations.all(op, op.content.type == 'UDF')",
            True,
        ),
        ("commit.author in [commit.committer] || !operations.all(op, has(op.content))", False),
        ("operations.size() == 10000 && size(operations) == 10000", True),
        ("operations.exists_one(op, op.name == 't9999')", True),
    ],
)
def test_the_filters_in_use_work_for_the_largest_commits(expression: str, holds: bool) -> None:
    assert compile_filter("commits", expression)(LARGEST) is holds


def test_lists_are_put_together_from_some_hundred_operations() -> None:
    keep = compile_filter("commits", "operations.filter(op, op.type == 'PUT').exists(op, op.name == 't299')")
    assert keep(_with_operations(300))
    with pytest.raises(InvalidRequest, match=r"costs too much with 1000 operations; operations\.exists"):
        keep(THOUSAND)


@pytest.mark.parametrize("count", [0, 1, cel.PIECE, cel.PIECE + 1, 3 * cel.PIECE])
@pytest.mark.parametrize("loop", ["exists", "all"])
@pytest.mark.parametrize(
    "body", ["op.name == 't0'", "op.name == 't50'", "op.name != 't149'", "false", "true"]
)
def test_a_loop_in_pieces_comes_to_the_same_as_in_one_go(count: int, loop: str, body: str) -> None:
    item = _with_operations(count, elements=2)
    in_pieces = compile_filter("commits", f"operations.{loop}(op, {body})")
    in_one_go = compile_filter("commits", f"(operations).{loop}(op, {body})")
    assert in_pieces(item) is in_one_go(item)


def test_a_failure_inside_of_a_loop_is_told_like_any_other() -> None:
    for operations in ("operations", "(operations)"):
        with pytest.raises(InvalidRequest, match="refused: division by zero"):
            compile_filter("commits", f"{operations}.all(op, op.name == 't70' ? 1 / 0 == 1 : true)")(THOUSAND)


def test_a_loop_over_many_operations_stops_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = compile_filter("commits", "operations.exists(op, op.keyElements.exists(e, e == 'none'))")
    assert not keep(LARGEST)
    monkeypatch.setattr(cel, "EVALUATION_MAX_S", 0.02)
    with pytest.raises(InvalidRequest, match="takes longer"):
        keep(LARGEST)


def test_patterns_over_many_operations_stop_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cel, "EVALUATION_MAX_S", 0.02)
    many = bind_commit(COMMIT, [KeyFacts(Key("a", f"t{n}"), "UDF", "", "PUT") for n in range(5_000)])
    with pytest.raises(InvalidRequest, match="takes longer"):
        compile_filter("commits", r"operations.exists(op, op.key.matches('^x\\w{100}$'))")(many)


def test_a_filter_that_runs_too_long_over_all_items_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = compile_filter("commits", "commit.author == 'Ada'")
    assert keep(A_COMMIT)
    monkeypatch.setattr(cel, "FILTER_MAX_S", 0.0)
    with pytest.raises(InvalidRequest, match="takes longer"):
        keep(A_COMMIT)


def test_an_expression_is_read_once_however_many_commits_it_is_asked_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expression = "commit.author == 'Ada' && operations.exists(op, op.name == 'none')"
    assert not compile_filter("commits", expression)(A_COMMIT)

    def read_again(text: str, _: str) -> None:
        pytest.fail(f"{text} was read before")

    monkeypatch.setattr(cel, "_compile_expression", read_again)
    for _ in range(2):
        keep = compile_filter("commits", expression)
        assert not any(keep(A_COMMIT) for _ in range(250))


def test_threads_share_a_script() -> None:
    barrier = threading.Barrier(4)
    wrong: list[str] = []

    def run(name: str) -> None:
        item = bind_entry(Key("n", name), "UDF")
        keep = compile_filter("entries", "entry.name == 't1' || entry.name == 't2'")
        barrier.wait()
        wrong.extend(name for _ in range(200) if keep(item) != (name in ("t1", "t2")))

    threads = [threading.Thread(target=run, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


WORDS = st.sampled_from(
    (
        *("commit", "operations", "op", ".", ".author", ".message", "op,", "x,", "true", "null", "in"),
        *(".exists(", ".all(", ".map(", ".filter(", "has(", "size(", ".matches(", ".size()", "timestamp("),
        *("(", ")", "[", "]", "{", "}", ",", ":", "?", "==", "!=", "<", "&&", "||", "!", "-", "+", "/", "%"),
        *("'a'", '"b"', "r'\\'", "b'c'", "1", "2.5", "3u", "0x1f", "'x{9}'", "//", "\n"),
    )
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=80), st.lists(WORDS, max_size=25).map(" ".join)))
@example("has(has(commit.author).x)")
@example("commit.author.\x00")
@example("has()")
@example("\ud800")
def test_no_text_does_harm(expression: str) -> None:
    with suppress(InvalidRequest):
        assert compile_filter("commits", expression)(A_COMMIT) in (True, False)


@st.composite
def lists(draw: st.DrawFn, depth: int = 3, names: tuple[str, ...] = ()) -> str:
    """A list, inside of loops that give elements these names."""
    kind = draw(st.sampled_from(("plain", "map", "filter", "+"))) if depth and not names else "plain"
    if kind == "plain":
        parts = tuple(f"{name}.keyElements" for name in names)
        written = ("[1, 2, 3]", "commit.authors", "commit.allProperties")
        return draw(st.sampled_from(("operations", "operations", *written, *names, *parts)))
    first = draw(lists(depth - 1))
    if kind == "+":
        return f"({first} + {draw(lists(depth - 1))})"
    return f"{first}.{kind}(x, {draw(st.one_of(lists(0, ('x',)), conditions(depth - 1, ('x',))))})"


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3, names: tuple[str, ...] = ()) -> str:
    """True or false, inside of loops that give elements these names."""
    kind = draw(st.sampled_from(("loop", "loop", "==", "in", "||", "size"))) if depth else "in"
    first = draw(lists(depth, names))
    if kind == "loop" and len(names) < 2:
        name = "xy"[len(names)]
        loop = draw(st.sampled_from(("all", "exists", "exists_one")))
        return f"{first}.{loop}({name}, {draw(conditions(depth - 1, (*names, name)))})"
    if kind == "||":
        return f"({draw(conditions(depth - 1, names))} || !{draw(conditions(depth - 1, names))})"
    if kind == "size":
        return f"(size({first}) < 0)"
    return f"({draw(st.sampled_from((*names, 'commit', first)))} {kind.replace('loop', '!=')} {first})"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conditions(), st.sampled_from((60, 300, 1_000)))
@example("operations.map(x, x).map(x, x).map(x, x) != [1]", 300)
@example("operations.all(x, operations.all(y, x in operations))", 60)
def test_whatever_is_accepted_ends_soon_and_takes_little_memory(expression: str, count: int) -> None:
    item = bind_commit(COMMIT, THOUSAND["operations"][:count])
    before_kib = getrusage(RUSAGE_SELF).ru_maxrss
    start = time.thread_time()
    with suppress(InvalidRequest):
        compile_filter("commits", expression)(item)
    assert time.thread_time() - start < COMPUTING_MAX_S
    assert getrusage(RUSAGE_SELF).ru_maxrss - before_kib < 100 * 1024
