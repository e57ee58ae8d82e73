package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/tests/hostile"
)

func TestPrinter(t *testing.T) {
	in := "ü日本 " + hostile.Text + "\r\nnext \xe2\x80"
	want := ""
	for size := 1; size <= len(in); size++ {
		var out bytes.Buffer
		p := newPrinter(&out, false)
		for part := range slices.Chunk([]byte(in), size) {
			if n, err := p.Write(part); n != len(part) || err != nil {
				t.Fatalf("%d %v", n, err)
			}
		}
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if found := hostile.Find(out.String(), false); found != "" {
			t.Errorf("in pieces of %d: %s", size, found)
		}
		if want == "" {
			want = out.String()
		}
		if out.String() != want {
			t.Errorf("in pieces of %d: %q, else %q", size, out.String(), want)
		}
	}
	if !strings.HasPrefix(want, `ü日本 \u001b[5;41m`) || !strings.HasSuffix(want, "\nnext \\xe2\\x80") {
		t.Errorf("%q", want)
	}
}

// full is a device without room from its nth byte on.
type full struct{ room int }

var errFull = errors.New("no space left on device")

func (f *full) Write(data []byte) (int, error) {
	if f.room -= len(data); f.room < 0 {
		return 0, errFull
	}
	return len(data), nil
}

// TestLostOutput: what could not be written is known at the end, whoever looked at the error.
func TestLostOutput(t *testing.T) {
	for text, lost := range map[string]error{"123\n": nil, "12345678\n": errFull, "1234567\xe2": errFull} {
		streams := (&IOStreams{Out: &full{room: 8}, ErrOut: &full{}}).printers()
		fmt.Fprint(streams.Out, text)
		fmt.Fprint(streams.ErrOut, "progress")
		if err := streams.Lost(); !errors.Is(err, lost) {
			t.Errorf("%q: %v, want %v", text, err, lost)
		}
	}
}

// TestOutputOfHostileObjects: formats for programs are the object as it is, but for a terminal; what people read never
// is.
func TestOutputOfHostileObjects(t *testing.T) {
	const said = "\x1b[5;41m\r\b\u202e\u2028" // not what YAML's own reader refuses, DEL and C1
	object := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Annotations: map[string]string{"a": said}},
	}
	for format, data := range map[string]bool{
		"json":                               true,
		"yaml":                               true,
		"jsonpath={.metadata.annotations.a}": true,
		"go-template={{.metadata.annotations.a}}":  true,
		"custom-columns=A:.metadata.annotations.a": false,
		"name": false,
	} {
		for _, terminal := range []bool{false, true} {
			var direct, out bytes.Buffer
			p := newPrinter(&out, terminal)
			for _, to := range []io.Writer{&direct, p} {
				o := &Output{Format: format, allowMissingKeys: true}
				if err := o.Print(object, to); err != nil {
					t.Fatal(err)
				}
			}
			if found := hostile.Find(out.String(), false); found != "" && (terminal || !data) {
				t.Errorf("%s, terminal %t: %s", format, terminal, found)
			}
			if data && !terminal && out.String() != direct.String() {
				t.Errorf("%s is changed on its way to a pipe: %q", format, out.String())
			}
		}
	}
}

// TestRawStreams holds who may write past the Printers: those who carry a guest's bytes, and who draw on the terminal.
func TestRawStreams(t *testing.T) {
	allowed := []string{
		"colour.go", "printer.go", "warnings.go", "while.go", // their text is printable, their sequences are their own
		"backupcmd/export.go",
		"completioncmd/completion.go", "consolecmd/outputs.go", "consolecmd/terminal.go", "cpcmd/cp.go",
		"dashboardcmd/dashboard.go", "editcmd/edit.go", "execcmd/exec.go", "expectcmd/expect.go",
		"guestfscmd/guestfs.go", "imagefile/imagefile.go", "installcmd/progress.go", "lifecyclecmd/wait.go",
		"logscmd/logs.go",
		"portforwardcmd/background.go",
		"portforwardcmd/run.go", "sshcmd/local.go", "sshcmd/scp.go", "sshcmd/ssh.go",
		"terminal/ask.go", "terminal/terminal.go", "topcmd/top.go", "vnccmd/screenshot.go", "vnccmd/terminal.go",
		"vmexportcmd/download.go",
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, word := range []string{"RawOut()", "RawErr()", "os.Stdout", "os.Stderr", "fmt.Print("} {
			if bytes.Contains(text, []byte(word)) && !slices.Contains(allowed, filepath.ToSlash(path)) &&
				path != "iostreams.go" && !strings.HasPrefix(filepath.ToSlash(path), "root/gen/") {
				t.Errorf("%s has %s: text goes to IO.Out and IO.ErrOut; add the file here if it "+
					"carries a guest's bytes", path, word)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
