#!/bin/bash
# Owns: the load test: 64 clients, good ones and bad ones, for a minute or as long as it is told.
# Invariants: the server takes a free port and ends with the test; nothing but Python's own library is needed.
#
# usage: scripts/test-load.sh [SECONDS] [P99_MS]    (60, and 50; SS_BIN=PROGRAM tests another build than target/release/ss)
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${SS_BIN:-}" ]; then
    cargo build --release -p ss-cli
    SS_BIN=${CARGO_TARGET_DIR:-$PWD/target}/release/ss
fi
# What a run leaves in $SS_HOME is no business of the next.
SS_HOME=$(mktemp -d)
export SS_HOME
trap 'rm -rf "$SS_HOME"' EXIT
python3 tests/load/load.py "$SS_BIN" "${1:-60}" "${2:-50}"
