package records

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

type note struct{ Text string }

// What is saved is there for the next virt-handler, and goes with its pod.
func TestStore(t *testing.T) {
	s := Store[note]{Dir: filepath.Join(t.TempDir(), "made"), What: "note"}
	if got, err := s.Load("a"); got != nil || err != nil {
		t.Errorf("before anything is kept: %v, %v", got, err)
	}
	if err := s.KeepOnly(func(types.UID) bool { return false }); err != nil {
		t.Errorf("without a directory: %v", err)
	}
	for _, pod := range []types.UID{"a", "b", "c"} {
		if err := s.Save(pod, &note{Text: "of " + string(pod)}); err != nil {
			t.Fatal(err)
		}
	}
	next := Store[note]{Dir: s.Dir, What: "note"}
	if got, err := next.Load("b"); err != nil || got == nil || got.Text != "of b" {
		t.Errorf("b: %v, %v", got, err)
	}
	for range 2 {
		if err := next.Remove("b"); err != nil {
			t.Errorf("remove b: %v", err)
		}
	}
	// A kill while virt-handler writes leaves this.
	cut := filepath.Join(s.Dir, "c.json.new")
	if err := os.WriteFile(cut, []byte(`{"Te`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := next.Pods(); err != nil || !slices.Equal(got, []types.UID{"a", "c"}) {
		t.Errorf("pods %v, %v", got, err)
	}
	if err := next.KeepOnly(func(pod types.UID) bool { return pod == "a" }); err != nil {
		t.Fatal(err)
	}
	if got, err := next.Pods(); err != nil || !slices.Equal(got, []types.UID{"a"}) {
		t.Errorf("pods %v, %v", got, err)
	}
	if _, err := os.Stat(cut); !os.IsNotExist(err) {
		t.Errorf("the cut write: %v", err)
	}
}

// A UID that a name or pattern of another file hides in is no UID.
func TestStoreRefusesForeignNames(t *testing.T) {
	s := Store[note]{Dir: t.TempDir(), What: "note"}
	for _, pod := range []types.UID{"", "../a", "a/b", "*", "a.json"} {
		_, err := s.Load(pod)
		if err == nil || s.Save(pod, &note{}) == nil || s.Remove(pod) == nil {
			t.Errorf("%q passes", pod)
		}
	}
}

// A file that is no record is an error that names the pod, never an empty record.
func TestStoreBroken(t *testing.T) {
	s := Store[note]{Dir: t.TempDir(), What: "note"}
	if err := os.WriteFile(filepath.Join(s.Dir, "a.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load("a"); err == nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}
