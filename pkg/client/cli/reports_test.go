package cli_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/report/nwfilter"
)

// columns is what a report prints with custom columns.
type columns struct {
	report runtime.Object
	spec   string
	want   string // lines
}

// TestCustomColumnsOfReports prints columns of every kind of report that the schemas name: a row for each thing of a
// report of many, whatever the key of their list, and one for a report about one thing, or where only it has them.
func TestCustomColumnsOfReports(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "web", Namespace: "shop"}
	many := &top.Report{Items: []top.Row{{Name: "web", CPU: 1500}, {Name: "db"}}}
	group := schema.FromAPIVersionAndKind(action.ReportVersion, "").GroupVersion()
	tried := map[string]bool{}
	for kind, tests := range map[string][]columns{
		"TopReport": {
			{many, "NAME:.name,CPU:.cpuMilli", "NAME CPU\nweb 1500\ndb 0"},
			{many, "NAMES:.items[*].name", "NAMES\nweb,db"},
			{many, "USED:.memoryUsedBytes", "USED\n<none>\n<none>"},
			{&top.Report{Items: []top.Row{}}, "NAME:.name", "NAME"},
		},
		"JournalReport": {
			{&journal.Report{Entries: []journal.Listed{{Undone: true}, {}}}, "UNDONE:.undone", "UNDONE\ntrue\n<none>"},
		},
		"DoctorReport": {
			{
				&doctor.Report{Status: "failed", Checks: []doctor.Check{{Name: "dns", Status: "ok"}}},
				"NAME:.name,STATUS:.status", "NAME STATUS\ndns ok",
			},
			{
				&doctor.Report{Status: "failed", Checks: []doctor.Check{{Name: "dns", Status: "ok"}}},
				"CHECKS:.checks[*].name,WORST:.status", "CHECKS WORST\ndns failed",
			},
			{&doctor.Report{Status: "failed", Checks: []doctor.Check{}}, "STATUS:.status", "STATUS\nfailed"},
		},
		"DiffReport": {
			{&diff.Report{Objects: []diff.Object{{Kind: "VirtualMachine", Name: "web"}}}, "NAME:.name", "NAME\nweb"},
		},
		"DashboardReport": {
			{
				&overview.Report{Context: "prod", Machines: []overview.Machine{{Name: "web"}}},
				"NAME:.name,STATUS:.status", "NAME STATUS\nweb",
			},
			{&overview.Report{Context: "prod", Machines: []overview.Machine{{Name: "web"}}}, "C:.context", "C\nprod"},
		},
		"LogVerbosityReport": {
			{
				&verbosity.Report{
					Components:      []verbosity.Level{{Name: "virt-api", Level: 2}},
					VirtualMachines: []verbosity.Level{{Name: "web", Level: 5}},
				}, "NAME:.name,LEVEL:.level", "NAME LEVEL\nvirt-api 2\nweb 5",
			},
		},
		"EvacuationReport": {
			{
				&evacuate.Report{Node: "node1", Guests: []evacuate.Guest{{Name: "web"}, {Name: "db"}}}, "NAME:.name",
				"NAME\nweb\ndb",
			},
			{&evacuate.Report{Node: "node1", Guests: []evacuate.Guest{{Name: "web"}}}, "NODE:.node", "NODE\nnode1"},
		},
		"PermittedDevices": {{&permitted.Report{PCI: []string{"a/b", "c/d"}}, "PCI:.pci[*]", "PCI\na/b,c/d"}},
		"Firewall": {{
			&firewall.Report{Interfaces: []nwfilter.Interface{{Name: "red", MAC: "02:00:00:00:00:01"}}},
			"MAC:.interfaces[*].mac", "MAC\n02:00:00:00:00:01",
		}},
		"PortForwardList": {
			{
				forward.NewSessionList([]*forward.Session{{ObjectMeta: meta, PID: 7}}), "ID:.metadata.name,PID:.pid",
				"ID PID\nweb 7",
			},
		},
		"PortForward":      {{&forward.Session{ObjectMeta: meta, PID: 7}, "PID:.pid", "PID\n7"}},
		"WhyReport":        {{&why.Report{Verdict: why.OK}, "VERDICT:.verdict", "VERDICT\nok"}},
		"DescribeReport":   {{&describe.Report{Why: &why.Report{Verdict: why.OK}}, "V:.why.verdict", "V\nok"}},
		"MigrationPlan":    {{&migrate.Plan{Name: "web"}, "NAME:.name", "NAME\nweb"}},
		"CredentialChange": {{&credentials.Change{User: "root"}, "USER:.user", "USER\nroot"}},
		"CopyReport":       {{&guest.CopyReport{ObjectMeta: meta}, "NAME:.metadata.name", "NAME\nweb"}},
		"ExecResult":       {{&guest.ExecResult{ObjectMeta: meta}, "NAME:.metadata.name", "NAME\nweb"}},
		"ExpectTranscript": {{&expect.Transcript{ExitCode: 3}, "CODE:.exitCode", "CODE\n3"}},
		"Screenshot":       {{&vnc.ScreenshotReport{Width: 640}, "W:.width", "W\n640"}},
		"VNCSession":       {{&vnc.SessionReport{Port: 5900}, "PORT:.port", "PORT\n5900"}},
		"BackupReport":     {{&backup.Report{ObjectMeta: meta, Bytes: 9}, "BYTES:.bytes", "BYTES\n9"}},
		"UploadReport":     {{&upload.Report{ObjectMeta: meta, Bytes: 9}, "BYTES:.bytes", "BYTES\n9"}},
		"ImageCatalogue": {{
			&images.Catalogue{Images: []images.Image{{Name: "a", Size: "1Gi"}, {Name: "b", Size: "2Gi"}}},
			"NAME:.images[*].name", "NAME\na,b",
		}},
		"PulledImage": {{&images.Pulled{ObjectMeta: meta, Image: "a/1"}, "IMAGE:.image", "IMAGE\na/1"}},
		"PulledImageList": {{
			&images.PulledList{Items: []images.Pulled{{ObjectMeta: meta, Image: "a/1"}}},
			"NAME:.metadata.name,IMAGE:.image", "NAME IMAGE\nweb a/1",
		}},
		"VolumeMoveReport": {{
			&volume.MoveReport{Name: "web", Volumes: []volume.MovedVolume{{Volume: "a"}, {Volume: "b"}}},
			"NAME:.name,VOLUME:.volumes[*].volume", "NAME VOLUME\nweb a,b",
		}},
		"USBRedirection": {{&usbredir.Report{Port: 5900}, "PORT:.port", "PORT\n5900"}},
	} {
		tried[kind] = true
		for _, test := range tests {
			test.report.GetObjectKind().SetGroupVersionKind(group.WithKind(kind))
			o := cli.NewOutput()
			o.Format = "custom-columns=" + test.spec
			var out bytes.Buffer
			err := o.Print(test.report, &out)
			var lines []string
			for line := range strings.Lines(out.String()) {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
			if got := strings.Join(lines, "\n"); err != nil || got != test.want {
				t.Errorf("%s, %s: %v, %q, want %q", kind, test.spec, err, got, test.want)
			}
		}
	}
	described, err := os.ReadDir("../../../docs/schemas")
	if err != nil || len(described) != len(tried) {
		t.Errorf("%d kinds were tried, and there are %d: %v", len(tried), len(described), err)
	}
	for _, file := range described {
		if kind := strings.TrimSuffix(file.Name(), ".json"); !tried[kind] {
			t.Errorf("%s was not tried", kind)
		}
	}
}

// TestNamesOfReports prints the object of each row, not the report's kind.
func TestNamesOfReports(t *testing.T) {
	o := cli.NewOutput()
	o.Format = "name"
	var out bytes.Buffer
	err := o.Print(&top.Report{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: top.Kind},
		Items:    []top.Row{{Name: "web"}, {Name: "db"}},
	}, &out)
	const want = "virtualmachineinstance.kubevirt.io/web\nvirtualmachineinstance.kubevirt.io/db\n"
	if err != nil || out.String() != want {
		t.Errorf("%v, %q", err, &out)
	}
}
