#!/bin/bash
# Makes a clean Debian in a folder, for installed.sh: packaging/chroot.sh FOLDER [RELEASE]. Fails where that cannot be done.
#
# The packages come from where this machine has its own: the first mirror in apt's lists.
set -euo pipefail

folder=$1
release=${2:-$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")}
mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -v security | head -n 1)
timeout 600 debootstrap --variant=minbase "$release" "$folder" "${mirror:?apt has no mirror}" >"$folder.log" 2>&1 || {
    tail -n 5 "$folder.log" >&2
    exit 1
}
