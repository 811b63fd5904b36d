"""Conversations with a server that speaks Nessie's API."""

from __future__ import annotations

from tests.nessie.oracle.scenarios import commits, edges, first_version, merges, reading, references

SCENARIOS = (
    *edges.SCENARIOS,
    *references.SCENARIOS,
    *commits.SCENARIOS,
    *reading.SCENARIOS,
    *merges.SCENARIOS,
    *first_version.SCENARIOS,
)
