# Sourced by build, tarballs and release, in the root of the repository: the version, the date, a temporary folder, and what is
# the same for all packages.

VERSION=${VERSION:-$(scripts/version)}
# The date of the files: with the same sources and tools the packages are the same.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export VERSION SOURCE_DATE_EPOCH
host=$(go env GOHOSTARCH)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# quietly runs a command, and shows what it prints if it fails.
quietly() {
	"$@" >"$work/log" 2>&1 || {
		cat "$work/log" >&2
		return 1
	}
}

# binary builds settee, without tables for debuggers: for a system, an architecture, at a path, and perhaps with build tags.
# Each is linked once and kept in $BINARIES, which the scripts of a release share.
BINARIES=${BINARIES:-$work/binaries}
mkdir -p "$BINARIES"
binary() {
	local kept=$BINARIES/$1-$2-${4:-}
	[ -e "$kept" ] || GOOS=$1 GOARCH=$2 quietly make build VERSION="$VERSION" LDFLAGS='-s -w' BIN="$kept" TAGS="${4:-}"
	cp "$kept" "$3"
}

# archive prints a folder within another as a tarball that depends on nothing but the files in it.
archive() {
	tar -C "$1" --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--mode=u=rwX,go=rX "$2" | gzip --best --no-name
}

# bill prints the software bill of materials of a binary.
bill() {
	[ -x "$BINARIES/sbom" ] || go -C scripts build -o "$BINARIES/sbom" ./packages/sbom
	"$BINARIES/sbom" "$1" "$VERSION"
}

# documents makes the man pages, the completions and the commented defaults, in a folder, or copies those that a release has
# made in $DOCUMENTS.
documents() {
	mkdir -p "$1/man"
	if [ -n "${DOCUMENTS:-}" ]; then
		cp -r "$DOCUMENTS/." "$1"
		return
	fi
	quietly go test -ldflags=-w -vet=off -count=1 -run '^TestManual$' ./cmd/settee -manual "$1/man"
	binary "$(go env GOHOSTOS)" "$host" "$work/settee"
	local shell
	for shell in bash zsh fish; do
		"$work/settee" completion "$shell" >"$1/settee.$shell"
	done
	"$work/settee" config --defaults >"$1/settee.ini"
}
