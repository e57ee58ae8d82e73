package editor

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		want string
	}{
		{nil, "vi"},
		{map[string]string{"EDITOR": "nano"}, "nano"},
		{map[string]string{"EDITOR": "nano", "VISUAL": "code --wait"}, "code --wait"},
		{map[string]string{"EDITOR": "nano", "KUBE_EDITOR": " emacs -nw "}, "emacs -nw"},
	} {
		if got := strings.Join(Command(func(name string) string { return test.env[name] }), " "); got != test.want {
			t.Errorf("%v: %q, want %q", test.env, got, test.want)
		}
	}
}

func TestEdit(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	script := filepath.Join(dir, "editor")
	text := "#!/bin/sh\nstat -c %a \"$2\" >&2\nsed -i \"$1\" \"$2\"\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	e := Editor{Command: []string{script, "s/a/b/"}, In: strings.NewReader(""), Out: &said, ErrOut: &said}
	got, err := e.Edit(t.Context(), "a: 1\n")
	if err != nil || got != "b: 1\n" || said.String() != "600\n" {
		t.Errorf("%q, %v, the editor said %q", got, err, &said)
	}
	e.Command = []string{"false"}
	if _, err := e.Edit(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "editor false: exit status 1") {
		t.Errorf("an editor that fails: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "virtctl-edit-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// An editor's command line may have quotes, as in kubectl.
func TestEditQuoted(t *testing.T) {
	command := Command(func(name string) string {
		return map[string]string{"EDITOR": `sed -i 's/a: 1/b: 2/;s/$/ #/'`}[name]
	})
	e := Editor{Command: command, In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}
	if got, err := e.Edit(t.Context(), "a: 1\n"); err != nil || got != "b: 2 #\n" {
		t.Errorf("%q, %v", got, err)
	}
	e.Command = Command(func(string) string { return `exit "3" #` })
	if _, err := e.Edit(t.Context(), "a"); err == nil ||
		!strings.Contains(err.Error(), `editor exit "3" #: exit status 3`) {
		t.Errorf("an editor that fails: %v", err)
	}
}

func TestUncommented(t *testing.T) {
	for text, want := range map[string]string{"": "", "a\n#b\n": "a\n#b\n", "#a\n# b\nc\n": "c\n", "# only": ""} {
		if got := Uncommented(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// What an editor leaves is bounded.
func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, make([]byte, maxText+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err == nil {
		t.Error("a text of any size is taken")
	}
}
