package chaos

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	bootA = "5d3f0c4e-0000-4000-8000-00000000000a"
	bootB = "ffffffff-0000-4000-8000-00000000000b"
)

func rec(n, epoch int, boot string, ran int64) Record {
	return Record{Guest: "alpha", Number: n, Epoch: epoch, Boot: boot, Ran: ran}
}

// disk makes a disk with blocks from 1 on.
func disk(blocks ...string) []byte {
	out := make([]byte, block*(len(blocks)+3))
	for i, b := range blocks {
		if b != "" {
			copy(out[block*(i+1):], b+"\n")
		}
	}
	return out
}

func TestJournalCheck(t *testing.T) {
	one, two, three := rec(1, 1, bootA, 10), rec(2, 1, bootA, 20), rec(3, 1, bootA, 30)
	next := rec(3, 2, bootB, 5)
	foreign := rec(2, 1, bootA, 20)
	foreign.Guest = "beta"
	tests := []struct {
		name string
		said []Record
		disk []string
		// What the findings must say; empty for none.
		lost, doubled string
	}{
		{"nothing yet", nil, nil, "", ""},
		{"all is there", []Record{one, two}, []string{one.String(), two.String()}, "", ""},
		{"more than was said", []Record{one}, []string{one.String(), two.String(), three.String()}, "", ""},
		{
			"a line of the console was not readable",
			[]Record{one, three},
			[]string{one.String(), two.String(), three.String()},
			"", "",
		},
		{
			"the guest has booted anew",
			[]Record{one, two, next},
			[]string{one.String(), two.String(), next.String()},
			"", "",
		},
		{"the last one is being written", []Record{one}, []string{one.String(), two.String()[:20]}, "", ""},
		{"the last one is missing", []Record{one, two}, []string{one.String()}, "record 2 is not on the disk", ""},
		{
			"one in between is missing",
			[]Record{one, three},
			[]string{one.String(), "", three.String()},
			"record 2 is not on the disk", "",
		},
		{"the disk is empty", []Record{one}, nil, "record 1 is not on the disk", ""},
		{
			"an acknowledged one is damaged",
			[]Record{one, two},
			[]string{one.String(), two.String()[:20]},
			"record 2 is damaged", "",
		},
		{
			"one in between is damaged",
			[]Record{one},
			[]string{one.String(), two.String()[:20], three.String()},
			"record 2 is damaged", "",
		},
		{
			"a bit has changed",
			[]Record{one, two},
			[]string{strings.Replace(one.String(), " 10 ", " 11 ", 1), two.String()},
			"record 1 is damaged", "",
		},
		{
			"a boot's records are missing",
			[]Record{one},
			[]string{one.String(), rec(2, 3, bootB, 1).String()},
			"boot 3 begins with record 2", "",
		},
		{
			"a copy has written over it",
			[]Record{one, two},
			[]string{one.String(), rec(2, 1, bootA, 21).String()},
			"",
			"record 2 was acknowledged as",
		},
		{
			"a copy has acknowledged, too",
			[]Record{one, two, rec(2, 1, bootA, 21)},
			[]string{one.String(), two.String()},
			"", "record 2 was written twice",
		},
		{
			"two boots at once",
			[]Record{one, two, rec(2, 2, bootB, 5)},
			[]string{one.String(), two.String()},
			"",
			"record 2 was written twice",
		},
		{
			"the old boot goes on", nil,
			[]string{one.String(), rec(2, 2, bootB, 5).String(), three.String()},
			"",
			"boot 1 has written record 3 after boot 2",
		},
		{
			"two boots with one number", nil,
			[]string{one.String(), rec(2, 1, bootB, 5).String()},
			"",
			"two boots have written records 1 and 2",
		},
		{
			"another guest",
			[]Record{one},
			[]string{one.String(), foreign.String()},
			"",
			"in place of record 2 is another one",
		},
		{
			"a record in another's place",
			[]Record{one},
			[]string{one.String(), three.String()},
			"",
			"in place of record 2 is another one",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			j := &Journal{Guest: "alpha"}
			for _, r := range test.said {
				j.Acknowledge(r, time.Now())
			}
			f, err := j.Check(bytes.NewReader(disk(test.disk...)))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "lost", f.Lost, test.lost)
			expect(t, "doubled", f.Doubled, test.doubled)
			if f, err = j.Check(bytes.NewReader(disk(test.disk...))); err != nil || len(f.Lost)+len(f.Doubled) != 0 {
				t.Errorf("it is found a second time: %+v, %v", f, err)
			}
		})
	}
}

