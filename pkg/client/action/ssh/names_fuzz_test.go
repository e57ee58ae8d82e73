package ssh

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
)

// hostileServer is a guest's sftp server that lists whatever names it likes. A name that ends in a slash is a
// directory, which has the same names in it, twice.
type hostileServer struct{ names []string }

type hostileInfo struct {
	name string
	dir  bool
}

func (i hostileInfo) Name() string       { return i.name }
func (i hostileInfo) Size() int64        { return 1 }
func (i hostileInfo) ModTime() time.Time { return time.Unix(0, 0) }
func (i hostileInfo) IsDir() bool        { return i.dir }
func (i hostileInfo) Sys() any           { return nil }
func (i hostileInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

type listed []os.FileInfo

func (l listed) ListAt(into []os.FileInfo, offset int64) (int, error) {
	if offset >= int64(len(l)) {
		return 0, io.EOF
	}
	n := copy(into, l[offset:])
	if n < len(into) {
		return n, io.EOF
	}
	return n, nil
}

func (s hostileServer) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method != "List" {
		return listed{
			hostileInfo{
				filepath.Base(r.Filepath),
				strings.HasSuffix(r.Filepath, "root") || strings.HasSuffix(r.Filepath, "dir"),
			},
		}, nil
	}
	var out listed
	if strings.Count(r.Filepath, "/") > 2 { // deep enough
		return out, nil
	}
	for _, name := range s.names {
		out = append(out, hostileInfo{name, strings.HasSuffix(name, "dir")})
	}
	return out, nil
}

// RealPath is what the guest says of `.`.
func (s hostileServer) RealPath(string) (string, error) { return s.names[0], nil }

func (hostileServer) Fileread(*sftp.Request) (io.ReaderAt, error) {
	return bytes.NewReader([]byte("x")), nil
}

// FuzzDownload copies a directory, a directory without a name and what a pattern matches from a guest that gives its
// files any names. Nothing outside of the target may come to be or change.
func FuzzDownload(f *testing.F) {
	for _, names := range []string{
		"file\ndir", "../escaped", "..\n.\n/etc/passwd\ndir", "../../escaped\n..", "a/../../escaped", `..\escaped`,
		"\x00\n\xff\n", "dir/../../escaped", "-rf\n~\n$HOME", "/\n//", "...",
	} {
		f.Add(names)
	}
	f.Fuzz(func(t *testing.T, names string) {
		if len(names) > 1<<10 {
			return
		}
		dir := t.TempDir()
		target := filepath.Join(dir, "outer", "target")
		if err := errors.Join(os.MkdirAll(target, 0o755),
			os.WriteFile(filepath.Join(dir, "escaped"), []byte("mine"), 0o600)); err != nil {
			t.Fatal(err)
		}
		guest, here := net.Pipe()
		handlers := hostileServer{strings.Split(names, "\n")}
		server := sftp.NewRequestServer(guest, sftp.Handlers{FileGet: handlers, FileList: handlers})
		served := make(chan error, 1)
		go func() { served <- server.Serve() }()
		client, err := sftp.NewClientPipe(here, here)
		if err != nil {
			t.Fatal(err)
		}
		c := &Copier{Recursive: true, sftp: client}
		for _, source := range []string{"/root", ".", "/root/*"} {
			_ = c.Download(t.Context(), []string{source}, target) // that it refuses names is the point
		}
		_ = client.Close()
		_ = here.Close()
		<-served
		for path, want := range map[string][]string{
			dir:                         {"escaped", "outer"},
			filepath.Join(dir, "outer"): {"target"},
		} {
			entries, err := os.ReadDir(path)
			if err != nil {
				t.Fatal(err)
			}
			for i, entry := range entries {
				if len(entries) != len(want) || entry.Name() != want[i] {
					t.Errorf("%q made %v in %s", names, entries, path)
					break
				}
			}
		}
		if data, err := os.ReadFile(filepath.Join(dir, "escaped")); err != nil || string(data) != "mine" {
			t.Errorf("%q wrote to a file beside the target: %q %v", names, data, err)
		}
	})
}
