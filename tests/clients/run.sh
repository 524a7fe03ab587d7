#!/usr/bin/env bash
# Runs real MCP clients against the built programs and the development relay; no model, and no network but
# the package registries. What cannot be installed here is skipped with its reason.
#   tests/clients/run.sh                  every suite
#   tests/clients/run.sh python hermes    only these; the names are those of `suites` below
# The last line is "N passed, M failed, K skipped"; the status is non-zero when anything failed. Environments
# are kept under target/clients and made anew when their pinned requirements change.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
target=${CARGO_TARGET_DIR:-target}
case $target in
    /*) ;;
    *) target=$PWD/$target ;;
esac
cache=$target/clients
suites="vectors signature configs python hermes rmcp typescript inspector conformance agents"
# More than any suite needs on two busy cores; one that hangs is a failure.
suite_seconds=600

passed=0
failed=0
skipped=0

skip() { # NAME REASON
    echo "SKIP $1: $2"
    skipped=$((skipped + 1))
}

count() { # WORD FILE
    grep -c "^$1 " "$2" || true
}

# Runs one suite, shows its lines as they come, and counts them.
run() { # NAME COMMAND…
    local name=$1 lines=$cache/$1.txt log=$cache/$1.log status=0
    shift
    timeout --kill-after=10 "$suite_seconds" "$@" </dev/null 2>"$log" | tee "$lines" || status=$?
    if [ "$status" -ne 0 ] && ! grep -q '^FAIL ' "$lines" || [ ! -s "$lines" ]; then
        echo "FAIL $name: the suite ended with status $status" | tee -a "$lines"
    fi
    if grep -q '^FAIL ' "$lines"; then
        echo "The end of what the $name suite said on stderr:"
        tail -n 40 "$log"
    fi
    passed=$((passed + $(count PASS "$lines")))
    failed=$((failed + $(count FAIL "$lines")))
    skipped=$((skipped + $(count SKIP "$lines")))
}

# Makes the environment of a suite with a command, unless the one there was made from the same requirements.
# It fails where the environment cannot be made; the reason is then in `why`.
prepare() { # SUITE REQUIREMENT-FILE COMMAND…
    local environment=$cache/$1/environment stamp=$cache/$1/requirements requirements=$here/$1/$2
    why=
    cmp -s "$requirements" "$stamp" && return 0
    rm -rf "${cache:?}/$1"
    mkdir -p "$environment"
    if ! "${@:3}" "$environment" "$here/$1" >"$cache/$1/install.log" 2>&1; then
        why=$(grep -i -m 1 error "$cache/$1/install.log" || tail -n 1 "$cache/$1/install.log")
        why="its environment cannot be made here: $why"
        return 1
    fi
    cp "$requirements" "$stamp"
}

venv() { # ENVIRONMENT SOURCE
    python3 -m venv "$1" && "$1/bin/pip" install --quiet --no-input --no-deps -r "$2/requirements.txt"
}

packages() { # ENVIRONMENT SOURCE
    cp "$2/package.json" "$2/package-lock.json" "$2/.npmrc" "$1"
    (cd "$1" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
}

suite_vectors() {
    run vectors python3 "$here/vectors/check.py"
}

suite_signature() {
    run signature python3 "$here/signature/suite.py"
}

python_suite() { # NAME
    if prepare "$1" requirements.txt venv; then
        run "$1" "$cache/$1/environment/bin/python" "$here/$1/suite.py"
    else
        skip "$1" "$why"
    fi
}

suite_python() {
    python_suite python
}

suite_hermes() {
    python_suite hermes
}

suite_configs() {
    if python3 -c 'import tomllib' 2>/dev/null; then
        python_suite configs
    else
        skip configs "python3 has no TOML parser before 3.11"
    fi
}

# A package with a lock file of its own, built where the programs are.
suite_rmcp() {
    local log=$cache/rmcp-build.log
    export CARGO_TARGET_DIR=$target
    if ! cargo fetch --locked --manifest-path "$here/rmcp/Cargo.toml" >"$log" 2>&1; then
        skip rmcp "its packages cannot be fetched here: $(tail -n 1 "$log")"
        return
    fi
    cargo test --locked --no-run --manifest-path "$here/rmcp/Cargo.toml" >>"$log" 2>&1 || cat "$log"
    run rmcp "$here/rmcp/run.sh"
}

# Suites that need the same npm packages share one environment, made once.
npm_suite() { # ENVIRONMENT NAME COMMAND…
    local made=npm_why_$1
    if [ -z "${!made+set}" ]; then
        if ! command -v npm >/dev/null; then
            why="there is no npm"
        else
            prepare "$1" package-lock.json packages || true
        fi
        printf -v "$made" %s "$why"
    fi
    if [ -z "${!made}" ]; then
        run "${@:2}"
    else
        skip "$2" "${!made}"
    fi
}

# Some need a newer Node than most systems have; a package brings it.
newer_node_suite() { # NAME
    export NODE_MODULES=$cache/npm/environment/node_modules
    export NODE=$NODE_MODULES/.bin/node
    npm_suite npm "$1" python3 "$here/$1/suite.py"
}

suite_typescript() {
    # Modules are looked up from where the script lies.
    npm_suite npm typescript sh -c "cp '$here/typescript/suite.mjs' '$cache/npm/environment' &&
        exec node '$cache/npm/environment/suite.mjs'"
}

suite_inspector() {
    newer_node_suite inspector
}

suite_conformance() {
    newer_node_suite conformance
}

suite_agents() {
    export NODE_MODULES=$cache/agents/environment/node_modules
    npm_suite agents agents python3 "$here/agents/suite.py"
}

mkdir -p "$cache"
cargo build --locked --workspace --bins
export TINYAGENT=$target/debug/tinyagent TINYAGENT_RELAY=$target/debug/tinyagent-relay
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1

# shellcheck disable=SC2086  # a list of words
[ $# -gt 0 ] || set -- $suites
for suite in "$@"; do
    if command -v python3 >/dev/null; then
        "suite_$suite"
    else
        skip "$suite" "there is no python3, which every suite starts the relay with"
    fi
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
