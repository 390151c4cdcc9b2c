#!/bin/bash
# Makes an archive with the command in one file that needs no library: packaging/tarball.sh OUT
#
# OUT gets nearq-VERSION-x86_64-linux-musl.tar.gz, a list of what is in the program (nearq-VERSION.cdx.json, CycloneDX), and SHA256SUMS. It
# needs the standard libraries of x86_64-unknown-linux-musl and x86_64-unknown-linux-gnu (`rustup target add`), and musl-gcc (Debian's package
# musl-tools) for jobs from NATS JetStream; without it, one line says that the command is built without them.
#
# The command is linked with musl. The library of `nearq run --tree` inside it is for programs of glibc all the same, and is compiled for
# them: `nearq run --tree` of this file places the programs of any glibc system. On a system whose own programs are linked with musl they
# are not placed; docs/tree.md says what else is left out.
source "$(dirname "$(readlink -f "$0")")/lib.sh"

target=x86_64-unknown-linux-musl
mkdir -p "${1:?packaging/tarball.sh OUT: give a folder}"
out=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! command -v cargo-cyclonedx >/dev/null; then
    echo "packaging/tarball.sh: there is no cargo-cyclonedx; cargo install --locked cargo-cyclonedx" >&2
    exit 1
fi

choose_fleet "$target"
builds "$target" -p nearq-cli "${fleet[@]}"
name=nearq-$version-x86_64-linux-musl
folder=$work/$name
program=$folder/nearq
mkdir -p "$folder"/{man,completions}
strip --strip-unneeded -o "$program" "$(built "$target")/nearq"
if readelf -lW "$program" | grep -q INTERP; then
    echo "packaging/tarball.sh: the program needs a loader: it is not linked statically" >&2
    exit 1
fi
if ! grep -aq GLIBC_2 "$program"; then
    echo "packaging/tarball.sh: there is no library for programs of glibc inside; rustup target add x86_64-unknown-linux-gnu" >&2
    exit 1
fi
PATH=/usr/bin:/bin "$program" man "$folder/man"
for shell in bash zsh fish elvish; do
    "$program" completions "$shell" >"$folder/completions/nearq.$shell"
done
cp README.md LICENSE-MIT LICENSE-APACHE "$folder"
{
    notices "$target" Cargo.toml "${linked[@]}"
    printf '\nFiles: musl/*\nCopyright: © 2005-2020 Rich Felker, et al.\nLicense: MIT\nComment: The C library, which is linked statically.\n'
} >"$folder/copyright"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -c "$name" | gzip -9n >"$out/$name.tar.gz"

# What cargo resolves for the command and this target. cargo-cyclonedx writes beside the manifests: in a copy.
mkdir "$work/sources"
git archive HEAD | tar x -C "$work/sources"
(cd "$work/sources" && cargo cyclonedx --quiet --manifest-path crates/nearq-cli/Cargo.toml "${fleet[@]/nearq-cli\//}" --format json --target "$target" --no-build-deps --override-filename bom)
cp "$work/sources/crates/nearq-cli/bom.json" "$out/nearq-$version.cdx.json"
(cd "$out" && sha256sum "$name.tar.gz" "nearq-$version.cdx.json" >SHA256SUMS)
