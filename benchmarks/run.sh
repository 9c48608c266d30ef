#!/bin/sh
# Runs the benchmark in an environment of its own, .venv-bench, which it makes if it is missing or out of date.
# Arguments go to bench.py: `sh benchmarks/run.sh --help`. PYTHON names the Python to make the environment with.
set -eu
cd "$(dirname "$0")/.."

VENV=.venv-bench
# Written last, so that an installation cut short is done again; holds what was installed, so that a finished one is not.
STAMP=$VENV/.installed
WANTED=$(cat pyproject.toml constraints.txt benchmarks/requirements.txt | cksum)

install() {
    "$VENV/bin/python" -m pip install --disable-pip-version-check --quiet "$@"
}

if [ "$(cat "$STAMP" 2>/dev/null)" != "$WANTED" ]; then
    echo "installing the benchmark's environment in $VENV (this takes minutes, once)" >&2
    rm -f "$STAMP"
    # An environment that is broken is made anew.
    "$VENV/bin/python" -c 'import pip' 2>/dev/null || "${PYTHON:-python3}" -m venv --clear "$VENV"
    # torch alone first: the peers' loose ranges cannot pull in another build of it then.
    install -c constraints.txt torch
    install -c constraints.txt -e '.[models]'
    install -c constraints.txt -r benchmarks/requirements.txt
    echo "$WANTED" >"$STAMP"
fi

"$VENV/bin/undertow" pull smollm2
exec "$VENV/bin/python" benchmarks/bench.py "$@"
