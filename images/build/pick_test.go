package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPick(t *testing.T) {
	from := tree{}
	for _, name := range []string{
		"usr/bin/a", "usr/bin/b", "usr/share/x/one.fd", "usr/share/x/two.fd", "usr/share/x/deep/three.fd", "etc/conf",
	} {
		from.file(name, 0o644, []byte(name))
	}
	from.symlink("bin", "usr/bin")
	from.symlink("usr/bin/link", "../share/x/one.fd")
	tests := map[string]struct {
		list, want, err string
	}{
		"a file":        {list: "usr/bin/a", want: "usr usr/bin usr/bin/a"},
		"leading slash": {list: "/usr/bin/a # with a comment", want: "usr usr/bin usr/bin/a"},
		"a star": {
			list: "usr/share/x/*.fd", want: "usr usr/share usr/share/x usr/share/x/one.fd usr/share/x/two.fd",
		},
		"two stars": {
			list: "usr/**.fd",
			want: "usr usr/share usr/share/x usr/share/x/deep usr/share/x/deep/three.fd " +
				"usr/share/x/one.fd usr/share/x/two.fd",
		},
		"a directory": {
			list: "usr/share/x/deep", want: "usr usr/share usr/share/x usr/share/x/deep usr/share/x/deep/three.fd",
		},
		"and taken away": {
			list: "usr/share/x/*.fd\n!usr/share/x/two.fd", want: "usr usr/share usr/share/x usr/share/x/one.fd",
		},
		"a link's file": {
			list: "usr/bin/link", want: "usr usr/bin usr/bin/link usr/share usr/share/x usr/share/x/one.fd",
		},
		"a link":          {list: "bin", want: "bin usr usr/bin"},
		"nothing there":   {list: "etc/conf\n\nusr/bin/zzz", err: `line 3: "usr/bin/zzz" matches no file`},
		"nothing to take": {list: "etc/conf\n!usr/bin/a", err: `line 2: "!usr/bin/a" matches no file`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := pick(from, tt.list)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got.names(), " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The shell of this machine stands for a program with an interpreter and a library.
func TestPickLibraries(t *testing.T) {
	const interpreter = "/lib64/ld-linux-x86-64.so.2"
	from := tree{}
	for to, file := range map[string]string{"usr/bin/sh": "/bin/sh", "usr/lib/real-ld.so": interpreter} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Skip("not an amd64 glibc machine: ", err)
		}
		from.file(to, 0o755, data)
	}
	from.symlink("usr"+interpreter, "../lib/real-ld.so")
	if _, err := pick(from, "usr/bin/sh"); err == nil || !strings.Contains(err.Error(), "usr/bin/sh needs lib") {
		t.Fatalf("error %v, want that a library is missing", err)
	}
	libs, _, err := needed(from["usr/bin/sh"].Data)
	if err != nil {
		t.Fatal(err)
	}
	for _, lib := range libs {
		if !filepath.IsAbs(lib) {
			from.file("usr/lib/x86_64-linux-gnu/"+lib, 0o644, []byte("not an ELF file"))
		}
	}
	got, err := pick(from, "usr/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"usr" + interpreter, "usr/lib/real-ld.so", "usr/lib/x86_64-linux-gnu/libc.so.6"} {
		if _, ok := got[want]; !ok {
			t.Errorf("%s is missing from %v", want, got.names())
		}
	}
}

func TestMergeUsr(t *testing.T) {
	in := tree{}
	in.file("lib/modules/a.ko", 0o644, nil)
	in.file("usr/bin/x", 0o755, nil)
	in.symlink("bin", "usr/bin")
	got := strings.Join(mergeUsr(in).names(), " ")
	if want := "bin usr usr/bin usr/bin/x usr/lib usr/lib/modules usr/lib/modules/a.ko"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestModuleDependencies(t *testing.T) {
	all := map[string]module{
		"net": {depends: []string{"failover", "core"}}, "failover": {depends: []string{"core"}}, "core": {},
	}
	// What is needed by another comes after it, because modprobe loads from the end.
	if diff := cmp.Diff([]string{"failover", "core"}, allDepends(all, "net")); diff != "" {
		t.Error(diff)
	}
	for in, want := range map[string]string{
		"kernel/x/virtio-rng.ko.xz": "virtio_rng",
		"a_b.ko":                    "a_b",
		"virtio-net":                "virtio_net",
	} {
		if got := moduleName(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestMirrors(t *testing.T) {
	targets := `mirror://a.example/debian/ bookworm main
mirror://a.example/debian/ bookworm contrib
mirror://a.example/debian/ bookworm-updates main
mirror://s.example/debian-security/ bookworm-security main
mirror://other.example/node nodistro main
mirror://b.example/debian/ bookworm main
`
	got := parseMirrors(targets, codename("NAME=x\nVERSION_CODENAME=bookworm\n"))
	if want := (mirrors{"mirror://a.example/debian/", "mirror://s.example/debian-security/"}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	want := "deb [signed-by=" + keyring + "] M trixie main\ndeb [signed-by=" + keyring +
		"] M trixie-updates main\ndeb [signed-by=" + keyring + "] S trixie-security main\n"
	if diff := cmp.Diff(want, mirrors{"M", "S"}.sources("trixie")); diff != "" {
		t.Error(diff)
	}
	if got := parseMirrors("x nodistro main\n", "bookworm"); got != (mirrors{}) {
		t.Errorf("%v from a source that is not Debian", got)
	}
}
