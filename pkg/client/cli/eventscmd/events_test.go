package eventscmd

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
)

func event(namespace, kind, name string, age time.Duration, change ...func(*corev1.Event)) corev1.Event {
	e := corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name + "." + kind},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name},
		Type:           corev1.EventTypeNormal, Reason: "Started", Message: "it has started",
		LastTimestamp: metav1.NewTime(time.Now().Add(-age)), Count: 1,
	}
	for _, do := range change {
		do(&e)
	}
	return e
}

// server has events of two VMs; VM web is there, ghost is not.
func server(t *testing.T, list ...corev1.Event) *clienttest.API {
	t.Helper()
	api := clienttest.New(t)
	events := &corev1.EventList{Items: list}
	api.Put("/api/v1/namespaces/team-a/events", events)
	api.Put("/api/v1/events", events)
	api.Put("/apis/kubevirt.io/v1/namespaces/team-a/virtualmachines/web", &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web"},
	})
	return api
}

// TestTable has the rows of events: kinds are kubectl's short ones, a message is one line, and repeats are counted.
func TestTable(t *testing.T) {
	api := server(t,
		event("team-a", "VirtualMachineInstance", "web", 3*time.Hour, func(e *corev1.Event) {
			e.Type, e.Reason, e.Count = corev1.EventTypeWarning, "Slow", 7
			e.Message = "two\nlines\x1b[31m and  spaces"
		}),
		event("team-a", "Pod", "virt-launcher-web-abcde", 2*time.Hour),
		event("team-a", "Pod", "nginx", time.Hour),
		event("team-a", "VirtualMachineInstanceMigration", "web-1", time.Hour),
	)
	for line, want := range map[string]string{
		"": `LAST SEEN TYPE REASON OBJECT MESSAGE
3h (x7) Warning Slow vmi/web two lines\u001b[31m and spaces
120m Normal Started pod/virt-launcher-web-abcde it has started
60m Normal Started vmim/web-1 it has started`,
		"--types=warning --no-headers": `3h (x7) Warning Slow vmi/web two lines\u001b[31m and spaces`,
		"-A --since=90m": `NAMESPACE LAST SEEN TYPE REASON OBJECT MESSAGE
team-a 60m Normal Started vmim/web-1 it has started`,
		"web web --since=90m --no-headers": "60m Normal Started vmim/web-1 it has started",
	} {
		out, errOut, err := clitest.Command{New: NewCmdEvents, Kubeconfig: api.Kubeconfig("team-a")}.Run(t,
			strings.Fields(line)...)
		var rows []string
		for row := range strings.Lines(out) {
			rows = append(rows, strings.Join(strings.Fields(row), " "))
		}
		if got := strings.Join(rows, "\n"); err != nil || errOut != "" || got != want {
			t.Errorf("events %s: %v, stderr %q, got\n%s\nwant\n%s", line, err, errOut, got, want)
		}
	}
}

// TestNothing has what is said when no event is there, and with which code it ends.
func TestNothing(t *testing.T) {
	for name, test := range map[string]struct {
		line   string
		put    map[string]any
		code   int
		stderr string
	}{
		"none":        {stderr: "No events found; a cluster forgets them after an hour.\n"},
		"none lately": {line: "--since=5m", stderr: "No events found within 5m0s.\n"},
		"none of a VM": {
			line: "web", stderr: "No events found; a cluster forgets them after an hour.\n",
		},
		"as an object":     {line: "-o name"},
		"no such VM":       {line: "ghost", code: cli.ExitNotFound},
		"one of two is no": {line: "web ghost", code: cli.ExitNotFound},
		"the VM may not be read": {
			line: "ghost", stderr: "No events found; a cluster forgets them after an hour.\n",
			put: map[string]any{
				"/apis/kubevirt.io/v1/namespaces/team-a/virtualmachines/ghost": clienttest.Forbidden("virtualmachines"),
			},
		},
		"events may not be read": {
			code: cli.ExitNotAllowed,
			put:  map[string]any{"/api/v1/namespaces/team-a/events": clienttest.Forbidden("events")},
		},
	} {
		api := server(t)
		for at, answer := range test.put {
			api.Put(at, answer)
		}
		out, errOut, err := clitest.Command{New: NewCmdEvents, Kubeconfig: api.Kubeconfig("team-a")}.Run(t,
			strings.Fields(test.line)...)
		if cli.ExitCode(err) != test.code || errOut != test.stderr || out != "" {
			t.Errorf("%s: exit code %d, %v, stdout %q, stderr %q", name, cli.ExitCode(err), err, out, errOut)
		}
	}
}

// Of several names the events are shown, and then that one of them is not there.
func TestOneIsAbsent(t *testing.T) {
	api := server(t, event("team-a", "VirtualMachine", "web", time.Hour))
	out, _, err := clitest.Command{New: NewCmdEvents, Kubeconfig: api.Kubeconfig("team-a")}.Run(t, "web", "ghost",
		"--watch", "--no-headers")
	if cli.ExitCode(err) != cli.ExitNotFound || !strings.Contains(out, "vm/web") ||
		!strings.Contains(err.Error(), "ghost") {
		t.Errorf("%q, %v", out, err)
	}
}

// Names of two namespaces are no selection.
func TestTwoNamespaces(t *testing.T) {
	_, _, err := clitest.Command{New: NewCmdEvents}.Run(t, "vm/web/a", "vm/db/b")
	if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "cannot be named together") {
		t.Errorf("%v", err)
	}
}
