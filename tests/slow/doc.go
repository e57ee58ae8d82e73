// Package slow tests virtkit with a real cloud image: Debian with systemd, cloud-init, sshd and the guest agent, which
// images/build installs from Debian's packages. Without KVM such a guest takes a minute to boot, so these tests have a
// lane of their own, `make test-slow` (build tag slow), which .ci/run leaves out. VIRTKIT_E2E_CLUSTER names an instance
// to use, as for tests/e2e; it must have debian-disk, and be made with --multus.
package slow
