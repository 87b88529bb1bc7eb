#!/bin/bash
# Owns: running a program on the Mesa that `scripts/unpack-mesa.sh` left in $SS_MESA, with that Mesa's own C library.
# Refuses: a directory that is not complete.
set -euo pipefail

readonly ROOT=${SS_MESA:?name the directory of scripts/unpack-mesa.sh}/root
readonly LIBRARIES=$ROOT/usr/lib/x86_64-linux-gnu
[ -e "$SS_MESA/complete" ] || {
    echo "with-mesa: $SS_MESA holds no complete Mesa; run scripts/unpack-mesa.sh $SS_MESA" >&2
    exit 1
}
export VK_DRIVER_FILES=$SS_MESA/driver.json
exec "$ROOT/usr/lib64/ld-linux-x86-64.so.2" --library-path "$LIBRARIES" "$@"
