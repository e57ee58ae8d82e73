package copyfile

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	mode := uint32(0o1777)
	for name, tc := range map[string]struct {
		request Request
		want    string
	}{
		"push":           {Request{Direction: Push, Path: "/etc/motd"}, ""},
		"into":           {Request{Direction: Push, Path: "/etc/", Name: "motd", IntoDirectory: true}, ""},
		"windows":        {Request{Direction: Push, Path: `C:\x`}, ""},
		"pull":           {Request{Direction: Pull, Path: `\\server\share\x`}, ""},
		"no direction":   {Request{Path: "/etc/motd"}, "not push or pull"},
		"pull of a name": {Request{Direction: Pull, Path: "/etc", Name: "x"}, "of a push only"},
		"mode":           {Request{Direction: Push, Path: "/etc/motd", Mode: &mode}, "mode 01777"},
		"name":           {Request{Direction: Push, Path: "/etc", Name: "../x"}, "cannot be the name"},
		"no name":        {Request{Direction: Push, Path: "/etc", IntoDirectory: true}, "needs a name"},
		"directory":      {Request{Direction: Pull, Path: "/etc/"}, "/etc/ is a directory"},
		"dots":           {Request{Direction: Pull, Path: "/etc/.."}, "is a directory"},
		"drive":          {Request{Direction: Pull, Path: `C:\`}, "is a directory"},
		"empty":          {Request{Direction: Pull}, "is empty"},
		"relative":       {Request{Direction: Pull, Path: "~/x"}, "no home directory"},
		"drive alone":    {Request{Direction: Pull, Path: "C:x"}, "no home directory"},
		"NUL":            {Request{Direction: Pull, Path: "/a\x00"}, "NUL"},
		"long":           {Request{Direction: Pull, Path: "/" + strings.Repeat("x", MaxPath)}, "the most is 4095"},
	} {
		err := tc.request.Check()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestBase(t *testing.T) {
	for path, want := range map[string]string{
		"/etc/motd": "motd", "/motd": "motd", "/": "", "/etc/": "", "/etc/.": "", `/odd\name`: "",
		`C:\dir\x.txt`: "x.txt", `c:/dir/x`: "x", `C:\`: "", `\\server\share\x`: "x",
	} {
		if got := Base(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"direction":"push","path":"/etc","name":"motd","intoDirectory":true,"mode":420}`))
	f.Add([]byte(`{"direction":"pull","path":"C:\\x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Request
		if json.Unmarshal(data, &r) != nil || r.Check() != nil {
			return
		}
		if strings.ContainsAny(r.Name, "/\\\x00") || r.Name == ".." || r.Name == "." {
			t.Errorf("a name leads out: %q", r.Name)
		}
		if r.Name == "" && Base(r.Path) == "" || !strings.ContainsAny(r.Path[:min(3, len(r.Path))], `/\`) {
			t.Errorf("no path of a file: %q", r.Path)
		}
	})
}
