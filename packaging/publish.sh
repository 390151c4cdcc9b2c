#!/bin/bash
# Publishes the crates of the workspace in their order: packaging/publish.sh [OPTION OF CARGO PUBLISH...], such as --dry-run
#
# They are those of the last commit; the only difference is the profile in install-profile.toml, which is added to the manifest of
# nearq-cli. `cargo install` goes by the profile of the package that it builds. In a checkout, cargo goes by the workspace's, and warns
# about any other; so the profile cannot be in the manifest there.
source "$(dirname "$(readlink -f "$0")")/lib.sh"

if [ -n "$(git status --porcelain)" ]; then
    echo "packaging/publish.sh: there are changes that are not committed; commit them, or put them aside with git stash" >&2
    exit 1
fi
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git archive HEAD | tar -x -C "$copy"
cat packaging/install-profile.toml >>"$copy/crates/nearq-cli/Cargo.toml"
cd "$copy"
cargo publish --workspace --locked "$@"
