#!/usr/bin/env bash
# Install the server that `make test` runs against beside those that come with `make setup` (SeaweedFS, moto):
# PostgreSQL, from the system's packages.
# Safe to run any number of times. Fails if PostgreSQL cannot be installed; its tests are skipped then.
set -euo pipefail
cd "$(dirname "$0")/.."

name=servers
. scripts/parts.sh

begin_packages postgresql
finish || true
tell_missing postgresql
