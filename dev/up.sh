#!/usr/bin/env bash
# up.sh NAME NODES REGISTRY TAG: a Kubernetes on this machine (virt-local), virtkit on it, and the VM demo at its
# login prompt. Each step does only what is missing, so a second run takes seconds and changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 nodes=$2 registry=$3 tag=$4
minutes=$((5 * ${VIRTKIT_PATIENCE:-1})) # a slow machine has it larger

sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo '--preserve-env=HOME,KUBECONFIG,VIRTKIT_PATIENCE')
virtctl() { bin/virtctl --context "$name" --namespace default "$@"; }
# one FIELD prints a field of the VM demo, or nothing when there is no such VM.
one() { virtctl list --field-selector metadata.name=demo -o jsonpath="{.items[*]$1}"; }

dev/step.sh "Kubernetes: $nodes nodes, named $name"
images=()
for image in virt-server virt-launcher tiny-disk; do images+=(--image "bin/images/$image.tar"); done
"${sudo[@]}" bin/virt-local up --name "$name" --nodes "$nodes" --hints=false "${images[@]}"

dev/step.sh "virtkit"
# The tag stays when the image under it changes; the annotation makes the pods follow.
build=$(cat bin/images/virt-server.tar bin/images/virt-launcher.tar | sha256sum | cut -c1-16)
virtctl install --image-registry "$registry" --image-tag "$tag" --pod-annotation "virtkit.io/images=$build" \
	--timeout "${minutes}m"

if [ -z "$(one .metadata.name)" ]; then
	dev/step.sh "The virtual machine demo"
	keys=()
	for key in ~/.ssh/id_ed25519.pub ~/.ssh/id_rsa.pub; do
		if [ -e "$key" ]; then
			keys=(--ssh-key "$key")
			break
		fi
	done
	virtctl create vm --name demo --memory 128Mi --run-strategy Always --termination-grace-period 10 \
		--container-disk "$registry/tiny-disk:$tag" --user root --password-file - "${keys[@]}" --apply <<<tiny
fi

# moved tells whether the guest of demo has migrated: its console begins anew then, and shows no prompt of before.
moved() { virtctl wait vmi/demo --for=jsonpath='{.status.migrationState.completed}'=true --timeout 0s 2>/dev/null; }

if [ "$(one .spec.runStrategy)" = Always ] && ! moved; then
	dev/step.sh "Waiting for its login prompt"
	virtctl wait demo --for=login --timeout "${minutes}m"
	# A console without input is followed until the guest ends; a look is enough here.
	timeout 1 bin/virtctl --context "$name" -n default console demo --join --tail 400 </dev/null | tail -n 8 || true
	echo
fi

# say COMMAND WHAT prints one line of what to do next.
say() { printf '  %-32s %s\n' "$1" "$2"; }
echo
say "bin/virtctl console demo" "its serial console: root, password tiny; Ctrl-] leaves"
say "bin/virtctl ssh root@demo" "log in over the API server; scp and port-forward likewise"
say "bin/virtctl vnc demo --terminal" "its screen"
say "bin/virtctl dashboard" "all of that in one place, by keys"
say "bin/virtctl list" "all VMs; top, logs, events, why say more"
say "bin/virtctl stop demo" "and start, restart, wait"
say "bin/virtctl create vm --help" "another one"
down="make down"
[ "$name" = virt-local ] || down+=" NAME=$name"
say "$down" "remove all of this"
