#!/bin/bash
# Owns: every fuzz target, one after the other, for ten minutes each or as long as it is told.
#
# usage: scripts/fuzz.sh [SECONDS]    (a case that failed says its number: SS_FUZZ_CASE=N runs that one)
set -euo pipefail
cd "$(dirname "$0")/.."

export SS_FUZZ_SECONDS=${1:-600}
for target in tests::fuzz::bodies tests::fuzz::splitters tests::fuzz::writers; do
    cargo test --release -p ss-server --lib -- "$target" --nocapture
done
cargo test --release -p ss-checkpoint --test it -- fuzz --nocapture
