package imagefile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"": "",
		"--size 10Gi --access-mode ReadWriteMany": "",
		"--size 0":          `--size: "0" is not a size; write one such as 10Gi`,
		"--size ten":        `--size: "ten" is not a size; write one such as 10Gi`,
		"--access-mode RWX": `--access-mode: "RWX" is not one of ` + strings.Join(accessModes, ", "),
	} {
		o, cmd := &Options{}, &cobra.Command{}
		o.AddFlags(cmd, Help{Claim: "it"})
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, err := range []error{o.ValidateAccessMode(), o.ValidateSize()} {
			if err != nil {
				got += err.Error()
			}
			if err != nil && cli.ExitCode(err) != cli.ExitUsage {
				t.Errorf("%s: exit code %d", args, cli.ExitCode(err))
			}
		}
		if got != want {
			t.Errorf("%s: %q", args, got)
		}
	}
}

// An image is said to be what its name says only where it cannot be found out, and the user does not say.
func TestFormat(t *testing.T) {
	for name, want := range map[string]imageformat.Format{
		"disk.vhd": imageformat.VHD, "DISK.VHD": imageformat.VHD, "disk.qcow2": "", "disk.vhd.gz": "", "disk": "",
	} {
		if got := formatOf(name, ""); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := formatOf("disk.vhd", imageformat.Raw); got != imageformat.Raw {
		t.Errorf("--format=raw: %q", got)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	disk := bytes.Repeat([]byte{7}, 1<<20)
	for name, test := range map[string]struct {
		path string
		code int
		want string
	}{
		"there is none": {filepath.Join(dir, "none"), cli.ExitUsage, "none"},
		"a directory":   {dir, cli.ExitUsage, "is not a regular file"},
		"empty":         {write("empty.img", nil), cli.ExitFailure, "its name: "},
	} {
		file, err := Open(test.path, "its name", "")
		if file != nil || cli.ExitCode(err) != test.code || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: exit code %d, %v", name, cli.ExitCode(err), err)
		}
	}
	file, err := Open(write("disk.img", disk), "its name", "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if file.Image.Size != 1<<20 || file.Image.Format != "" || file.Found.VirtualSize != 1<<20 {
		t.Errorf("%+v, found %+v", file.Image, file.Found)
	}
}

// Nobody watches a pipe, and nobody wants to with --quiet.
func TestBar(t *testing.T) {
	for _, test := range []struct{ tty, quiet, want bool }{{true, false, true}, {true, true, false}, {}} {
		f := cli.NewFactory("virtctl", &cli.IOStreams{ErrOut: &bytes.Buffer{}, ErrIsTTY: test.tty}, os.Getenv)
		if got := (&Options{Quiet: test.quiet}).watcher(f) != nil; got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}
