#!/bin/bash
# Owns: the API's own description, held against what the server does: requests made from /openapi.json, good and bad, by schemathesis.
# Refuses: to pass where schemathesis cannot be installed.
# Invariants: the server takes a free port and ends with the test.
#
# usage: scripts/test-openapi.sh [SECONDS]    (75; SS_BIN=PROGRAM tests another build than target/debug/ss)
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/clients-environment.sh
python_clients
tested_program
own_home
"$PREPARED/venv/bin/python" tests/clients/openapi.py "$SS_BIN" "$PREPARED" "${1:-75}"
