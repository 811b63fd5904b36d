#!/usr/bin/env bash
# Make .venv hold exactly what requirements/*.txt pin, and Penstock itself in editable form. A Java development kit,
# and the system's packages that PENSTOCK_PACKAGES names in addition, are installed at the same time.
# Safe to run any number of times. PYTHON=/path/to/python chooses the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

name=setup
. scripts/parts.sh

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
  if [ "$(id -u)" = 0 ] && has apt-get; then
    begin_uninterrupted "$package" venv install_packages "$package"
    finish
  else
    die "$1 cannot make virtual environments; install the package $package (or your system's equivalent)"
  fi
}

install_python() {
  if ! is_made; then
    "$python" -m venv --clear .venv
  fi
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
  .venv/bin/uv pip sync --quiet --require-hashes --build-constraints requirements/dev.txt requirements/dev.txt
}

is_made() { [ -x .venv/bin/pip ] && runs_311 .venv/bin/python; }

export VIRTUAL_ENV="$PWD/.venv" UV_PYTHON_DOWNLOADS=never
if ! is_made; then
  python="$(find_python)"
  need_venv "$python"
  say "creating .venv with $("$python" --version)"
fi

# Spark runs on Java, and Penstock's classes for it are compiled. Without a JDK the tests run on the Java that comes
# with the pinned packages, and writes to tables take the way that needs no classes of ours.
# shellcheck disable=SC2086  # names without spaces
begin_packages jdk ${PENSTOCK_PACKAGES:-}
begin "the pinned tools" python install_python
python_part=$begun
finish || wait "$python_part" || exit 1
tell_missing jdk || true

# The build tools are among the pins, so nothing unpinned is fetched for the build.
.venv/bin/uv pip install --quiet --no-deps --no-build-isolation --editable .
missing=src/penstock/spark/jars/missing.txt
if [ -f "$missing" ]; then say "without Penstock's jar for Spark: $(head -n 1 "$missing")"; fi
say "done"
