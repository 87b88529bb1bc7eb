#!/bin/bash
# Owns: installing lavapipe, Mesa's software Vulkan, so that the WGSL kernels run on a machine without a GPU.
# Refuses: a machine without apt, or a user who may not install packages.
# Invariants: a second run changes nothing and takes no time; the mirror is the one that apt uses already.
set -euo pipefail
. "$(dirname "$0")/debian.sh"

# Older Mesa has no binding arrays of storage buffers, which the slot pool uses.
readonly OLDEST_MESA=25.0
readonly SOURCE=/etc/apt/sources.list.d/bookworm-backports.sources

fail() {
    echo "install-mesa: $*" >&2
    exit 1
}

# True when a Mesa that is new enough, and the loader that finds it, are installed.
installed() {
    local mesa loader
    mesa=$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2>/dev/null) || return 1
    loader=$(dpkg-query -W -f '${Version}' libvulkan1 2>/dev/null) || return 1
    [ -n "$loader" ] && dpkg --compare-versions "$mesa" ge "$OLDEST_MESA"
}

# Bookworm's own Mesa is 22.3; its backports carry 25.0.
add_backports() {
    [ -z "$(debian_mirror bookworm-backports)" ] || return 0
    local mirror
    mirror=$(debian_mirror bookworm)
    [ -n "$mirror" ] || fail "apt has no source for Debian bookworm main, so its backports cannot be found beside it."
    printf '%s\n' "Types: deb" "URIs: $mirror" "Suites: bookworm-backports" "Components: main" \
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg" >"$SOURCE"
}

main() {
    if command -v dpkg-query >/dev/null && installed; then
        echo "install-mesa: Mesa $(dpkg-query -W -f '${Version}' mesa-vulkan-drivers) is installed."
        return
    fi
    command -v apt-get >/dev/null ||
        fail "this machine has no apt-get; install Mesa $OLDEST_MESA or newer with its lavapipe Vulkan driver by hand."
    [ "$(id -u)" = 0 ] || fail "installing Mesa needs root; run \`sudo $0\`."
    local release=()
    if [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = bookworm ]; then
        add_backports
        release=(-t bookworm-backports)
    fi
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${release[@]}" \
        mesa-vulkan-drivers libvulkan1
    installed || fail "apt offers no Mesa $OLDEST_MESA or newer for this release; the kernels need its binding arrays."
}

main
