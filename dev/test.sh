#!/usr/bin/env bash
# test.sh SUITE... runs test suites, cheap ones best named first: the first that fails ends the run.
#
#   lint         format, vet, staticcheck, the arrows between packages
#   generated    generated files are what their generators write
#   unit         everything that needs no cluster
#   integration  reconcilers and the installer against virt-local's control plane alone; as root also virt-local's CSI
#                driver against the CSI project's suite
#   e2e          virt-local itself, and virtkit on two nodes of a cluster of its own; without the longest tests
#   long         e2e with those: up to an hour and a half
#   csi          virt-local's CSI driver alone: the CSI project's suite, and a cluster of its own; as root
#   slow         a real cloud image on a cluster of its own: minutes; as root, for the image is installed
#   chaos        kills of everything that can be killed while guests write, on a cluster of its own: up to 40 minutes
set -euo pipefail
cd "$(dirname "$0")/.."

export GOFLAGS='-buildvcs=false -trimpath' CGO_ENABLED=0

# Modules of their own, tested with the main one.
modules=(cmd/virt-local cmd/virt-local-csi)

lint() {
	dev/deps.sh
	make --no-print-directory build # a part of virt-local is embedded into it
	dev/lint.sh
}

generated() {
	dev/deps.sh
	go test -tags generated -count=1 ./tests/generated
}

unit() {
	[ -e cmd/virt-local/internal/payload/files/virt-local-csi-node ] || cmd/virt-local/build # what it embeds comes first
	go test ./... 2>&1 | failures_last failed_lines
	# Needs a C compiler, but neither libvirt nor its headers.
	CGO_ENABLED=1 go test -tags libvirt_dlopen ./pkg/launcher/hypervisor/libvirt
	for m in "${modules[@]}"; do go -C "$m" test ./...; done
}

integration() {
	dev/deps.sh
	make --no-print-directory build
	# They mostly wait, each for a control plane of its own.
	packages_with integration | xargs go test -tags integration -count=1 -p 4 -timeout 20m 2>&1 | failures_last failed_lines
	sanity
}

# sanity runs the CSI project's suite, and tests that mount, which those who are not root skip.
sanity() {
	go -C cmd/virt-local-csi test -tags integration -count=1 -timeout 20m ./internal/driver
}

e2e() { end_to_end -short 65m; }

long() { end_to_end -short=false 150m; }

# end_to_end FLAG TIME has the flag -short, or says that it is off. TIME is what the tests of tests/e2e may take.
end_to_end() {
	dev/deps.sh e2e
	make --no-print-directory images
	room
	# tests/e2e begins with tests that run alone on its cluster, and mostly wait. What needs no such cluster runs beside
	# them, and prints when it has ended.
	local out others first=0 beside=0 again
	out=$(mktemp -d)
	e2e_beside "$out" "$1" &
	others=$!
	VIRTKIT_E2E_OWN_CLUSTERS=beside go test -tags e2e -count=1 -timeout "$2" "$1" -v ./tests/e2e | tee "$out/first" ||
		first=1
	wait "$others" || beside=$?
	cat "$out/beside" "$out/own"
	[ "$first$beside" = 00 ] || { failed "$out/first" "$out/beside" "$out/own"; room; }
	[ $((beside & 2)) = 0 ] || first=1
	# Tests in which QEMU's race aborted a guest (tests/e2e/foreign_test.go) run once more; all others count.
	again=$(awk -v mark='physmem[.]c:[0-9]+: (iotlb_to_section|tlb_reset_dirty_range_all): Assertion' \
		-f dev/foreign.awk "$out/first" "$out/own")
	if [ "$first" = 1 ] && [ -n "$again" ]; then
		dev/step.sh "Testing once more, for QEMU aborted a guest by a race of its own: $again"
		go test -tags e2e -count=1 -timeout 30m -v -run "$again" ./tests/e2e && first=0
	fi
	rm -r "$out"
	[ "$first$((beside & 1))" = 00 ] || return 1
	# It compares the machine before and after, and so runs alone.
	go -C cmd/virt-local test -tags e2e -count=1 -p 1 -timeout 20m -v . | failures_last
}

# room says when the disk that clusters keep their volumes on is so full that tests will find their pool without room.
room() {
	local free
	free=$(($(stat -f -c '%a * %S' /var/lib) / (1 << 30)))
	[ "$free" -ge 12 ] || dev/step.sh "Only $free GiB are free in /var/lib, of 12 that tests of disks use: go clean -cache frees what builds left"
}

# e2e_beside DIR FLAG runs, one after the other, the other packages, and the tests of tests/e2e that have clusters of
# their own. What they print is in DIR/beside and DIR/own. The code has 1 when a package failed, and 2 when those tests
# did.
e2e_beside() {
	local code=0
	packages_with e2e | grep -vx ./tests/e2e | xargs go test -tags e2e -count=1 -p 1 -timeout 60m "$2" -v >"$1/beside" 2>&1 ||
		code=1
	VIRTKIT_E2E_OWN_CLUSTERS=only go test -tags e2e -count=1 -timeout 30m "$2" -v ./tests/e2e >"$1/own" 2>&1 ||
		code=$((code | 2))
	return $code
}

csi() {
	dev/deps.sh e2e
	make --no-print-directory build
	go -C cmd/virt-local-csi test ./...
	sanity
	go -C cmd/virt-local test -tags e2e -count=1 -timeout 20m -run '^TestCSI$' -v . | failures_last
}

slow() {
	dev/deps.sh e2e
	make --no-print-directory images debian
	go test -tags slow -count=1 -timeout 90m -v ./tests/slow | failures_last
}

chaos() {
	dev/deps.sh e2e
	make --no-print-directory images
	export CHAOS_OUT=${CHAOS_OUT:+$(realpath -m "$CHAOS_OUT")} # the test runs in its own directory
	# CHAOS_TIME bounds the run, and every wait in it has a deadline.
	go test -tags chaos -count=1 -timeout 0 -v -run '^TestChaos$' ./tests/chaos | failures_last
}

# failed LOG... says which tests failed, and the last that each said.
failed() {
	awk -v lines=40 -f dev/failed.awk "$@"
}

# failed_lines LOG says which tests and packages failed, of a log that is not of go test -v.
failed_lines() {
	printf '\n== Failed:\n'
	grep -E '^(--- FAIL|FAIL|panic: |fatal error: )' "$1"
}

# failures_last [SUMMARY] passes on what go test prints, and repeats what failed at its end, as SUMMARY says it.
failures_last() {
	local log status=0
	log=$(mktemp)
	tee "$log"
	if grep -q '^FAIL' "$log"; then
		"${1:-failed}" "$log"
		status=1
	fi
	rm -f "$log"
	return $status
}

# packages_with TAG lists the packages that have files for the build tag.
packages_with() {
	git ls-files -co --exclude-standard -- '*_test.go' ':!tests/compat' ':!cmd/virt-local' ':!cmd/virt-local-csi' |
		xargs grep -l "^//go:build.*\b$1\b" | xargs -n1 dirname | sort -u | sed 's,^,./,'
}

while [ $# -gt 0 ]; do
	dev/step.sh "Testing: $1"
	"$1"
	shift
done
