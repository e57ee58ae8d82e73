#!/usr/bin/env bash
# down.sh NAME removes the cluster that up.sh made, with all that is in it.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -x bin/virt-local ]; then
	echo "bin/virt-local is not there; \`make build\` makes it" >&2
	exit 1
fi
sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo '--preserve-env=HOME,KUBECONFIG')
"${sudo[@]}" bin/virt-local down --name "$1"
