#!/usr/bin/env bash
# Make .venv hold exactly what requirements/*.txt pin, and Penstock itself in editable form.
# Safe to run any number of times. PYTHON=/path/to/python chooses the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

runs_311() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if runs_311 "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  die "needs Python 3.11 or newer and found none; install it, or name one with PYTHON=..."
}

# Debian ships the venv module's other half, ensurepip, in a package of its own.
need_venv() {
  "$1" -c 'import ensurepip, venv' 2>/dev/null && return
  local package
  package="$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing $package"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
  else
    die "$1 cannot make virtual environments; install the package $package (or your system's equivalent)"
  fi
}

# Spark runs on Java, and Penstock's classes for it are compiled. Without a JDK the tests run on the Java that comes
# with the pinned packages, and writes to tables take the way that needs no classes of ours.
want_jdk() {
  if command -v javac >/dev/null || [ -x "${JAVA_HOME:-/nowhere}/bin/javac" ]; then return; fi
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing default-jdk-headless"
    { apt-get update -qq &&
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends default-jdk-headless >/dev/null
    } || say "it could not be installed; going on without it"
  fi
}

if ! { [ -x .venv/bin/pip ] && runs_311 .venv/bin/python; }; then
  python="$(find_python)"
  need_venv "$python"
  say "creating .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
fi

say "installing the pinned tools"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
export VIRTUAL_ENV="$PWD/.venv" UV_PYTHON_DOWNLOADS=never
.venv/bin/uv pip sync --quiet --require-hashes --build-constraints requirements/dev.txt requirements/dev.txt
want_jdk
# The build tools are among the pins, so nothing unpinned is fetched for the build.
.venv/bin/uv pip install --quiet --no-deps --no-build-isolation --editable .
missing=src/penstock/spark/jars/missing.txt
if [ -f "$missing" ]; then say "without Penstock's jar for Spark: $(head -n 1 "$missing")"; fi
say "done"
