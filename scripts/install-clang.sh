#!/bin/bash
# Owns: installing clang with its sanitizers, by which tests run Metal's kernels on this machine (tests/msl).
# Refuses: a machine without apt, or a user who may not install packages.
# Invariants: a second run changes nothing and takes no time; the program itself needs no C++ compiler.
set -euo pipefail

fail() {
    echo "install-clang: $*" >&2
    exit 1
}

# True when a program that both sanitizers watch compiles and runs.
works() {
    local folder=$1
    command -v clang++ >/dev/null &&
        echo 'int main() {}' | clang++ -fsanitize=address,undefined -x c++ - -o "$folder/probe" 2>/dev/null &&
        "$folder/probe"
}

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
if ! works "$folder"; then
    command -v apt-get >/dev/null || fail "this machine has no apt-get; install clang 14 or newer with compiler-rt by hand."
    [ "$(id -u)" = 0 ] || fail "installing clang needs root; run \`sudo $0\`."
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends clang g++
    works "$folder" || fail "clang++ was installed and still compiles no program with sanitizers."
fi
echo "install-clang: $(clang++ --version | head -1) is installed."
