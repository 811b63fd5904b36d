"""What a run of the long tests tells at its end."""

from __future__ import annotations

import subprocess
import sys
from typing import Literal

import pytest

from tests.arrangement import CpuMeter, Done

BUSY = "import time\nwhile time.process_time() < 0.3: pass"


def report_of(when: Literal["setup", "call", "teardown"], *noted: tuple[str, object]) -> pytest.TestReport:
    return pytest.TestReport(
        "test_one[1]", ("", 0, ""), {}, "passed", None, when, duration=0.4, user_properties=noted, cpu_s=0.3
    )


def test_what_the_cases_of_a_test_took_and_counted_is_summed_up() -> None:
    done = Done()
    for _ in range(2):
        done.add(report_of("setup"))
        done.add(report_of("call", ("merges", 600), ("merges", 7), ("what else", "is no count")))
        done.add(report_of("teardown"))
    assert str(done) == "2 seconds, 2 of CPU, 2 cases, 1,214 merges"


def test_processes_that_were_waited_for_are_measured_once() -> None:
    meter = CpuMeter()
    meter.read()
    subprocess.run([sys.executable, "-I", "-S", "-c", BUSY], check=True)
    assert meter.read() >= 0.2
    assert meter.read() < 0.2
