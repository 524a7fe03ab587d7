#!/usr/bin/env bash
# Builds the Debian package, looks at what is in it, installs it, uses it once for a signed call, and removes
# it; then the same for `make install`. As root the package is installed on this system, unless it is there
# already; else below a folder of its own. What cannot be tried here is skipped with its reason. The last
# line is "N passed, M failed, K skipped"; the status is non-zero when anything failed.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
case $target in
    /*) ;;
    *) target=$PWD/$target ;;
esac
export CARGO_TARGET_DIR=$target
scratch=$(mktemp -d)
relay_pid=
on_system=
trap cleanup EXIT

passed=0
failed=0
skipped=0

cleanup() {
    [ -z "$relay_pid" ] || kill "$relay_pid" || true
    [ -z "$on_system" ] || dpkg --purge tinyagent >/dev/null
    rm -rf "$scratch"
}

# In a shell of its own and not as a condition, so that the first command that fails ends the check.
check() { # NAME COMMAND…
    local name=$1 status
    shift
    set +e
    (
        set -e
        trap - EXIT
        "$@"
    ) >"$scratch/said" 2>&1
    status=$?
    set -e
    if [ "$status" -eq 0 ]; then
        echo "PASS $name"
        passed=$((passed + 1))
    else
        echo "FAIL $name"
        sed 's/^/    /' "$scratch/said" | tail -n 40
        failed=$((failed + 1))
    fi
}

skip() { # NAME REASON
    echo "SKIP $1: $2"
    skipped=$((skipped + 1))
}

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}

# Passes where a command fails; a plain `!` would not end a check.
none() {
    if "$@"; then return 1; fi
}

have() {
    command -v "$1" >/dev/null
}

is_one_version_and_licence() {
    local said version
    said=$(cargo metadata --no-deps --offline --locked --format-version=1)
    version=$(grep -o '"version":"[^"]*","id":"' <<<"$said" | sort -u)
    [ "$version" = "\"version\":\"$(sed 's/.* //' <<<"$1")\",\"id\":\"" ] || { echo "versions: $version"; return 1; }
    [ "$(grep -o '"license":"[^"]*"' <<<"$said" | sort -u)" = '"license":"MIT OR Apache-2.0"' ]
    grep -q "^## $(sed 's/.* //' <<<"$1")\>" CHANGELOG.md
}

is_reproducible() {
    cp "$package" "$scratch/first.deb"
    (umask 077 && TMPDIR=$scratch make --silent deb)
    cmp "$scratch/first.deb" "$package"
}

modes_are_right() {
    local listing
    listing=$(dpkg-deb --contents "$package" | awk '{ print $1, $2, $6 }')
    grep -Fx -- '-rwx--x--x root/root ./usr/bin/tinyagent' <<<"$listing"
    grep -Fx -- '-rwx--x--x root/root ./usr/bin/tinyagent-signer' <<<"$listing"
    # Nothing else is a program, and nothing belongs to, or can be written by, anyone but root.
    none grep -Ev -e '^(drwxr-xr-x|-rw-r--r--) root/root ' -e ' ./usr/bin/tinyagent(-signer)?$' <<<"$listing"
}

holds_every_file() {
    local file
    for file in lib/systemd/system/tinyagent-signer.service lib/systemd/system/tinyagent-signer.socket \
        lib/sysusers.d/tinyagent-signer.conf lib/tmpfiles.d/tinyagent-signer.conf \
        share/man/man1/tinyagent.1.gz share/man/man8/tinyagent-signer.8.gz \
        share/bash-completion/completions/tinyagent share/bash-completion/completions/tinyagent-signer \
        share/zsh/vendor-completions/_tinyagent share/zsh/vendor-completions/_tinyagent-signer \
        share/fish/vendor_completions.d/tinyagent.fish share/fish/vendor_completions.d/tinyagent-signer.fish \
        share/doc/tinyagent/README.md share/doc/tinyagent/copyright share/doc/tinyagent/changelog.gz \
        share/doc/tinyagent/changelog.Debian.gz share/doc/tinyagent/third-party.txt.gz; do
        [ -s "$files/usr/$file" ] || { echo "no $file"; return 1; }
    done
}

has_no_scripts() {
    [ "$(cd "$files/DEBIAN" && echo *)" = "control md5sums" ]
}

sums_match() {
    (cd "$files" && md5sum --check --quiet DEBIAN/md5sums)
}

notices_name_what_is_linked() {
    local crate
    gzip -dc "$files/usr/share/doc/tinyagent/third-party.txt.gz" >"$scratch/notices"
    for crate in $(cargo tree --offline --locked --package tinyagent --edges normal,no-proc-macro \
        --prefix none --format '{p}' | sed 's/ .*//' | sort -u | grep -v '^tinyagent'); do
        grep -q "^$crate [0-9]" "$scratch/notices" || { echo "no notice of $crate"; return 1; }
    done
    # Each with at least one text.
    awk 'length == 100 && /^=+$/ { n++; if (open) bad = 1; open = 1 } /^--- / { open = 0 } END { exit bad || open || !n }' \
        "$scratch/notices"
}

