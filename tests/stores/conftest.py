"""Where stores are tried; those whose servers are other people's programs on a JVM in `make verify`."""

from __future__ import annotations

import pytest

ON_A_JVM = {"dynamodb_server", "mongodb_server_url"}
"""What starts such a server. Whoever asks for one by a parameter marks the parameter."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if ON_A_JVM & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.verify)
