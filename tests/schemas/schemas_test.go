package schemas

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/randfill"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/backup"
	"github.com/virtkit/virtkit/pkg/client/action/credentials"
	"github.com/virtkit/virtkit/pkg/client/action/describe"
	"github.com/virtkit/virtkit/pkg/client/action/diff"
	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
	"github.com/virtkit/virtkit/pkg/client/action/expect"
	"github.com/virtkit/virtkit/pkg/client/action/firewall"
	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/client/action/guest"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/client/action/overview"
	"github.com/virtkit/virtkit/pkg/client/action/permitted"
	"github.com/virtkit/virtkit/pkg/client/action/top"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/client/action/usbredir"
	"github.com/virtkit/virtkit/pkg/client/action/verbosity"
	"github.com/virtkit/virtkit/pkg/client/action/vnc"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/action/why"
)

// kinds are all reports. The generator finds them in the code; one that is missing here fails the test.
func kinds() map[string]runtime.Object {
	return map[string]runtime.Object{
		"BackupReport":       &backup.Report{},
		"CopyReport":         &guest.CopyReport{},
		"CredentialChange":   &credentials.Change{},
		"DashboardReport":    &overview.Report{},
		"DescribeReport":     &describe.Report{},
		"DiffReport":         &diff.Report{},
		"DoctorReport":       &doctor.Report{},
		"EvacuationReport":   &evacuate.Report{},
		"ExecResult":         &guest.ExecResult{},
		"ExpectTranscript":   &expect.Transcript{},
		"Firewall":           &firewall.Report{},
		"ImageCatalogue":     &images.Catalogue{},
		"JournalReport":      &journal.Report{},
		"LogVerbosityReport": &verbosity.Report{},
		"MigrationPlan":      &migrate.Plan{},
		"PermittedDevices":   &permitted.Report{},
		"PortForward":        &forward.Session{},
		"PortForwardList":    &forward.SessionList{},
		"PulledImage":        &images.Pulled{},
		"PulledImageList":    &images.PulledList{},
		"Screenshot":         &vnc.ScreenshotReport{},
		"TopReport":          &top.Report{},
		"UploadReport":       &upload.Report{},
		"USBRedirection":     &usbredir.Report{},
		"VNCSession":         &vnc.SessionReport{},
		"VolumeMoveReport":   &volume.MoveReport{},
		"WhyReport":          &why.Report{},
	}
}

func load(t *testing.T) Schemas {
	t.Helper()
	s, err := Load("../../docs/schemas")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// full is a report with something in every field.
func full(t *testing.T, kind string, object runtime.Object) []byte {
	t.Helper()
	kindOf := map[reflect.Type]string{}
	for kind, object := range kinds() {
		kindOf[reflect.TypeOf(object).Elem()] = kind
	}
	at := time.Unix(1767225600, 0).UTC()
	randfill.NewWithSeed(1).NilChance(0).NumElements(1, 2).Funcs(
		func(x *v1.VirtualMachine, _ randfill.Continue) { x.Name = "x" },
		func(x *v1.VirtualMachineInstance, _ randfill.Continue) { x.Name = "x" },
		func(x *v1.MigrationConfiguration, _ randfill.Continue) {},
		func(x *corev1.Event, _ randfill.Continue) { x.Name = "x" },
		func(x *metav1.ObjectMeta, _ randfill.Continue) { x.Name, x.CreationTimestamp = "x", metav1.NewTime(at) },
		func(x *metav1.Time, _ randfill.Continue) { *x = metav1.NewTime(at) },
		func(x *time.Time, _ randfill.Continue) { *x = at },
		func(x *any, _ randfill.Continue) { *x = "x" },
		// Reports may hold reports.
		func(x *why.Report, c randfill.Continue) { c.FillNoCustom(x); typeOf(x, "WhyReport") },
		func(x *images.Pulled, c randfill.Continue) { c.FillNoCustom(x); typeOf(x, "PulledImage") },
		func(x *forward.Session, c randfill.Continue) { c.FillNoCustom(x); typeOf(x, "PortForward") },
	).Fill(object)
	typeOf(object, kind)
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func typeOf(object runtime.Object, kind string) {
	object.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(action.ReportVersion, kind))
}

func TestEveryKindHasASchema(t *testing.T) {
	schemas := load(t)
	all := kinds()
	if got, want := slices.Sorted(maps.Keys(schemas)), slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Fatalf("docs/schemas has %q, the kinds are %q; `make generate` writes the schemas", got, want)
	}
	for kind, object := range all {
		t.Run(kind, func(t *testing.T) {
			text := full(t, kind, object)
			if n, err := schemas.Check(text); n != 1 || err != nil {
				t.Errorf("%d reports are as their schema says: %v\n%s", n, err, text)
			}
			for _, key := range keys(t, text) {
				renamed := strings.Replace(string(text), `"`+key+`":`, `"renamed":`, 1)
				if _, err := schemas.Check([]byte(renamed)); err == nil && key != "apiVersion" {
					t.Errorf("the schema accepts another name for %s", key)
				}
			}
		})
	}
}

