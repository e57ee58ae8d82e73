#!/usr/bin/env bash
# Lints every module: gofumpt, vet and staticcheck, without exceptions. tests/arch, an ordinary test, holds
# the import arrows of docs/architecture.md.
set -euo pipefail
cd "$(dirname "$0")/.."

export GOFLAGS='-buildvcs=false -trimpath'

tools=.cache/tools
mkdir -p "$tools"
go -C tests/lint build -o "$PWD/$tools/" honnef.co/go/tools/cmd/staticcheck mvdan.cc/gofumpt

status=0
unformatted=$(git ls-files -co --exclude-standard -- '*.go' ':!*.pb.go' | xargs "$tools/gofumpt" -l)
if [ -n "$unformatted" ]; then
	printf 'not formatted, run %s -w on:\n%s\n' "$tools/gofumpt" "$unformatted" >&2
	status=1
fi

# check MODULE [FLAGS...] vets and checks the packages of a module as one set of build tags sees them.
check() {
	local module=$1
	shift
	go -C "$module" vet "$@" ./... || status=1
	(cd "$module" && "$OLDPWD/$tools/staticcheck" "$@" ./...) || status=1
}

export CGO_ENABLED=0
check . -tags e2e,integration,bench,generated
check cmd/virt-local -tags e2e
check manifests/gen
# The launcher, the one program that needs cgo.
CGO_ENABLED=1 go vet -tags launcher,libvirt_dlopen ./cmd/virt-server ./pkg/hypervisor/... ./pkg/launcher/... || status=1

exit $status
