#!/bin/bash
# Owns: a newer Mesa than the installed one, unpacked with all that it needs into a directory, for tests that need software
# matrix units; `scripts/with-mesa.sh` runs a program on it. Nothing is installed.
# Refuses: a machine without apt or without a Debian mirror.
# Invariants: a directory that is complete is left as it is.
set -euo pipefail
. "$(dirname "$0")/debian.sh"

# Mesa 25.2 was the first whose lavapipe multiplies matrices; this release's backports carry a later one.
readonly RELEASE=trixie

fail() {
    echo "unpack-mesa: $*" >&2
    exit 1
}

main() {
    local dir=${1:?usage: scripts/unpack-mesa.sh DIR} mirror options deb
    [ ! -e "$dir/complete" ] || return 0
    command -v apt-get >/dev/null || fail "this machine has no apt-get; unpack a Debian package of Mesa 25.2 or newer by hand."
    mirror=$(debian_mirror bookworm)
    [ -n "$mirror" ] || mirror=$(debian_mirror "$RELEASE")
    [ -n "$mirror" ] || fail "apt has no source for Debian main."
    mkdir -p "$dir/cache/archives/partial" "$dir/lists/partial" "$dir/root"
    dir=$(cd "$dir" && pwd)
    : >"$dir/status"
    printf "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror %s main\n" \
        "$RELEASE" "$RELEASE-backports" >"$dir/sources.list"
    options=(
        -o "Dir::State::Lists=$dir/lists" -o "Dir::State::status=$dir/status" -o "Dir::Cache=$dir/cache"
        -o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=- -o Acquire::Languages=none
    )
    apt-get "${options[@]}" update -q
    apt-get "${options[@]}" install -q -y --no-install-recommends --download-only -t "$RELEASE-backports" \
        mesa-vulkan-drivers libvulkan1 libc6 libgcc-s1
    for deb in "$dir"/cache/archives/*.deb; do
        dpkg -x "$deb" "$dir/root"
    done
    sed "s#\"library_path\": *\"[^\"]*\"#\"library_path\": \"$dir/root/usr/lib/x86_64-linux-gnu/libvulkan_lvp.so\"#" \
        "$dir"/root/usr/share/vulkan/icd.d/lvp_icd*.json >"$dir/driver.json"
    rm -rf "$dir/cache" "$dir/lists"
    touch "$dir/complete"
}

main "$@"
