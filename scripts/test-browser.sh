#!/bin/bash
# Owns: the tests of the server's page in headless Chromium (tests/browser); arguments are passed on, as in --screenshots.
# With --install alone it installs what is missing and tests nothing.
# Refuses: a machine without Node.js, or one where Chromium is missing and cannot be installed.
# Invariants: what is there already is not installed again; the program itself needs none of it.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "test-browser: $*" >&2
    exit 1
}

command -v npm >/dev/null || fail "there is no npm here; install Node.js 20 or newer."

if [ -z "${SS_CHROMIUM:-}" ] && ! command -v chromium >/dev/null; then
    command -v apt-get >/dev/null || fail "there is no chromium and no apt-get here; set SS_CHROMIUM to a Chromium's path."
    [ "$(id -u)" = 0 ] || fail "installing chromium needs root; run \`sudo apt-get install chromium\`."
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core
fi

# npm writes this file when everything is in place.
installed=tests/browser/node_modules/.package-lock.json
if [ ! "$installed" -nt tests/browser/package-lock.json ]; then
    npm ci --prefix tests/browser --no-audit --no-fund
    touch "$installed"
fi

[ "${1:-}" != --install ] || exit 0

if [ -z "${SS_BROWSER_SERVER:-}" ]; then
    cargo build -p ss-server --example scripted
    SS_BROWSER_SERVER=$(realpath "${CARGO_TARGET_DIR:-target}")/debug/examples/scripted
    export SS_BROWSER_SERVER
fi
exec node tests/browser/run.mjs "$@"
