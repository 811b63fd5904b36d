"""Lance's REST client is not built where only its models are used, and is there when asked for."""

from __future__ import annotations

import subprocess
import sys

BEGIN = """
import sys
import penstock.formats.lance.rest.client_package
import penstock.formats.lance.lake.namespace
assert "lance_namespace_urllib3_client.models" in sys.modules
assert "lance_namespace_urllib3_client.api" not in sys.modules
"""


def run(program: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_a_program_that_uses_the_client_finds_all_of_it() -> None:
    told = run("""
import threading
import lance_namespace_urllib3_client as client
names = set()
threads = [threading.Thread(target=lambda: names.add(client.TableApi.__name__)) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
from lance_namespace_urllib3_client import ApiClient
from lance_namespace import CreateNamespaceRequest
assert client.models.CreateNamespaceRequest is CreateNamespaceRequest
assert client.CreateNamespaceRequest is CreateNamespaceRequest
print(*names, ApiClient.__name__, client.__version__ != "")
""")
    assert told == "TableApi ApiClient True"


def test_a_name_that_the_client_has_not_is_an_ordinary_error() -> None:
    told = run("""
import lance_namespace_urllib3_client as client
for _ in range(2):
    try:
        client.Nothing
    except AttributeError as error:
        print(error)
""")
    assert told.splitlines() == ["module 'lance_namespace_urllib3_client' has no attribute 'Nothing'"] * 2
