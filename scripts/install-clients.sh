#!/bin/bash
# Owns: installing the clients of other projects that tests use; fails where one cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/clients-environment.sh
python_clients
javascript_clients
codex_client
