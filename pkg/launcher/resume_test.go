package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

var theResume = savedmemory.Resume{Claim: "c", Restore: "r"}

// resumed is demo's VMI after a restore, with the memory of a snapshot if that is not empty.
func (l *life) resumed(memory string) *v1.VirtualMachineInstance {
	l.t.Helper()
	text, err := theResume.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	vmi := demo()
	vmi.Annotations = map[string]string{savedmemory.ResumeAnnotation: text}
	if err := os.MkdirAll(l.options.Disks.Resume, 0o755); err != nil {
		l.t.Fatal(err)
	}
	if memory != "" {
		l.writeResume(savedmemory.File, memory)
	}
	return vmi
}

func (l *life) writeResume(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.options.Disks.Resume, name), []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) created() string {
	l.memory.mu.Lock()
	defer l.memory.mu.Unlock()
	return l.memory.xml
}

func TestResume(t *testing.T) {
	l := begin(t)
	vmi := l.resumed("memory")
	for range 2 { // it is idempotent
		if r, err := l.start(vmi); err != nil || r.State.Lifecycle != runs {
			t.Fatalf("%v, %v", r, err)
		}
		if !strings.HasPrefix(l.created(), "restored from ") {
			t.Errorf("the guest was booted: %s", l.created())
		}
	}
	used, err := os.ReadFile(filepath.Join(l.options.Disks.Resume, theResume.Token()))
	if err != nil || string(used) != string(vmi.UID) {
		t.Errorf("%q, %v", used, err)
	}
	l.end(t)
}

// A guest that was resumed once has changed its disks since: the next start is a boot.
func TestResumeOnce(t *testing.T) {
	l := begin(t)
	vmi := l.resumed("memory")
	l.writeResume(theResume.Token(), "another VMI")
	if r, err := l.start(vmi); err != nil || r.State.Lifecycle != runs {
		t.Fatalf("%v, %v", r, err)
	}
	if !strings.Contains(l.created(), "<domain ") {
		t.Errorf("resumed twice: %s", l.created())
	}
	l.end(t)
}

// A guest that cannot be resumed is not booted instead.
func TestResumeFails(t *testing.T) {
	l := begin(t)
	vmi := l.resumed("")
	if _, err := l.start(vmi); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "remove the VM's annotation "+savedmemory.ResumeAnnotation) {
		t.Fatalf("without the memory: %v", err)
	}
	l.writeResume(theResume.Token(), string(vmi.UID))
	if _, err := l.start(vmi); status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "has ended") {
		t.Errorf("a second time: %v", err)
	}
	vmi.Annotations[savedmemory.ResumeAnnotation] = "{"
	if _, err := l.start(vmi); status.Code(err) != codes.InvalidArgument {
		t.Errorf("with an annotation that is none: %v", err)
	}
	if l.created() != "" {
		t.Errorf("created %s", l.created())
	}
	vmi.Annotations = nil
	if _, err := l.start(vmi); err != nil {
		t.Errorf("without the annotation: %v", err)
	}
	l.end(t)
}