dependencies_are_those_of_shlibdeps() {
    mkdir -p "$scratch/source/debian"
    printf 'Source: tinyagent\n\nPackage: tinyagent\nArchitecture: any\n' >"$scratch/source/debian/control"
    (cd "$scratch/source" && dpkg-shlibdeps -O "$files/usr/bin/tinyagent" "$files/usr/bin/tinyagent-signer" \
        2>/dev/null) | sed 's/^shlibs:Depends=//' >"$scratch/computed"
    [ -s "$scratch/computed" ]
    dpkg-deb --field "$package" Depends | diff "$scratch/computed" -
}

# Each option of a command's help is in its page, and each subcommand has one.
page_is_complete() { # PAGE COMMAND…
    local page=$1 option
    shift
    gzip -dc "$page" | sed 's/\\-/-/g' >"$scratch/page"
    "$@" --help >"$scratch/help"
    grep -q -- '--help' "$scratch/help"
    for option in $(sed -n 's/^ *\(-[A-Za-z], \)\{0,1\}\(--[a-z-]*\).*/\2/p' "$scratch/help"); do
        grep -qF "fB$option\\fR" "$scratch/page" || { echo "$option is not in $page"; return 1; }
    done
}

page_is_clean() { # PAGE
    gzip -dc "$1" >"$scratch/page"
    LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z "$scratch/page" 2>&1 >/dev/null | tee "$scratch/warned"
    [ ! -s "$scratch/warned" ]
    LC_ALL=C.UTF-8 MANWIDTH=80 man -l "$scratch/page" | grep '^NAME'
}

bash_offers() { # FILE WANTED WORD…
    local file=$1 wanted=$2
    shift 2
    bash -n "$file"
    # shellcheck disable=SC2016
    bash -c '
        source "$0"
        function=$(complete -p "$1" | sed "s/.*-F \([^ ]*\).*/\1/")
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        "$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf "%s\n" "${COMPREPLY[@]}"
    ' "$file" "$@" | tee /dev/stderr | grep -qx -- "$wanted"
}

# systemd knows the units and their settings; the users come from the sysusers file.
units_are_accepted() {
    local units=$1/usr/lib/systemd/system
    systemd-analyze verify --man=no "$units/tinyagent-signer.service" "$units/tinyagent-signer.socket" \
        >"$scratch/units" 2>&1 || true
    none grep -F tinyagent "$scratch/units"
}

users_are_made() {
    mkdir -p "$scratch/system/etc"
    systemd-sysusers --root="$scratch/system" "$files/usr/lib/sysusers.d/tinyagent-signer.conf"
    grep '^tinyagent-signer:' "$scratch/system/etc/passwd"
    grep '^tinyagent:' "$scratch/system/etc/group"
}

# Below a folder of its own; there only files are laid out, so that what the package depends on is not asked.
below_folder() { # ARGUMENTS OF DPKG…
    mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
    touch "$root/var/lib/dpkg/status" "$root/var/lib/dpkg/available"
    "${as_root[@]}" dpkg --root="$root" --force-not-root --force-depends --log=/dev/null "$@"
}

installed_modes_are_right() {
    [ "$(stat -c %a "$root/usr/bin/tinyagent" "$root/usr/bin/tinyagent-signer" | sort -u)" = 711 ]
}

# An ordinary user may run the programs and not read them.
only_root_reads_them() {
    [ "$(stat -c %U:%G "$root/usr/bin/tinyagent" "$root/usr/bin/tinyagent-signer" | sort -u)" = root:root ]
    none "${as_user[@]}" cat "$root/usr/bin/tinyagent" >"$scratch/read"
    none "${as_user[@]}" cat "$root/usr/bin/tinyagent-signer" >"$scratch/read"
}

