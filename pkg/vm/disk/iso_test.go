package disk

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kdomanski/iso9660"
)

// images are the kinds of trees that there are: one directory, and directories in directories.
var images = map[string]map[string][]byte{
	"flat": {
		"user-data":      []byte("#cloud-config\nhostname: a\n"),
		"meta-data":      []byte(`{"instance-id":"a.b"}`),
		"network-config": bytes.Repeat([]byte("x"), 5000),
		"empty":          {},
	},
	"tree": {
		"openstack/latest/user_data":         bytes.Repeat([]byte("#cloud-config\n"), 300),
		"openstack/latest/meta_data.json":    []byte(`{"uuid":"a"}`),
		"openstack/latest/network_data.json": []byte("{}"),
		"openstack/content/0000":             []byte("content"),
		"readme":                             []byte("at the top"),
		"a.dir/b/c/d/e/f/deep":               []byte("deep"),
	},
	"many": many(),
}

// many are more files than one sector of a directory has room for, with names that are long and begin alike.
func many() map[string][]byte {
	out := map[string][]byte{}
	for i := range 120 {
		out[fmt.Sprintf("%s-%03d.conf", strings.Repeat("very-long-", i%10), i)] = fmt.Appendf(nil, "file %d", i)
		out[fmt.Sprintf("sub/%s/f%d", strings.Repeat("d", 40+i%8), i)] = []byte("in a directory")
	}
	return out
}

func TestImageReadsBack(t *testing.T) {
	for name, files := range images {
		if name == "many" {
			continue // the library mixes up the sectors of a directory; TestImageTrees and a guest (tests/e2e) read it
		}
		t.Run(name, func(t *testing.T) {
			img, err := Image("cidata", files)
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
			got := map[string][]byte{}
			readTree(t, root, "", got)
			if diff := cmp.Diff(files, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func readTree(t *testing.T, dir *iso9660.File, prefix string, into map[string][]byte) {
	children, err := dir.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range children {
		if c.IsDir() {
			readTree(t, c, prefix+c.Name()+"/", into)
			continue
		}
		data, err := io.ReadAll(c.Reader())
		if err != nil {
			t.Fatal(err)
		}
		into[prefix+c.Name()] = data
	}
}

// TestImageTrees lets cdrtools' isoinfo, where it is installed, read both trees, and their path tables.
func TestImageTrees(t *testing.T) {
	isoinfo, err := exec.LookPath("isoinfo")
	if err != nil {
		t.Skip("isoinfo is not installed; TestImageReadsBack covers the Rock Ridge tree")
	}
	for name, files := range images {
		img, err := Image("cidata", files)
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
				t.Fatalf("%s: isoinfo %s: %v\n%s", name, tree, err, list)
			}
			for path, want := range files {
				if !strings.Contains(string(list), "/"+path+"\n") {
					t.Errorf("%s: isoinfo %s does not list %s:\n%s", name, tree, path, list)
				}
				data, err := exec.Command(isoinfo, "-i", file, tree, "-x", "/"+path).Output()
				if err != nil || !bytes.Equal(data, want) {
					t.Errorf("%s: isoinfo %s reads %d bytes of %s, %v", name, tree, len(data), path, err)
				}
			}
		}
		table, err := exec.Command(isoinfo, "-i", file, "-p").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: isoinfo -p: %v\n%s", name, err, table)
		}
		if name == "tree" &&
			!regexp.MustCompile(`(?m)^ +3: +1 [0-9a-f]+ OPENSTACK$[^$]+^ +6: +3 [0-9a-f]+ LATEST$`).Match(table) {
			t.Errorf("the path table:\n%s", table)
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
	for _, names := range [][]string{
		{""},
		{"/a"},
		{"a/"},
		{"a//b"},
		{"a/../b"},
		{"./a"},
		{"a", "a/b"},
		{"1/2/3/4/5/6/7/8"},
		{strings.Repeat("a", 104)},
	} {
		files := map[string][]byte{}
		for _, name := range names {
			files[name] = nil
		}
		if _, err := Image("cidata", files); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", names, err)
		}
	}
	if _, err := Image("cidata", map[string][]byte{"a": make([]byte, maxImage+1)}); err == nil {
		t.Error("too much data was accepted")
	}
}
