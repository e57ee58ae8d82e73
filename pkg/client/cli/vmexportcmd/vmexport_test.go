package vmexportcmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/export"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// Command lines that cannot work are refused before anything is done, with what to write instead.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"create x":                                           "what is to be exported?",
		"create x --vm a --pvc b":                            "one of them is exported at a time",
		"create X --vm a":                                    `"X" is not a name`,
		"create x --vm A":                                    `"A" is not a name`,
		"create x --vm a --ttl -1m":                          "is over already",
		"create x --vm a --labels a":                         `--labels: "a" is not KEY=VALUE`,
		"create x --vm a --annotations =b":                   `--annotations: "=b" is not KEY=VALUE`,
		"delete X":                                           `"X" is not a name`,
		"download x":                                         "name the file to write with --output",
		"download x -o f --keep-vme":                         "are for an export that is made",
		"download x -o f --ttl 1m":                           "are for an export that is made",
		"download x -o f --vm a --keep-vme --delete-vme":     "contradict each other",
		"download x -o f --format vmdk":                      `--format: "vmdk" is not one of gzip, raw, qcow2, ova`,
		"download x -o f --format ova --volume v":            "downloads all disks of the VM; leave out --volume",
		"download x -o f --format ova --pvc a":               "a claim has no VM to be described",
		"download x -o f --include-secret":                   "--include-secret goes with --manifest",
		"download x --manifest --volume v":                   "--manifest downloads no volume",
		"download x --manifest --pvc a":                      "a claim has no manifests",
		"download x --manifest --manifest-output-format xml": `"xml" is not one of yaml, json`,
		"download x -o f --port-forward --service-url h:1":   "two ways",
	} {
		cmd := NewCmdVMExport(cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" }))
		cmd.SetArgs(strings.Fields(line))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// Manifests are of use as long as the export is there and reached, which they do not say.
func TestNotes(t *testing.T) {
	made := &v1beta1.VirtualMachineExport{}
	made.Namespace, made.CreationTimestamp = "ns", metav1.Unix(0, 0)
	made.Spec.Source = export.Source{Kind: exports.KindVM, Name: "db"}.Reference()
	o := &DownloadOptions{Factory: cli.NewFactory("virtctl", cli.NoStreams(), nil), Name: "e"}
	got := strings.Join(o.notes(&export.Manifests{Export: made, Service: "virt-export-e.ns.svc"}), "\n")
	for _, want := range []string{
		"until 1970-01-01T02:00:00Z, or `virtctl vmexport delete e -n ns`; VM db must stay stopped",
		"virt-export-e.ns.svc, where the manifests read from, is a Service of this cluster",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	made.Spec.Source = export.Source{Kind: exports.KindSnapshot, Name: "s"}.Reference()
	if notes := o.notes(&export.Manifests{Export: made}); len(notes) != 1 || strings.Contains(notes[0], "stopped") {
		t.Errorf("of a snapshot, with an external address: %q", notes)
	}
	o.Delete = true
	if notes := o.notes(&export.Manifests{Export: made}); len(notes) > 0 {
		t.Errorf("of an export that is deleted: %q", notes)
	}
}

// A file has its name when all of it is there, with its holes; a download that fails leaves what was there before.
func TestTarget(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "disk.img")
	entries := func() string {
		t.Helper()
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range list {
			names = append(names, entry.Name())
		}
		return strings.Join(names, " ")
	}
	to, err := open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string, skip int64) {
		t.Helper()
		if _, err := to.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := to.Skip(skip); err != nil {
			t.Fatal(err)
		}
	}
	write("begun and cut", 100)
	if err := to.Begin(); err != nil {
		t.Fatal(err)
	}
	write("data", 5)
	if got := entries(); got != ".disk.img.part" {
		t.Errorf("meanwhile there is %s", got)
	}
	if err := to.finish(); err != nil {
		t.Fatal(err)
	}
	if err := to.discard(); err != nil {
		t.Errorf("after its end: %v", err)
	}
	data, err := os.ReadFile(path)
	if err != nil || string(data) != "data\x00\x00\x00\x00\x00" || entries() != "disk.img" {
		t.Errorf("%q, %s: %v", data, entries(), err)
	}
	if to, err = open(path, nil); err != nil {
		t.Fatal(err)
	}
	write("other", 0)
	if err := to.discard(); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, data) || entries() != "disk.img" {
		t.Errorf("after a download that failed: %q, %s: %v", again, entries(), err)
	}

	var stream bytes.Buffer
	if to, err = open("-", &stream); err != nil {
		t.Fatal(err)
	}
	if err := to.Begin(); err != nil {
		t.Fatal(err)
	}
	write("x", 2)
	if err := to.Begin(); err == nil || stream.String() != "x\x00\x00" {
		t.Errorf("%q is begun anew: %v", stream.String(), err)
	}
	none := filepath.Join(dir, "none")
	for wrong, want := range map[string]string{
		dir:                      dir + " is a directory; name a file in it",
		filepath.Join(none, "x"): "there is no directory " + none + " here; make it first: mkdir -p " + none,
		filepath.Join(path, "x"): path + " is not a directory; name another place",
	} {
		_, err := open(wrong, nil)
		if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
