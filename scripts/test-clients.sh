#!/bin/bash
# Owns: the tests of real clients against running servers: OpenAI's, Anthropic's and Ollama's in Python and JavaScript, LiteLLM, the
# AI SDK, Codex, and the snippets of docs/clients.md.
# Refuses: to pass where a client cannot be installed.
# Invariants: versions are pinned; servers take free ports and end with the test; a second run installs nothing.
#
# usage: scripts/test-clients.sh    (SS_BIN=PROGRAM tests another build than target/debug/ss)
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TARGET=${CARGO_TARGET_DIR:-$PWD/target}
readonly PREPARED=$TARGET/clients
readonly CODEX=0.171.0

die() {
    echo "test-clients: $1" >&2
    exit 1
}

# Runs an installer quietly; what it said is shown if it fails.
install() {
    local what=$1
    shift
    if ! "$@" >"$PREPARED/install.log" 2>&1; then
        tail -n 20 "$PREPARED/install.log" >&2
        die "$what cannot be installed: is there a network?"
    fi
}

# Whether what was installed is what this file asks for.
is_fresh() {
    cmp -s "$1" "$2"
}

python() {
    is_fresh tests/clients/requirements.txt "$PREPARED/requirements.txt" && return
    install "a Python environment" python3 -m venv --clear "$PREPARED/venv"
    install "Python's clients" "$PREPARED/venv/bin/pip" install --disable-pip-version-check -r tests/clients/requirements.txt
    cp tests/clients/requirements.txt "$PREPARED/"
}

node_modules() {
    is_fresh tests/clients/package-lock.json "$PREPARED/node/package-lock.json" && [ -e "$PREPARED/node/done" ] && return
    mkdir -p "$PREPARED/node"
    cp tests/clients/package.json tests/clients/package-lock.json "$PREPARED/node/"
    install "JavaScript's clients" npm ci --prefix "$PREPARED/node" --ignore-scripts --no-audit --no-fund
    touch "$PREPARED/node/done"
}

codex() {
    [ -e "$PREPARED/codex/$CODEX" ] && return
    mkdir -p "$PREPARED/codex"
    install "Codex" npm install --prefix "$PREPARED/codex" --no-save --ignore-scripts --no-audit --no-fund "@openai/codex@$CODEX"
    touch "$PREPARED/codex/$CODEX"
}

command -v python3 >/dev/null || die "Python 3 is missing"
command -v npm >/dev/null || die "npm is missing"
mkdir -p "$PREPARED"
python
node_modules
codex
if [ -z "${SS_BIN:-}" ]; then
    cargo build -p ss-cli
    SS_BIN=$TARGET/debug/ss
fi
# What a run leaves in $SS_HOME is no business of the next.
SS_HOME=$(mktemp -d)
export SS_HOME
trap 'rm -rf "$SS_HOME"' EXIT
"$PREPARED/venv/bin/python" tests/clients/main.py "$SS_BIN" "$PREPARED"
