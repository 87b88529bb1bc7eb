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
tested_program
own_home
"$PREPARED/venv/bin/python" tests/clients/main.py "$SS_BIN" "$PREPARED"
