// Package e2e holds the end-to-end tests: a real two-node Kubernetes (virt-local), virtkit installed on it
// with virtctl, real guests under QEMU. Run them with `make test-e2e`; they carry the build tag e2e.
//
// TestMain brings up an instance of virt-local of its own and takes it down again. While working on a test, keep one
// instance up and name it instead: VIRTKIT_E2E_CLUSTER=virt-local go test -tags e2e -run TestBoot ./tests/e2e.
// With -short, as `make test-e2e` and CI run them, the longest are left out (skipInShort); `make test-long` has all.
// Some tests bring up clusters of their own; VIRTKIT_E2E_OWN_CLUSTERS=only runs those, and beside all others.
// The instance has addresses of both families where the machine can. VIRTKIT_E2E_FAMILY=ipv4 or ipv6 gives it one, ipv6
// for the tests of networks, which TestIPv6Alone names and runs so with -long. Their guests ask for addresses of the
// families that there are. In other tests the tiny guest asks for an IPv4 address only.
//
//	cluster_test.go     the instance: up, install, clients, processes on its nodes
//	guest_test.go       a VM under test: make it, wait for it, talk to its console and its web server
//	boot_test.go        …       the tests, one file a topic
package e2e
