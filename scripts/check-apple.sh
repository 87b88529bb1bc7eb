#!/bin/bash
# Owns: type-checking the workspace for Apple's computers on a machine that is none (nothing is linked or run).
# Refuses: standard library sources of any version but that of the compiler in use.
# Invariants: apt's own state is left alone; a second run downloads nothing and checks only what has changed; a warning
#   is a failure.
# Usage: scripts/check-apple.sh [-p CRATE]
set -euo pipefail
. "$(dirname "$0")/debian.sh"
cd "$(dirname "$0")/.."

readonly TARGET=aarch64-apple-darwin
readonly CACHE=$PWD/target/apple
# The suites of Debian that carry newer compilers than its current release.
readonly SUITES="trixie trixie-backports"

fail() {
    echo "check-apple: $*" >&2
    exit 1
}

# Unpacks Debian's rust-src of version $1 into $2, with lists and caches of its own.
fetch_sources() {
    local version=$1 into=$2 apt=$2/apt mirror
    command -v apt-get >/dev/null || fail "this machine has no apt-get; run \`rustup component add rust-src\` instead."
    mirror=$(debian_mirror bookworm)
    mirror=${mirror:-$(debian_mirror trixie)}
    [ -n "$mirror" ] || fail "apt has no source for Debian main; run \`rustup component add rust-src\` instead."
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    : >"$apt/status"
    for suite in $SUITES; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
    done >"$apt/sources.list"
    local options=(-q -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$apt/lists" -o Dir::State::Status="$apt/status" -o Dir::Cache="$apt"
        -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd "$apt/archives" && apt-get "${options[@]}" download "rust-src=$version*") ||
        fail "Debian carries no rust-src $version; pin a version that it has in rust-toolchain.toml."
    dpkg -x "$apt"/archives/rust-src_*.deb "$into"
    rm -r "$apt"
}

# Prints the folder of the standard library's sources, fetching them once.
standard_library() {
    local version own unpacked
    version=$(rustc --version | cut -d' ' -f2)
    own=$(rustc --print sysroot)/lib/rustlib/src/rust/library
    unpacked=$CACHE/rust-src-$version
    if [ -d "$own" ]; then
        echo "$own"
        return
    fi
    local library=$unpacked/usr/src/rustc-$version/library
    [ -d "$library" ] || fetch_sources "$version" "$unpacked" >&2
    [ -d "$library" ] || fail "Debian's rust-src holds no $library."
    echo "$library"
}

# Both variables open unstable doors of this very compiler and cargo: that is why the toolchain is pinned.
library=$(standard_library)
said=$(mktemp)
trap 'rm -f "$said"' EXIT
RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT=$library CARGO_TARGET_DIR=$CACHE \
    cargo check -Zbuild-std=std,panic_abort --target "$TARGET" "${@:---workspace}" 2>&1 | tee "$said"
# Not by a flag of the compiler: that would hold the standard library to it as well.
! grep -q '^warning' "$said" || fail "warnings are failures."
