package hypervisor

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDiagnose(t *testing.T) {
	for _, tc := range []struct{ name, message, path string }{
		{
			"write lock",
			"internal error: QEMU unexpectedly closed the monitor (vm='x'): 2026-11-20T23:00:00Z " +
				"qemu-system-x86_64: -blockdev {\"node-name\":\"libvirt-1-format\"}: Failed to get \"write\" " +
				"lock\nIs another process using the image [/claims/data/disk.img]?",
			"/claims/data/disk.img",
		},
		{"shared lock", "Failed to get shared \"write\" lock\nIs another process using the image [/a b]?", "/a b"},
		{"consistent read", "Failed to get \"consistent read\" lock", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var locked *LockedError
			if err := Diagnose(tc.message); !errors.As(err, &locked) || locked.Path != tc.path {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := Diagnose("Could not open '/x': No such file or directory"); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestMessage(t *testing.T) {
	const message = "QEMU unexpectedly closed the monitor (vm='x'): 2026-11-20T23:00:00.123456Z " +
		"qemu-system-x86_64: no\n2026-11-20T23:00:01Z qemu: bye"
	if got, want := Message(message), "QEMU unexpectedly closed the monitor (vm='x'): "+
		"qemu-system-x86_64: no\nqemu: bye"; got != want {
		t.Errorf("got %q", got)
	}
}

func TestEndInLog(t *testing.T) {
	const begin = "2026-11-20 23:00:00.000+0000: starting up libvirt version: 11.3.0\n" +
		"LC_ALL=C \\\n/usr/bin/qemu-system-x86_64 \\\n-name guest=a\nchar device redirected\n"
	for _, tc := range []struct {
		name, log string
		want      End
		ok        bool
	}{
		{"empty", "", End{}, false},
		{"still running", begin, End{}, false},
		{
			"shutdown", begin + "2026-11-20 23:01:00.000+0000: shutting down, reason=shutdown\n",
			End{Shutdown, "shutdown"},
			true,
		},
		{
			"destroyed", begin + "qemu: terminating on signal 15 from pid 46\n2026: shutting down, reason=destroyed\n",
			End{Destroyed, "destroyed"},
			true,
		},
		{"crashed", begin + "2026: shutting down, reason=crashed\n", End{Crashed, "crashed"}, true},
		{"failed", begin + "2026: shutting down, reason=failed\n", End{Crashed, "failed"}, true},
		{"migrated", begin + "2026: shutting down, reason=migrated\n", End{Moved, "migrated"}, true},
		{"unknown reason", begin + "2026: shutting down, reason=saved\n", End{}, false},
		{"an earlier run's", "x: shutting down, reason=failed\n" + begin, End{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, ok := EndInLog(tc.log); got != tc.want || ok != tc.ok {
				t.Errorf("got %v, %v", got, ok)
			}
		})
	}
}

func FuzzEndInLog(f *testing.F) {
	f.Add("x: shutting down, reason=failed\n")
	f.Fuzz(func(t *testing.T, log string) {
		EndInLog(log)
		_ = Diagnose(log)
		if said := SaidLast(log); len(said) > maxSaid || !utf8.ValidString(said) {
			t.Errorf("%q", said)
		}
	})
}

func TestSaidLast(t *testing.T) {
	const (
		begin = "2026-11-20 23:00:00.000+0000: starting up libvirt version: 11.3.0\n" +
			"LC_ALL=C \\\n/usr/bin/qemu-system-x86_64 \\\n-name guest=a \\\n-msg timestamp=on\n"
		end = "2026-11-20 23:01:00.000+0000: shutting down, reason=crashed\n"
	)
	for _, tc := range []struct{ name, log, want string }{
		{"empty", "", ""},
		{"nothing", begin + "char device redirected to /dev/pts/0 (label charserial0)\n" + end, ""},
		{"arguments without their beginning", "-name guest=a \\\n-msg timestamp=on\n" + end, ""},
		{"begun only", "x: starting up libvirt version: 1", ""},
		{
			"assertion",
			begin + "char device redirected\nqemu-system-x86_64: ../system/physmem.c:697: iotlb_to_section: " +
				"Assertion `section_index < d->map.sections_nb' failed.\n" + end,
			"../system/physmem.c:697: iotlb_to_section: Assertion `section_index < d->map.sections_nb' failed.",
		},
		{"with its time", begin + "2026-11-20T23:00:59.1Z qemu-system-x86_64: out of memory\n", "out of memory"},
		{"an earlier run's", "qemu-system-x86_64: before\n" + end + begin, ""},
		{"without the beginning", "rest of a line\nqemu-system-x86_64: after\n", "after"},
		{"long", begin + strings.Repeat("é", maxSaid), strings.Repeat("é", maxSaid/2)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := SaidLast(tc.log); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestDiagnoseLUN(t *testing.T) {
	err := Diagnose(
		`internal error: qemu-system-x86_64: -device {"driver":"scsi-block","lun":0}: cannot get SG_IO version number: Invalid argument Is this a SCSI device?`)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "use disk: {bus: scsi}") {
		t.Errorf("got %v", err)
	}
}