func expect(t *testing.T, what string, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) != 0:
		t.Errorf("%s: %q, want nothing", what, got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		t.Errorf("%s: %q, want one that says %q", what, got, want)
	}
}

func TestJournalRefused(t *testing.T) {
	j := &Journal{Guest: "alpha"}
	j.Refuse("alpha cannot write record 7: dd: I/O error")
	f, err := j.Check(bytes.NewReader(disk()))
	if err != nil || len(f.Lost) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestJournalLast(t *testing.T) {
	j := &Journal{Guest: "alpha"}
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	j.Acknowledge(rec(2, 1, bootA, 20), first)
	j.Acknowledge(rec(1, 1, bootA, 10), second)
	j.Acknowledge(rec(2, 1, bootA, 20), second) // the console is read again
	if j.Last.Number != 2 || j.At != first {
		t.Errorf("%+v at %v", j.Last, j.At)
	}
}

func TestAcknowledged(t *testing.T) {
	one, two := rec(1, 1, bootA, 10).String(), rec(2, 1, bootA, 20).String()
	tests := []struct {
		name, console string
		records       int
		complaints    int
		rest          string
	}{
		{"nothing", "", 0, 0, ""},
		{"lines", "journal: " + one + "\r\njournal: " + two + "\n", 2, 0, ""},
		{"with returns of the terminal", "journal: " + one + "\r\r\n", 1, 0, ""},
		{"after a prompt", "tiny login: journal: " + one + "\r\n", 1, 0, ""},
		{"cut", "journal: " + one + "\r\njournal: " + two[:30], 1, 0, "journal: " + two[:30]},
		{"spoilt", "journal: " + one[:20] + "[ 1.0] virtio " + one[20:] + "\r\n", 0, 0, ""},
		{"another number", "journal: " + strings.Replace(one, " 1 ", " 3 ", 1) + "\r\n", 0, 0, ""},
		{"a complaint", "journal: alpha cannot write record 3: dd: I/O error\r\n", 0, 1, ""},
		{"other words", "tiny: tiny is ready\r\nhalf a li", 0, 0, "half a li"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			records, complaints, rest := Acknowledged([]byte(test.console))
			if len(records) != test.records || len(complaints) != test.complaints || string(rest) != test.rest {
				t.Errorf("%v, %q, rest %q", records, complaints, rest)
			}
		})
	}
}

// What the script writes in a guest is read and found whole here, and after a boot it goes on where it was. It runs on
// this machine, with a file for a disk and standard output for a serial console.
func TestJournalScript(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the script is for a Linux guest")
	}
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer(
		"/sys/block/vd*", path, "/dev/${d##*/}", path, `"$(cat "$d/serial" 2>/dev/null)"`, "DATA", ">/dev/ttyS0", "",
	).Replace(journalScript)
	j := &Journal{Guest: "alpha"}
	for boot := 1; boot <= 3; boot++ {
		for i, r := range write(t, script, 2) {
			// What an earlier boot wrote last, it may have had no time to acknowledge.
			if r.Epoch != boot || r.Number <= j.Last.Number || i > 0 && r.Number != j.Last.Number+1 {
				t.Errorf("boot %d goes on with %+v after %+v", boot, r, j.Last)
			}
			j.Acknowledge(r, time.Now())
		}
		// Another boot has another id.
		script = strings.Replace(script, "boot=$(cat /proc/sys/kernel/random/boot_id)",
			"boot=$(cat /proc/sys/kernel/random/uuid)", 1)
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		findings, err := j.Check(f)
		f.Close()
		if err != nil || len(findings.Lost)+len(findings.Doubled) > 0 {
			t.Errorf("boot %d: %+v, %v", boot, findings, err)
		}
	}
}

// write runs the script until it has acknowledged so many records, and kills it.
func write(t *testing.T, script string, records int) (all []Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script, "journal", "alpha", "DATA")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // dd, too
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); len(all) < records && lines.Scan(); {
		said, complaints, _ := Acknowledged(append(lines.Bytes(), '\n'))
		if len(complaints) > 0 {
			t.Errorf("%q", complaints)
		}
		all = append(all, said...)
	}
	cancel()
	cmd.Wait() // it was killed
	if len(all) != records {
		t.Fatalf("%d records, want %d", len(all), records)
	}
	return all
}