// keys are those of a report itself.
func keys(t *testing.T, text []byte) []string {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(object))
}

func TestCheck(t *testing.T) {
	schemas := load(t)
	const screenshot = `{"apiVersion":"cli.virtkit.io/v1","kind":"Screenshot","metadata":{"name":"demo"},` +
		`"file":"a.png","width":1,"height":2,"bytes":3}`
	for name, test := range map[string]struct {
		text string
		want int
		err  string
	}{
		"one":          {screenshot, 1, ""},
		"lines":        {screenshot + "\n" + screenshot + "\n", 2, ""},
		"a list":       {`{"apiVersion":"v1","kind":"List","items":[` + screenshot + "]}", 1, ""},
		"no report":    {`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine"} 7 "x"`, 0, ""},
		"no JSON":      {"demo created", 0, ""},
		"cut":          {screenshot + screenshot[:30], 1, "unexpected EOF"},
		"another kind": {`{"apiVersion":"cli.virtkit.io/v1","kind":"Other"}`, 0, "Other has no schema"},
		"another type": {strings.Replace(screenshot, `"width":1`, `"width":"1"`, 1), 0, "width"},
		"one key more": {strings.Replace(screenshot, `"width":1`, `"width":1,"wide":1`, 1), 0, "wide"},
		"one key less": {strings.Replace(screenshot, `"width":1,`, "", 1), 0, "width"},
		"more in a list": {
			`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"cli.virtkit.io/v1","kind":"X"}]}`, 0, "X has no",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := schemas.Check([]byte(test.text))
			if n != test.want || (err == nil) != (test.err == "") ||
				err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %d and %v, want %d and %q", n, err, test.want, test.err)
			}
		})
	}
}

// The golden files of scripts are reports that scripts of users read as well.
func TestGoldenFiles(t *testing.T) {
	schemas := load(t)
	total := 0
	for _, pattern := range []string{"../script/testdata/*/*.txtar", "../e2e/testdata/script/*.txtar"} {
		scripts, err := filepath.Glob(pattern)
		if err != nil || len(scripts) == 0 {
			t.Fatalf("%s: %d scripts, %v", pattern, len(scripts), err)
		}
		for _, script := range scripts {
			archive, err := txtar.ParseFile(script)
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range archive.Files {
				n, err := schemas.Check(file.Data)
				if total += n; err != nil {
					t.Errorf("%s: %s: %v", script, file.Name, err)
				}
			}
		}
	}
	if total == 0 {
		t.Error("no script has a report")
	}
}

// TestEachSchemaStandsAlone compiles each file without the others, as a program does that was given one: nothing that a
// $ref names is in another file, or somewhere else.
func TestEachSchemaStandsAlone(t *testing.T) {
	files, err := filepath.Glob("../../docs/schemas/*.json")
	if err != nil || len(files) < len(kinds()) {
		t.Fatalf("%d schemas, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		compiler := jsonschema.NewCompiler()
		compiler.UseLoader(nowhere{})
		const id = "file:///schema.json"
		if err := compiler.AddResource(id, document); err != nil {
			t.Fatal(err)
		}
		if _, err := compiler.Compile(id); err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
}
