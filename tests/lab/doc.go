// Package lab tests virtkit on the hardware that users have: KVM, systemd, cgroup v2, NUMA, an IOMMU. `make lab` boots
// a machine that has all that (package machine), runs in it what `make up` runs, and then these tests, build tag lab,
// from outside: the API server is reached over a port of loopback, and the machine itself by SSH.
//
//	LAB_KEEP=1         leaves the machine running; `make lab-shell` is a shell in it, `make lab-down` its end
//	LAB=NAME           tests one that was kept, as it is
//	VIRTKIT_PATIENCE   how many times longer than usual to wait, 10 unless it is set
package lab
