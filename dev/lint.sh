#!/usr/bin/env bash
# Lints every Go module with golangci-lint as .golangci.yml says, once for each set of build tags, vets virtctl for the
# systems it is released for, and lints every shell script with shellcheck. tests/arch, an ordinary test, holds the import arrows of docs/architecture.md.
set -euo pipefail
cd "$(dirname "$0")/.."

export GOFLAGS='-buildvcs=false -trimpath' CGO_ENABLED=0

root=$PWD
lint=$root/.cache/tools/golangci-lint
go -C tests/lint build -o "$lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint

status=0
# check MODULE FLAGS... lints the packages of one module.
check() {
	local module=$1
	shift
	(cd "$module" && "$lint" run --allow-parallel-runners --config "$root/.golangci.yml" "$@") || status=1
}

check . --build-tags e2e,integration,bench,generated,scale,slow,chaos,lab
check cmd/virt-local --build-tags e2e
check cmd/virt-local-csi --build-tags integration
check manifests/gen
check . --build-tags exporter ./cmd/virt-server
# The launcher is the one program that needs cgo, and libvirt_dlopen spares libvirt's headers.
CGO_ENABLED=1 check . --build-tags launcher,libvirt_dlopen ./cmd/virt-server ./pkg/launcher/... ./tests/bench/plain

# virtctl is built for systems that nobody here runs; what compiles and is vetted is at least not broken by accident.
for system in darwin windows; do
	for machine in amd64 arm64; do
		GOOS=$system GOARCH=$machine go vet ./cmd/virtctl ./pkg/client/cli/... ./pkg/client/action/... || status=1
	done
done

# grep's status says that some files are no scripts, or are links into an image.
mapfile -t scripts < <(git ls-files -co --exclude-standard -z | xargs -0 grep -slE -m1 '^#!/(usr/)?bin/(env )?(ba)?sh' | grep -v -e '\.go$' -e '\.txtar$')
shellcheck "${scripts[@]}" || status=1

exit $status