# A host's session with the installed program: the handshake, the tools, a message that the relay accepts
# only with an event and a request that are signed.
session() {
    local program=$root/usr/bin/tinyagent key answer
    key=$("${as_user[@]}" "$program" keygen | sed 's/.*"secret":"\([^"]*\)".*/\1/')
    coproc host {
        TINY_PRIVATE_KEY=$key exec "${as_user[@]}" "$program" mcp --relay "$url" --allow-writes 2>"$scratch/log"
    }
    local pid=$host_PID from=${host[0]} to=${host[1]}
    say() {
        printf '%s\n' "$1" >&"$to"
        read -r -t 30 -u "$from" answer || { cat "$scratch/log"; return 1; }
    }
    say '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"package","version":"0"}}}'
    grep -q '"serverInfo":{"name":"tinyagent"' <<<"$answer" || { echo "$answer"; return 1; }
    say '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    grep -q '"name":"post_message"' <<<"$answer" || { echo "$answer"; return 1; }
    say '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"post_message","arguments":{"room":"general","content":"from a package"}}}'
    grep -q '"accepted":true' <<<"$answer" || { echo "$answer"; return 1; }
    eval "exec $to>&-"
    wait "$pid"
}

nothing_is_left() {
    local path
    while read -r path; do
        if [ -e "$root$path" ] && { [ ! -d "$root$path" ] || [[ $path == *tinyagent* ]]; }; then
            echo "left: $root$path"
            return 1
        fi
    done <"$scratch/paths"
}

try_installed() {
    check "both programs are installed with mode 0711" installed_modes_are_right
    if [ "${as_user[0]}" = setpriv ]; then
        check "the programs are root's alone to read" only_root_reads_them
    else
        skip "the programs are root's alone to read" "that needs root and setpriv"
    fi
    check "the installed programs serve a session with a signed message" session
    if have systemd-analyze && [ -z "$root" ]; then
        check "systemd accepts the installed units" units_are_accepted ""
    elif have systemd-analyze; then
        skip "systemd accepts the installed units" "they name /usr/bin, and the package is not installed there"
    else
        skip "systemd accepts the installed units" "there is no systemd-analyze"
    fi
}

make_installs() {
    # With no cargo: what is built is not built again.
    make --silent install DESTDIR="$scratch/make" CARGO=false
    [ "$(stat -c %a "$scratch/make/usr/local/bin/tinyagent" "$scratch/make/usr/local/bin/tinyagent-signer" |
        sort -u)" = 711 ]
    "$scratch/make/usr/local/bin/tinyagent" --version
    grep -q '^ExecStart=/usr/local/bin/tinyagent-signer ' \
        "$scratch/make/usr/local/lib/systemd/system/tinyagent-signer.service"
}

make_installs_what_the_package_has() {
    # Apart from what Debian names or places otherwise.
    (cd "$files/usr" && find . -type f) |
        sed -e 's/\.gz$//' -e 's|zsh/vendor-completions|zsh/site-functions|' -e 's|/changelog$|/CHANGELOG.md|' |
        grep -v -e '/changelog.Debian$' -e '/copyright$' -e '^./share/lintian/' | sort >"$scratch/packaged"
    (cd "$scratch/make/usr/local" && find . -type f) | grep -v '/LICENSE-' | sort | diff "$scratch/packaged" -
}

make_uninstalls() {
    make --silent uninstall DESTDIR="$scratch/make"
    [ -z "$(find "$scratch/make" ! -type d -o -name '*tinyagent*')" ]
    # Twice does no harm.
    make --silent uninstall DESTDIR="$scratch/make"
}

for tool in make dpkg-deb readelf; do
    if ! have "$tool"; then
        skip "the package and make install" "there is no $tool"
        finish
        exit
    fi
done
make --silent
# Not for the build above: C code would be compiled anew for it.
SOURCE_DATE_EPOCH=$(stat -c %Y CHANGELOG.md)
export SOURCE_DATE_EPOCH
make --silent deb >"$scratch/name"
package=$(tail -n 1 "$scratch/name")
files=$scratch/files
dpkg-deb --raw-extract "$package" "$files"

