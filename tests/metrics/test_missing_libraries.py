"""A meter whose library is not installed names the extra to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

CASES = [
    ("penstock.metrics.prometheus", "prometheus_client", "prometheus"),
    ("penstock.metrics.opentelemetry", "opentelemetry", "opentelemetry"),
]
CODE = """
import sys
sys.modules[sys.argv[2]] = None  # as if it were not installed
from penstock.errors import InvalidRequest
try:
    __import__(sys.argv[1])
except InvalidRequest as refused:
    print(refused.message)
"""


@pytest.mark.parametrize(("module", "library", "extra"), CASES)
def test_the_extra_is_named(module: str, library: str, extra: str) -> None:
    command = [sys.executable, "-c", CODE, module, library]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"pip install 'penstock[{extra}]'" in done.stdout
