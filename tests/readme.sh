#!/usr/bin/env bash
# Runs what the README tells a user to run, against the development relay and a throw-away key:
# the installation, a key, a diagnosis, the piped session, the look at the environment.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
scratch=$(mktemp -d)
relay_pid=
trap 'kill $relay_pid 2>/dev/null || true; rm -rf "$scratch"' EXIT

check() {
    if "${@:2}"; then echo "PASS $1"; else echo "FAIL $1" >&2; exit 1; fi
}

for block in $(grep -n '^```json$' README.md | cut -d: -f1); do
    check "the JSON at README line $block parses" \
        sh -c "tail -n +$((block + 1)) README.md | sed '/^\`\`\`\$/,\$d' | python3 -m json.tool >/dev/null"
done

cargo install --path . --locked --root "$scratch" --target-dir "$target" --quiet
check "both programs are installed" test -x "$scratch/bin/tinyagent" -a -x "$scratch/bin/tinyagent-signer"
cargo build --locked --quiet -p tinyagent-relay
"$target/debug/tinyagent-relay" >"$scratch/relay" &
relay_pid=$!
while ! grep -q url "$scratch/relay"; do sleep 0.05; done
url=$(sed 's/.*"url":"\([^"]*\)".*/\1/' "$scratch/relay")

TINY_PRIVATE_KEY=$("$scratch/bin/tinyagent" keygen | sed 's/.*"nsec":"\([^"]*\)".*/\1/')
export TINY_PRIVATE_KEY
check "a diagnosis of the development relay is ok" \
    sh -c "'$scratch/bin/tinyagent' diagnose --relay '$url' | grep -q '\"verdict\": \"ok\"'"
check "the same in a few lines to read" \
    sh -c "'$scratch/bin/tinyagent' diagnose --relay '$url' --human | grep -q '^ok: '"
check "the entry for a host names the installed program" \
    sh -c "'$scratch/bin/tinyagent' config hermes --relay '$url' --allow-writes 2>/dev/null | grep -q '$scratch/bin/tinyagent'"

printf '%s\n' \
    '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"readme","version":"0"}}}' \
    '{"jsonrpc":"2.0","method":"notifications/initialized"}' \
    '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' |
    "$scratch/bin/tinyagent" mcp --relay "$url" >"$scratch/lines"
check "initialize, initialized and tools/list give two lines" test "$(wc -l <"$scratch/lines")" = 2

mkfifo "$scratch/stdin"
"$scratch/bin/tinyagent" mcp --relay "$url" <"$scratch/stdin" >/dev/null 2>"$scratch/log" &
server=$!
exec 9>"$scratch/stdin"
while ! grep -q serving "$scratch/log"; do sleep 0.05; done
check "the running server's environment holds no key" \
    sh -c "! tr '\\0' '\\n' </proc/$server/environ | grep -q TINY_PRIVATE_KEY"
exec 9>&-
wait "$server"