check "one version and licence everywhere" is_one_version_and_licence "$("$target/release/tinyagent" --version)"
check "a second build gives the same bytes" is_reproducible
check "the programs have mode 0711, everything is root's" modes_are_right
check "every file is there" holds_every_file
check "there are no maintainer scripts" has_no_scripts
check "the checksums match" sums_match
check "the notices name each linked crate" notices_name_what_is_linked
if have dpkg-shlibdeps; then
    check "the dependencies are those that dpkg-shlibdeps finds" dependencies_are_those_of_shlibdeps
else
    skip "the dependencies are those that dpkg-shlibdeps finds" "there is no dpkg-shlibdeps"
fi
if have lintian; then
    check "lintian finds nothing wrong" lintian --allow-root --fail-on error,warning "$package"
else
    skip "lintian finds nothing wrong" "there is no lintian"
fi

for program in tinyagent:1 tinyagent-signer:8; do
    name=${program%:*} section=${program#*:}
    manual=$files/usr/share/man/man$section
    subcommands=$("$target/release/$name" --help | sed -n '/^Commands:/,/^$/ s/^  \([a-z-]*\) .*/\1/p')
    check "$name($section) has every option" page_is_complete "$manual/$name.$section.gz" "$target/release/$name"
    for subcommand in $subcommands; do
        check "$name-$subcommand($section) has every option" \
            page_is_complete "$manual/$name-$subcommand.$section.gz" "$target/release/$name" "$subcommand"
    done
    if have man; then
        for page in "$manual"/*; do
            check "man shows $(basename "$page" .gz) without a warning" page_is_clean "$page"
        done
    else
        skip "man shows the pages of $name" "there is no man"
    fi
done

completions=$files/usr/share/bash-completion/completions
check "bash completes a subcommand" bash_offers "$completions/tinyagent" diagnose tinyagent di
check "bash completes an option" bash_offers "$completions/tinyagent" --require-hardening tinyagent mcp --req
check "bash completes an option of the signer" \
    bash_offers "$completions/tinyagent-signer" --key-file tinyagent-signer --key-f
for shell in zsh fish; do
    if have $shell; then
        for file in "$files"/usr/share/$shell/vendor*/*; do
            check "$shell reads $(basename "$file")" $shell -n "$file"
        done
    else
        skip "$shell reads its completions" "there is no $shell"
    fi
done
if have systemd-sysusers; then
    check "systemd makes the signer's user and group" users_are_made
else
    skip "systemd makes the signer's user and group" "there is no systemd-sysusers"
fi

unset SOURCE_DATE_EPOCH
cargo build --locked --quiet --package tinyagent-relay
: >"$scratch/relay"
"$target/debug/tinyagent-relay" >"$scratch/relay" &
relay_pid=$!
while ! grep -q url "$scratch/relay" && kill -0 "$relay_pid"; do sleep 0.05; done
url=$(sed 's/.*"url":"\([^"]*\)".*/\1/' "$scratch/relay")

as_root=(env)
as_user=(env)
if [ "$(id -u)" = 0 ] && have setpriv; then
    # Nobody, by its number on every system.
    as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
elif [ "$(id -u)" != 0 ]; then
    as_root=(unshare --map-root-user)
fi
dpkg-deb --contents "$package" | awk '{ print $6 }' | sed -e 's/^\.//' -e 's|/$||' | grep . >"$scratch/paths"
if [ "$(id -u)" = 0 ] && [ ! -e /usr/bin/tinyagent ]; then
    root=
    on_system=1
    check "dpkg installs the package on this system" dpkg --install "$package"
    try_installed
    check "dpkg removes the package" dpkg --purge tinyagent
    on_system=
    check "nothing is left of it" nothing_is_left
elif "${as_root[@]}" true 2>/dev/null; then
    skip "dpkg installs the package on this system" "that needs root, and no tinyagent in /usr/bin"
    root=$scratch/root
    chmod 0755 "$scratch"
    check "dpkg installs the package below a folder" below_folder --install "$package"
    try_installed
    check "dpkg removes the package" below_folder --purge tinyagent
    check "nothing is left of it" nothing_is_left
else
    skip "dpkg installs the package" "neither root nor a user namespace can be had here"
fi

check "make install builds nothing that is built" make_installs
check "make install brings what the package has" make_installs_what_the_package_has
check "make uninstall leaves no file" make_uninstalls

finish
