#!/bin/sh
# Checks the dependencies against deny.toml, with a cargo-deny of one version.
# Built from source and without optimisation, which takes one to three minutes, once: it is kept in the
# user's cache, apart from whatever cargo-deny the user has.
set -eu
cd "$(dirname "$0")/.."
version=0.20.2
kept=${XDG_CACHE_HOME:-$HOME/.cache}/tinyagent/cargo-deny-$version

if [ ! -x "$kept/bin/cargo-deny" ]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$build \
        cargo install cargo-deny --version "=$version" --locked --debug --quiet --root "$kept"
fi
"$kept/bin/cargo-deny" --locked check bans licenses sources
