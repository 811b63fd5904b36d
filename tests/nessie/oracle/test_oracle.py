"""Penstock's Nessie API answers as Nessie does, request by request."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.nessie.oracle.asking import Answer, Ask, Asker, Scenario, reset
from tests.nessie.oracle.deliberate import CRASHED, DELIBERATE, ERRORS, LIBRARY_WORDS, REFUSED, Deliberate
from tests.nessie.oracle.sameness import differences, normal
from tests.nessie.oracle.scenarios import SCENARIOS


@pytest.mark.verify
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "-"))
def test_penstock_answers_as_nessie_does(scenario: Scenario, nessie_url: str, penstock_url: str) -> None:
    theirs = conversation(scenario, nessie_url)
    assert len(theirs) == len(scenario.asks), f"Nessie itself stopped after {theirs[-1]}"
    found = compare(scenario, theirs, conversation(scenario, penstock_url))
    assert not found, "\n".join(["", *found])


def test_every_deliberate_difference_belongs_to_a_request() -> None:
    asked = {(scenario.name, ask.path) for scenario in SCENARIOS for ask in scenario.asks}
    assert [each for each in DELIBERATE if (each.scenario, each.path) not in asked] == []


def test_scenarios_have_names_of_their_own() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)


def conversation(scenario: Scenario, url: str) -> list[Answer]:
    """The answers up to the first that lacks what a later request needs, that one included."""
    reset(url)
    answers: list[Answer] = []
    with closing(Asker(url)) as asker:
        for ask in scenario.asks:
            answers.append(asker.ask(ask))
            if not asker.keep(ask, answers[-1]):
                break
    return answers


def compare(scenario: Scenario, theirs: list[Answer], ours: list[Answer]) -> list[str]:
    """What differs without being meant to, as lines to read."""
    found: list[str] = []
    pairs = zip(scenario.asks, normal(scenario.asks, theirs), normal(scenario.asks, ours), strict=False)
    for number, (ask, their, our) in enumerate(pairs):
        lines = unlike(their, our, deliberate(scenario, ask))
        if lines:
            found += [f"{number}. {ask.method} {ask.path}", *(f"     {line}" for line in lines)]
    if len(ours) < len(theirs):
        found.append(f"{len(theirs) - len(ours)} requests could not be asked after that")
    return found


def deliberate(scenario: Scenario, ask: Ask) -> Deliberate | None:
    listed = (each for each in DELIBERATE if (each.scenario, each.path) == (scenario.name, ask.path))
    return next(listed, None)


def unlike(their: Answer, our: Answer, listed: Deliberate | None) -> list[str]:
    if listed is not None:
        if our.status != listed.status:
            return [f"Penstock is meant to answer {listed.status}, and answers {our.status}: {our.body}"]
        if their == our:
            return [f"there is no difference, but one is listed: {listed.reason}"]
        return []
    if their.status == CRASHED:
        return [] if our.status == REFUSED else [f"Penstock answers nonsense with {our.status}: {our.body}"]
    if their.status != our.status:
        return [f"Nessie answers {their.status}: {their.body}", f"Penstock answers {our.status}: {our.body}"]
    if their.body == "" and their.status >= ERRORS:
        return []
    if their.is_json != our.is_json:
        return [f"Nessie's body is {their.body!r}, Penstock's {our.body!r}"]
    return differences(without_library_words(their, their), without_library_words(our, their))


def without_library_words(answer: Answer, their: Answer) -> object:
    """A body without its message, where Nessie's message is not Nessie's own, or an error says nothing."""
    words = their.body.get("message") if isinstance(their.body, dict) else None
    if not isinstance(words, str) or not isinstance(answer.body, dict):
        return answer.body
    if not LIBRARY_WORDS.match(words) and not (words == "" and their.status >= ERRORS):
        return answer.body
    return {name: value for name, value in answer.body.items() if name != "message"}
