#!/bin/bash
# Owns: the promise that no dependency compiles C, C++ or assembly for the target.
# Refuses: every crate whose purpose is to drive such a compiler, and those known to bring their own sources.
# Invariants: looks at the resolved dependency graph alone; builds nothing.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

readonly TARGETS="aarch64-apple-darwin x86_64-unknown-linux-gnu"
readonly BANNED="autotools bindgen cc cmake cxx-build nasm-rs onig_sys openssl-sys pkg-config ring zstd-sys"

# Prints one sentence with the path from a crate of the workspace for each banned crate that target $1 needs.
offenders() {
    cargo tree --workspace --target "$1" --edges normal,build --prefix depth --format ' {p}' |
        awk -v banned="$BANNED" -v target="$1" '
            BEGIN { count = split(banned, names); for (i = 1; i <= count; i++) refused[names[i]] = 1 }
            NF < 2 { next }
            { depth = $1 + 0; path[depth] = $2 }
            ($2 in refused) && !reported[$2]++ {
                route = path[0]
                for (i = 1; i <= depth; i++) route = route " -> " path[i]
                print "check-no-c: `" $2 "` compiles or links foreign code for " target ", by way of " route "."
            }'
}

found=$(for target in $TARGETS; do offenders "$target"; done)
if [ -n "$found" ]; then
    echo "$found" >&2
    exit 1
fi
echo "check-no-c: no dependency compiles C."
