# Owns: where clients are installed for tests, and how, and which program they meet; other scripts read this one.
# Refuses: to go on without a client.
# Invariants: versions are pinned; a second run installs nothing; what an installer said is shown if it fails.
# shellcheck shell=bash

readonly PREPARED=${CARGO_TARGET_DIR:-$PWD/target}/clients
readonly CODEX=0.171.0
mkdir -p "$PREPARED"

die() {
    echo "$(basename "$0"): $1" >&2
    exit 1
}

install_quietly() {
    local what=$1
    shift
    if ! "$@" >"$PREPARED/install.log" 2>&1; then
        tail -n 20 "$PREPARED/install.log" >&2
        die "$what cannot be installed: is there a network?"
    fi
}

python_clients() {
    cmp -s tests/clients/requirements.txt "$PREPARED/requirements.txt" && return
    command -v python3 >/dev/null || die "Python 3 is missing"
    install_quietly "a Python environment" python3 -m venv --clear "$PREPARED/venv"
    install_quietly "Python's clients" \
        "$PREPARED/venv/bin/pip" install --disable-pip-version-check -r tests/clients/requirements.txt
    cp tests/clients/requirements.txt "$PREPARED/"
}

javascript_clients() {
    cmp -s tests/clients/package-lock.json "$PREPARED/node/installed.json" && return
    command -v npm >/dev/null || die "npm is missing"
    mkdir -p "$PREPARED/node"
    cp tests/clients/package.json tests/clients/package-lock.json "$PREPARED/node/"
    install_quietly "JavaScript's clients" npm ci --prefix "$PREPARED/node" --ignore-scripts --no-audit --no-fund
    cp tests/clients/package-lock.json "$PREPARED/node/installed.json"
}

codex_client() {
    [ -e "$PREPARED/codex/$CODEX" ] && return
    command -v npm >/dev/null || die "npm is missing"
    mkdir -p "$PREPARED/codex"
    install_quietly "Codex" \
        npm install --prefix "$PREPARED/codex" --no-save --ignore-scripts --no-audit --no-fund "@openai/codex@$CODEX"
    touch "$PREPARED/codex/$CODEX"
}

# The program that is tested: $SS_BIN, or the one that is built for it.
tested_program() {
    [ -z "${SS_BIN:-}" ] || return 0
    cargo build -p ss-cli
    SS_BIN=${CARGO_TARGET_DIR:-$PWD/target}/debug/ss
}

# What a run leaves in $SS_HOME is no business of the next.
own_home() {
    SS_HOME=$(mktemp -d)
    export SS_HOME
    trap 'rm -rf "$SS_HOME"' EXIT
}
