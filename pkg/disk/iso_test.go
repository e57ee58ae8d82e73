package disk

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kdomanski/iso9660"
)

var seed = map[string][]byte{
	"user-data":      []byte("#cloud-config\nhostname: a\n"),
	"meta-data":      []byte(`{"instance-id":"a.b"}`),
	"network-config": bytes.Repeat([]byte("x"), 5000),
	"empty":          {},
}

func TestImageReadsBack(t *testing.T) {
	img, err := Image("cidata", seed)
	if err != nil {
		t.Fatal(err)
	}
	r, err := iso9660.OpenImage(bytes.NewReader(img))
	if err != nil {
		t.Fatal(err)
	}
	if label, err := r.Label(); err != nil || label != "cidata" {
		t.Errorf("label %q, %v", label, err)
	}
	root, err := r.RootDir()
	if err != nil {
		t.Fatal(err)
	}
	children, err := root.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]byte{}
	for _, c := range children {
		data, err := io.ReadAll(c.Reader())
		if err != nil {
			t.Fatal(err)
		}
		got[c.Name()] = data
	}
	if diff := cmp.Diff(seed, got); diff != "" {
		t.Error(diff)
	}
}

// TestImageTrees lets cdrtools' isoinfo, where it is installed, read both trees.
func TestImageTrees(t *testing.T) {
	isoinfo, err := exec.LookPath("isoinfo")
	if err != nil {
		t.Skip("isoinfo is not installed; TestImageReadsBack covers the Rock Ridge tree")
	}
	img, err := Image("cidata", seed)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "seed.iso")
	if err := os.WriteFile(file, img, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tree := range []string{"-R", "-J"} {
		list, err := exec.Command(isoinfo, "-i", file, tree, "-f").CombinedOutput()
		if err != nil {
			t.Fatalf("isoinfo %s: %v\n%s", tree, err, list)
		}
		for name := range seed {
			if !strings.Contains(string(list), "/"+name+"\n") {
				t.Errorf("isoinfo %s does not list %s:\n%s", tree, name, list)
			}
		}
		data, err := exec.Command(isoinfo, "-i", file, tree, "-x", "/network-config").Output()
		if err != nil || !bytes.Equal(data, seed["network-config"]) {
			t.Errorf("isoinfo %s reads %d bytes, %v", tree, len(data), err)
		}
	}
}

func TestImageIsReproducible(t *testing.T) {
	img, err := Image("cidata", map[string][]byte{"user-data": []byte("a"), "meta-data": []byte("b")})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(img)
	const want = "861ceb654aa16058def216859bd77c580ce5473ac1b9c23d70b90a04b3d6b0e8"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("the bytes changed: sha256 %s, want %s", got, want)
	}
}

func TestImageRefuses(t *testing.T) {
	if _, err := Image("cidata", map[string][]byte{"": nil}); err == nil {
		t.Error("a file without a name was accepted")
	}
	if _, err := Image("cidata", map[string][]byte{"a": make([]byte, maxImage+1)}); err == nil {
		t.Error("too much data was accepted")
	}
}
