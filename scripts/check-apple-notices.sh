#!/bin/bash
# Owns: the proof that scripts/check-apple.sh looks at code which only Apple's compilers see: a mistake and a warning planted
#   there are both noticed.
# Refuses: to leave anything behind.
# Invariants: the file is as it was, however this ends.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly FILE=engine/memory/src/apple.rs
kept=$(mktemp)
cp "$FILE" "$kept"
trap 'cp "$kept" "$FILE"; rm -f "$kept"' EXIT

for planted in 'const PLANTED: u32 = "no number";' 'fn planted() {}'; do
    cp "$kept" "$FILE"
    echo "$planted" >>"$FILE"
    if scripts/check-apple.sh -p ss-memory >/dev/null 2>&1; then
        echo "check-apple-notices: \`$planted\` in $FILE went unnoticed" >&2
        exit 1
    fi
done
cp "$kept" "$FILE"
scripts/check-apple.sh -p ss-memory >/dev/null 2>&1 || {
    echo "check-apple-notices: without a planted mistake the check fails; run scripts/check-apple.sh" >&2
    exit 1
}
