package machine

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestForwarded(t *testing.T) {
	const table = "Hub -1 (control):\r\n" +
		"  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n" +
		"  TCP[ESTABLISHED]   15       127.0.0.1 40000       10.0.2.15    22     0     0\r\n" +
		"  TCP[HOST_FORWARD]  14       127.0.0.1 35287       10.0.2.15    22     0     0\r\n"
	if got, err := forwarded(table); got != 35287 || err != nil {
		t.Errorf("port %d, %v", got, err)
	}
	if _, err := forwarded("Hub -1 (card):\r\n"); err == nil {
		t.Error("a port where none is forwarded")
	}
}

func TestAnswer(t *testing.T) {
	lines := bufio.NewReader(strings.NewReader(`{"QMP": {}}
{"timestamp": {}, "event": "RESUME"}
{"return": {"a": 1}}
{"error": {"class": "GenericError", "desc": "no such command"}}
`))
	if got, err := answer(lines); string(got) != `{"a": 1}` || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := answer(lines); err == nil || err.Error() != "no such command" {
		t.Errorf("%v", err)
	}
}

func TestArgumentsNameNoFileElsewhere(t *testing.T) {
	f := filesIn("/repository")
	for _, a := range arguments(f) {
		if file, ok := strings.CutPrefix(a, "file="); ok && strings.Contains(strings.Split(file, ",")[0], "/") {
			t.Errorf("%s is not in the machine's directory", a)
		}
		if strings.HasPrefix(a, "/") && !strings.HasPrefix(a, "/repository/bin/images/lab/") {
			t.Errorf("%s is not of the lab", a)
		}
	}
}

func TestLocksShowWhatRuns(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"alive", "dead"} {
		if err := os.MkdirAll(filepath.Join(runs(root), name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := hold(filepath.Join(runs(root), "alive"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if got, err := Running(root); err != nil || !slices.Equal(got, []string{"alive"}) {
		t.Errorf("running: %v, %v", got, err)
	}
	if err := sweep(runs(root)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(runs(root), "dead")); !os.IsNotExist(err) {
		t.Errorf("what a dead one left stays: %v", err)
	}
	if m, err := find(root, ""); err != nil || m.Name != "alive" {
		t.Errorf("the only one: %v, %v", m, err)
	}
	if _, err := find(root, "dead"); err == nil {
		t.Error("found one that does not run")
	}
}

func TestKeysFitEachOther(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "inside")
	if err := makeKeys(inside, dir); err != nil {
		t.Fatal(err)
	}
	if _, err := sshConfig(dir); err != nil {
		t.Error(err)
	}
	for _, private := range []string{filepath.Join(inside, hostKey), filepath.Join(dir, ourKey)} {
		if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", private, info, err)
		}
	}
}

func TestLastLines(t *testing.T) {
	if got := lastLines("a\nb\nc\n", 2); got != "b\nc" {
		t.Errorf("%q", got)
	}
}
