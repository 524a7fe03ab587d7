#!/usr/bin/env bash
# Runs the Rust client's tests, with one PASS, FAIL or SKIP line for each as the other suites have; what else
# they print goes to stderr.
set -euo pipefail
cargo test --locked --manifest-path "$(dirname "$0")/Cargo.toml" | tee /dev/stderr |
    sed -nE 's/_/ /g; s/^test (.*) \.\.\. ok$/PASS rmcp: \1/p; s/^test (.*) \.\.\. FAILED$/FAIL rmcp: \1/p
        s/^test (.*) \.\.\. ignored(, (.*))?$/SKIP rmcp: \1: \3/p'
