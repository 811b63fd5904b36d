"""Lance's own server and ours, asked the same: what is not the same is so on purpose."""

from __future__ import annotations

from pathlib import Path

from lance.namespace import RestAdapter

from tests.lance.rest.oracle import DELIBERATE, STEPS, differences
from tests.lance.rest.talking import Talk
from tests.server.running import Client


def test_every_step_has_a_name_of_its_own_and_every_difference_a_step() -> None:
    names = [step.name for step in STEPS]
    assert len(set(names)) == len(names)
    assert DELIBERATE.keys() <= set(names)


def test_the_answers_are_those_of_lances_own_server_but_for_what_differs_on_purpose(
    talk: Talk, tmp_path: Path
) -> None:
    properties = {"root": str(tmp_path / "theirs"), "table_version_tracking_enabled": "true"}
    with RestAdapter("dir", properties, host="127.0.0.1", port=0) as adapter:
        theirs = Talk(Client(f"http://127.0.0.1:{adapter.port}"), "")
        found = {}
        for step in STEPS:
            one, other = theirs(step.path, step.body, step.method), talk(step.path, step.body, step.method)
            if differs := differences(one, other):
                found[step.name] = differs
    assert found == {name: differs for name, (differs, _) in DELIBERATE.items()}
