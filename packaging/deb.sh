#!/bin/sh
# Makes a Debian package of the built programs, in the build directory; `make deb` calls it.
# By dpkg-deb alone: the package holds files and no scripts, so a packaging tool would add a dependency and
# hide what is installed. No user is made and no unit is enabled: most hosts start the signer as a child.
# The same sources, programs and SOURCE_DATE_EPOCH give the same bytes.
#   packaging/deb.sh BUILD-DIRECTORY
set -eu
cd "$(dirname "$0")/.."
target=$1
maintainer=${DEB_MAINTAINER:-tinyagent maintainers <maintainers@tinyagent.invalid>}
umask 022

fail() {
    echo "packaging/deb.sh: $*" >&2
    exit 1
}

for tool in dpkg-deb readelf gzip; do
    command -v "$tool" >/dev/null || fail "there is no $tool; install dpkg, binutils and gzip"
done

# cargo's own word for the package is a path, `#` or `@`, and the version.
version=$(${CARGO:-cargo} pkgid --offline --locked --package tinyagent | sed 's/.*[#@]//')
revision=$version-1
architecture=$(dpkg --print-architecture)
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    # A tree without its history has the age of its newest change log.
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
fi
export SOURCE_DATE_EPOCH

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 0755 "$stage"
make --silent install PREFIX=/usr DESTDIR="$stage" CARGO_TARGET_DIR="$target" \
    zshdir=/usr/share/zsh/vendor-completions
set -- "$stage/usr/bin/tinyagent" "$stage/usr/bin/tinyagent-signer"

# What the programs are linked with, each library by the package that has it.
depends=
for library in $(readelf -dW "$@" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u); do
    case $library in
        libc.so.6 | ld-linux*)
            # The newest symbol version is the oldest C library that starts them.
            newest=$(readelf -VW "$@" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
            depends="$depends, libc6 (>= ${newest#GLIBC_})"
            ;;
        libgcc_s.so.1)
            newest=$(readelf -VW "$@" | grep -o 'GCC_[0-9.]*' | sort -uV | tail -n 1)
            # Its symbols are versioned with three numbers, the package with two.
            depends="$depends, libgcc-s1 (>= $(echo "${newest#GCC_}" | cut -d. -f1,2))"
            ;;
        *) fail "$library: no package is known for it" ;;
    esac
done
depends=${depends#, }

documents=$stage/usr/share/doc/tinyagent
rm "$documents/LICENSE-MIT" "$documents/LICENSE-APACHE"
mv "$documents/CHANGELOG.md" "$documents/changelog"
cat >"$documents/changelog.Debian" <<END
tinyagent ($revision) unstable; urgency=medium

  * Built from the sources of $version; their changes are in changelog.gz.

 -- $maintainer  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
{
    cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tinyagent
Comment: The notices of the crates that are linked into the programs are in third-party.txt.gz.

Files: *
Copyright: $(sed -n 's/^Copyright (c) //p' LICENSE-MIT)
License: Expat or Apache-2.0

License: Expat
END
    sed -n '/^Permission is hereby/,$ { s/^$/./; s/^/ /; p; }' LICENSE-MIT
    cat <<END

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
END
} >"$documents/copyright"
mkdir -p "$stage/usr/share/lintian/overrides"
cp packaging/lintian-overrides "$stage/usr/share/lintian/overrides/tinyagent"
gzip -9n "$documents/changelog" "$documents/changelog.Debian" "$documents/third-party.txt" \
    "$stage"/usr/share/man/man?/*

mkdir "$stage/DEBIAN"
(cd "$stage" && find usr -type f | LC_ALL=C sort | xargs md5sum) >"$stage/DEBIAN/md5sums"
cat >"$stage/DEBIAN/control" <<END
Package: tinyagent
Version: $revision
Section: net
Priority: optional
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(find "$stage/usr" -type f -printf '%s\n' | awk '{ n += int(($1 + 1023) / 1024) } END { print n }')
Depends: $depends
Recommends: ca-certificates
Description: MCP server for a Nostr relay, its key in a process of its own
 tinyagent lets an agent's host (Hermes Agent, Claude Code, Cursor, Codex, Zed,
 Goose and others) work on a Nostr relay: each tool call becomes one signed
 HTTP request.
 .
 The process that talks to the host and to the network never holds the key. A
 second program, tinyagent-signer, reads the key, closes itself in, and signs
 only what it built and checked itself.
END
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
package=$target/tinyagent_${revision}_$architecture.deb
dpkg-deb --root-owner-group --build "$stage" "$package" >/dev/null
echo "$package"
