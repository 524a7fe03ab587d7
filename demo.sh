#!/bin/sh
# Builds the programs and plays a short session of a host against the development relay.
set -eu
cd "$(dirname "$0")"
cargo build --locked --bins --example demo
exec "${CARGO_TARGET_DIR:-target}/debug/examples/demo"
