"""The line of those who wait for a process: whose turn it is, and how many processes one caller has."""

from __future__ import annotations

from penstock.processes.waiting_line import ProcessWaitingLine


def begin_next(line: ProcessWaitingLine, places: dict[str, list[object]]) -> str:
    """Whoever's turn it is begins; nobody, if all who wait have enough."""
    for caller, waiting in places.items():
        if waiting and line.is_next(waiting[0]):
            waiting.pop(0)
            line.note_process_given(caller)
            return caller
    return "nobody"


def test_callers_take_turns_however_much_one_of_them_waits_for() -> None:
    line = ProcessWaitingLine(1)
    places = {"many": [line.join_line("many") for _ in range(3)], "one": [line.join_line("one")]}
    order = []
    while len(line):
        order.append(begin_next(line, places))
        line.note_process_returned(order[-1])
    assert order == ["many", "one", "many", "many"]


def test_nobody_has_more_processes_than_are_left_for_others() -> None:
    line = ProcessWaitingLine(3)
    places = {"many": [line.join_line("many") for _ in range(5)]}
    assert [begin_next(line, places) for _ in range(3)] == ["many", "many", "nobody"]
    places["one"] = [line.join_line("one")]
    assert begin_next(line, places) == "one"
    line.note_process_returned("one")
    line.note_process_returned("many")
    assert begin_next(line, places) == "many"


def test_a_line_with_one_process_serves_everybody() -> None:
    line = ProcessWaitingLine(1)
    places = {"a": [line.join_line("a")]}
    assert begin_next(line, places) == "a"
    places["b"] = [line.join_line("b")]
    line.note_process_returned("a")
    assert begin_next(line, places) == "b"


def test_who_leaves_is_not_waited_for() -> None:
    line = ProcessWaitingLine(1)
    left, stays = line.join_line("a"), line.join_line("b")
    line.leave_line("a", left)
    assert (len(line), line.count_waiting("a")) == (1, 0)
    assert line.is_next(stays)
