#!/bin/bash
# Owns: the tests of real clients against running servers: OpenAI's, Anthropic's and Ollama's in Python and JavaScript, LiteLLM,
# the AI SDK, Codex, and the snippets of docs/clients.md.
# Refuses: to pass where a client cannot be installed.
# Invariants: servers take free ports and end with the test.
#
# usage: scripts/test-clients.sh    (SS_BIN=PROGRAM tests another build than target/debug/ss)
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/clients-environment.sh
python_clients
javascript_clients
codex_client
if [ -z "${SS_BIN:-}" ]; then
    cargo build -p ss-cli
    SS_BIN=${CARGO_TARGET_DIR:-$PWD/target}/debug/ss
fi
# What a run leaves in $SS_HOME is no business of the next.
SS_HOME=$(mktemp -d)
export SS_HOME
trap 'rm -rf "$SS_HOME"' EXIT
"$PREPARED/venv/bin/python" tests/clients/main.py "$SS_BIN" "$PREPARED"
