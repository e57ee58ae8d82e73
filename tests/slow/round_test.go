//go:build slow

package slow

import (
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// debianDisk is what images/build leaves of the Debian guest beside its container disk.
const debianDisk = "../../bin/images/debian.qcow2"

// chunk is how much of a disk is compared at once.
const chunk = 4 << 20

// A Debian image goes round: its file is uploaded, a VM boots from the claim and writes, a backup in one file becomes a
// VM of another name whose disk is byte for byte the first one's, and whose guest has what was written.
func TestDebianRound(t *testing.T) {
	dir := t.TempDir()
	key, public := newKey(t, dir, "boot")
	ns := namespace(t, map[string]map[string]string{"boot-keys": {"key": public}})
	virtctl := func(args ...string) {
		t.Helper()
		stdout, stderr, err := theCluster.Virtctl(t.Context(), nil, append([]string{"-n", ns}, args...)...)
		if err != nil {
			t.Fatalf("virtctl %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
		}
	}
	virtctl("image-upload", "pvc", "disk", "--size=3Gi", "--image-path="+debianDisk, "--wait-secs=600")
	first := create(t, ns, "round.yaml", dir)
	first.booted(t, key)
	const sum = "sha256sum </srv/cargo"
	written := first.ssh(t, "debian", key, "sudo sh -c 'head -c 8M /dev/urandom >/srv/cargo && sync' && "+sum)
	if fields := strings.Fields(written); len(fields) != 2 || len(fields[0]) != 2*sha256.Size {
		t.Fatalf("the guest says of its file %q", written)
	}
	first.virtctl(t, "stop", "--wait", "--timeout", "5m")
	file := filepath.Join(dir, "first.tar")
	first.virtctl(t, "export", file, "--readiness-timeout=10m")

	virtctl("import", file, "--name=second")
	before, after := rawDisk(t, ns, first.name), rawDisk(t, ns, "second")
	if len(before) < 2<<30/chunk {
		t.Errorf("the first disk has %d parts of 4 MiB, and the image has 2 GiB", len(before))
	}
	zero := sha256.Sum256(make([]byte, chunk))
	for i, want := range before {
		if i >= len(after) || after[i] != want {
			t.Fatalf("the disks differ within 4 MiB of byte %d; they have %d and %d parts", i*chunk, len(before),
				len(after))
		}
	}
	for i, got := range after[len(before):] { // a claim may be larger than it was asked for
		if got != zero {
			t.Fatalf("the second disk has data behind the first one's end, at %d", (len(before)+i)*chunk)
		}
	}

	second := follow(t, ns, "second", t.TempDir())
	second.virtctl(t, "start")
	second.booted(t, key)
	second.expect(t, "debian", key, map[string]string{sum: written})
}

// rawDisk exports the only disk of a stopped VM, and returns the checksums of its parts, of which the last is filled up
// with zeros.
func rawDisk(t *testing.T, ns, vm string) [][sha256.Size]byte {
	t.Helper()
	var said strings.Builder
	cmd := exec.CommandContext(t.Context(), theCluster.Bin("virtctl"), "--kubeconfig", theCluster.Kubeconfig,
		"--context", theCluster.Name, "-n", ns, "vmexport", "download", "disk-of-"+vm, "--vm="+vm, "--output=-",
		"--readiness-timeout=10m")
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sums, err := partsOf(out)
	_, rest := io.Copy(io.Discard, out) // virtctl ends by itself
	if err := errors.Join(err, rest, cmd.Wait()); err != nil {
		t.Fatalf("download the disk of %s: %v\n%s", vm, err, said.String())
	}
	return sums
}

// partsOf reads a compressed disk.
func partsOf(packed io.Reader) (sums [][sha256.Size]byte, err error) {
	disk, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	for part := make([]byte, chunk); ; {
		n, err := io.ReadFull(disk, part)
		if n > 0 {
			clear(part[n:])
			sums = append(sums, sha256.Sum256(part))
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && n > 0:
			return sums, nil
		case err != nil:
			return sums, err
		}
	}
}
