#!/bin/sh
# Runs every test of the workspace: units, the contract, and the signing boundary.
set -eu
cd "$(dirname "$0")"
cargo build --locked --workspace --bins
exec cargo test --locked --workspace "$@"
