package vnc

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFindViewer(t *testing.T) {
	installed := func(names ...string) System {
		return System{
			OS: "linux",
			Look: func(name string) (string, error) {
				if slices.Contains(names, name) {
					return "/usr/bin/" + name, nil
				}
				return "", os.ErrNotExist
			},
			Glob: func(pattern string) ([]string, error) {
				var found []string
				for _, name := range names {
					if ok, err := filepath.Match(pattern, name); err != nil || ok {
						found = append(found, name)
					}
				}
				return found, nil
			},
		}
	}
	mac := func(names ...string) System {
		s := installed(names...)
		s.OS = "darwin"
		return s
	}
	const tiger = "/Applications/TigerVNC Viewer 1.%s.app/Contents/MacOS/TigerVNC Viewer"
	for _, test := range []struct {
		name   string
		system System
		kind   string
		want   string
	}{
		{"best first", installed("vncviewer", "remote-viewer"), "", "/usr/bin/remote-viewer"},
		{"second", installed("vncviewer"), "", "/usr/bin/vncviewer"},
		{"of a kind", installed("vncviewer", "remote-viewer"), Tiger, "/usr/bin/vncviewer"},
		{"none of a kind", installed("remote-viewer"), Tiger, ""},
		{"none", installed(), "", ""},
		{
			"newest on macOS", mac(strings.ReplaceAll(tiger, "%s", "2"), strings.ReplaceAll(tiger, "%s", "1")), "",
			strings.ReplaceAll(tiger, "%s", "2"),
		},
		{
			"RealVNC", mac("/Applications/VNC Viewer.app/Contents/MacOS/vncviewer"), "",
			"/Applications/VNC Viewer.app/Contents/MacOS/vncviewer",
		},
		{"from PATH on macOS", mac("remote-viewer"), "", "/usr/bin/remote-viewer"},
	} {
		v, err := test.system.Find(test.kind)
		if v.Path != test.want || (err == nil) != (test.want != "") || err != nil && !errors.Is(err, ErrNoViewer) {
			t.Errorf("%s: %v %v, want %q", test.name, v, err, test.want)
		}
	}
}

func TestViewerArgs(t *testing.T) {
	address := &net.TCPAddr{IP: net.IPv4zero, Port: 5901}
	for kind, want := range map[string]string{
		RemoteViewer: "vnc://127.0.0.1:5901 --debug",
		Tiger:        "127.0.0.1::5901 Log=*:stderr:100",
		Real:         "127.0.0.1:5901 -WarnUnencrypted=0 -Shared=0 -ShareFiles=0 -log=*:stderr:100",
		Chicken:      "127.0.0.1:5901",
	} {
		if got := strings.Join(Viewer{Kind: kind}.Args(address, true), " "); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}

func TestSave(t *testing.T) {
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewRGBA(image.Rect(0, 0, 300, 200))); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a.png")
	size := int64(picture.Len())
	p, err := Save(path, &picture)
	if err != nil || p != (Picture{300, 200, size}) {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := Save(path, strings.NewReader("<html>")); err == nil || !strings.Contains(err.Error(), "no PNG") {
		t.Errorf("%v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v %v: a failure must leave the file before, and nothing else", left, err)
	}
}
