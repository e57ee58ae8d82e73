#!/usr/bin/env bash
# deps.sh [e2e]: installs the Debian packages that building needs, or also those tests, those that are
# missing. Go itself must be there (go.mod says which), for Debian's is too old.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
	ca-certificates git
	# virt-launcher is the one cgo program: libvirt's binding.
	gcc libc6-dev
	# virt-local's nodes, and their volumes.
	runc containernetworking-plugins nftables iptables mount kmod xfsprogs e2fsprogs
	# Generated code, and lint.
	protobuf-compiler libprotobuf-dev shellcheck
)
mapfile -t images < <(sed 's/ *#.*//; /^$/d' images/packages.txt)
packages+=("${images[@]}")
if [ "${1:-}" = e2e ]; then
	# The tiny guest is tested by itself too, nodes with pods of a shell, screens in a browser and a terminal.
	packages+=(qemu-system-x86 qemu-utils ovmf busybox-static chromium tmux)
fi

# noVNC, for virtctl's page, is an npm package. Any npm will do.
command -v npm >/dev/null || packages+=(npm)

if ! command -v go >/dev/null; then
	echo "Go is missing: install $(awk '$1 == "go" {print $2}' go.mod) or newer from https://go.dev/dl" >&2
	exit 1
fi
missing=()
for p in "${packages[@]}"; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo)
dev/step.sh "Installing ${missing[*]}"
"${sudo[@]}" apt-get -qq update
# Daemons that come along are not started: nothing here needs them.
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y "${missing[@]}" >/dev/null
