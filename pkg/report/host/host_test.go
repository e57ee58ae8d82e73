package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sys/module/kvm_intel/parameters/nested": "Y\n",
		"proc/cpuinfo": "processor\t: 0\nmodel name\t: Xeon 9\nflags\t\t: fpu vmx hypervisor\n\n" +
			"processor\t: 1\nmodel name\t: other\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := Read(filepath.Join(dir, "sys"), filepath.Join(dir, "proc"), nil)
	want := Facts{KVM: true, Module: "kvm_intel", Nested: true, CPU: "Xeon 9", Virtualized: true}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	text, err := got.Annotation()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := Parse(text); err != nil || back != want {
		t.Errorf("%s gives %+v, %v", text, back, err)
	}

	bare := Read(t.TempDir(), t.TempDir(), errors.New("no such device"))
	if bare != (Facts{NoKVM: "no such device"}) {
		t.Errorf("bare machine: %+v", bare)
	}
	if _, err := Parse("soon"); err == nil {
		t.Error("parsed nonsense")
	}
}
