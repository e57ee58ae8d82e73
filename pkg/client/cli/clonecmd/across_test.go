package clonecmd

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

func vmPath(namespace, name string) string {
	return "/apis/kubevirt.io/v1/namespaces/" + namespace + "/virtualmachines/" + name
}

func clonesPath(namespace string) string {
	return "/apis/clone.kubevirt.io/v1beta1/namespaces/" + namespace + "/virtualmachineclones"
}

// server is an API server with VM and snapshot demo in team-a. A clone that is made in team-b is done at once.
type server struct {
	*clienttest.API
	t *testing.T

	mu   sync.Mutex
	made []clonev1beta1.VirtualMachineClone
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{API: clienttest.New(t), t: t}
	s.Put(vmPath("team-a", "demo"), &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "demo"},
		Spec:       v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}},
	})
	ready := true
	s.Put("/apis/snapshot.kubevirt.io/v1beta1/namespaces/team-a/virtualmachinesnapshots/demo",
		&snapshotv1beta1.VirtualMachineSnapshot{
			TypeMeta: metav1.TypeMeta{
				APIVersion: snapshotv1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineSnapshot",
			},
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "demo"},
			Status: &snapshotv1beta1.VirtualMachineSnapshotStatus{
				Phase: snapshotv1beta1.Succeeded, ReadyToUse: &ready,
				VirtualMachineSnapshotContentName: new("demo-content"),
			},
		})
	s.Put(clonesPath("team-b"), http.HandlerFunc(s.clones))
	return s
}

func (s *server) clones(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var answer any = &clonev1beta1.VirtualMachineCloneList{
		TypeMeta: metav1.TypeMeta{
			APIVersion: clonev1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineCloneList",
		},
		Items: s.made,
	}
	if r.Method == http.MethodPost {
		var object clonev1beta1.VirtualMachineClone
		if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
			s.t.Error(err)
		}
		done := object
		done.Status.Phase, done.Status.TargetName = clonev1beta1.Succeeded, &object.Spec.Target.Name
		s.made, answer = append(s.made, done), object
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}

// clone runs `virtctl clone` in a context whose namespace is team-a.
func (s *server) clone(line string) (string, error) {
	s.t.Helper()
	var out, errOut bytes.Buffer
	streams := &cli.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
	f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
	f.RandomName = func(n int) string { return strings.Repeat("r", n) }
	cmd := NewCmdClone(f)
	f.Flags.AddFlags(cmd.PersistentFlags())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(strings.Fields(line), "--kubeconfig", s.Kubeconfig("team-a")))
	err := cmd.ExecuteContext(s.t.Context())
	f.IO.Flush()
	if errOut.Len() > 0 {
		s.t.Errorf("clone %s: stderr %q", line, errOut.String())
	}
	return out.String(), err
}

// TestUnknownInterface refuses an address of an interface that the source does not have before anything is asked for.
// What a snapshot has may be hidden from the user.
func TestUnknownInterface(t *testing.T) {
	const content = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/team-a/virtualmachinesnapshotcontents/demo-content"
	taken := func(interfaces ...v1.Interface) *snapshotv1beta1.VirtualMachineSnapshotContent {
		vm := &snapshotv1beta1.VirtualMachine{
			Spec: v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}},
		}
		vm.Spec.Template.Spec.Domain.Devices.Interfaces = interfaces
		out := &snapshotv1beta1.VirtualMachineSnapshotContent{
			TypeMeta: metav1.TypeMeta{
				APIVersion: snapshotv1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineSnapshotContent",
			},
		}
		out.Spec.Source.VirtualMachine = vm
		return out
	}
	two := taken(v1.Interface{Name: "front"}, v1.Interface{Name: "back"})
	const mac, dry = "=02:00:00:00:00:17 ", "--dry-run=client -o jsonpath={.spec.newMacAddresses}"
	for _, test := range []struct {
		line    string
		content any
		want    string
	}{
		{
			"demo copy --new-mac net9" + mac, nil,
			`--new-mac: VM team-a/demo has no interface "net9"; it has default`,
		},
		{"demo copy --new-mac default" + mac + dry, nil, ""},
		{
			"snapshot/demo copy --new-mac default" + mac, two,
			`--new-mac: the VM of snapshot team-a/demo has no interface "default"; it has front, back`,
		},
		{"snapshot/demo copy --new-mac back" + mac + dry, two, ""},
		{
			"snapshot/demo copy --new-mac net9" + mac + dry,
			apierrors.NewForbidden(schema.GroupResource{Resource: "virtualmachinesnapshotcontents"}, "", nil), "",
		},
	} {
		s := newServer(t)
		if test.content != nil {
			s.Put(content, test.content)
		}
		out, err := s.clone(test.line)
		switch {
		case test.want == "" && (err != nil || !strings.Contains(out, "02:00")):
			t.Errorf("clone %s: %q, %v", test.line, out, err)
		case test.want != "" && (err == nil || err.Error() != test.want || cli.ExitCode(err) != cli.ExitUsage):
			t.Errorf("clone %s: %v, want %s", test.line, err, test.want)
		}
		if len(s.made) > 0 {
			t.Errorf("clone %s: made %+v", test.line, s.made)
		}
	}
}

// TestAcross makes the clone in the other namespace, with the namespace of the source in its annotation, and waits for
// it there. The VM of the name in the namespace of the source is in nobody's way.
func TestAcross(t *testing.T) {
	const created = "virtualmachineclone.clone.kubevirt.io/clone-rrrrr created\n"
	for line, test := range map[string]struct{ kind, out string }{
		"demo demo --target-namespace team-b":                    {"VirtualMachine", created},
		"snapshot/demo demo --target-namespace team-b -n team-a": {"VirtualMachineSnapshot", created},
		"demo demo --target-namespace team-b --wait": {"VirtualMachine", created +
			"virtualmachine.kubevirt.io/demo created in namespace team-b\n" +
			"virtualmachine.kubevirt.io/demo in namespace team-b is stopped: it is a copy of VM team-a/demo\n"},
		"demo demo --target-namespace team-b -o jsonpath={.metadata.namespace}": {"VirtualMachine", "team-b"},
	} {
		s := newServer(t)
		out, err := s.clone(line)
		if err != nil || out != test.out {
			t.Errorf("clone %s: %q, want %q; %v", line, out, test.out, err)
		}
		if len(s.made) != 1 {
			t.Errorf("clone %s: made %+v", line, s.made)
			continue
		}
		got := s.made[0]
		if got.Namespace != "team-b" || got.Annotations[clones.NamespaceAnnotation] != "team-a" ||
			len(got.Annotations) != 1 ||
			got.Spec.Source.Kind != test.kind || got.Spec.Source.Name != "demo" || got.Spec.Target.Name != "demo" {
			t.Errorf("clone %s: %+v", line, got)
		}
		if asked := s.Asked(vmPath("team-b", "demo")); len(asked) != 1 {
			t.Errorf("clone %s: looked %d times whether team-b/demo is there", line, len(asked))
		}
	}
}

// TestAcrossDryRun makes nothing with a client's dry run, and says what would be made.
func TestAcrossDryRun(t *testing.T) {
	s := newServer(t)
	out, err := s.clone(
		`demo --target-namespace team-b --dry-run=client -o jsonpath={.metadata.namespace}|{.metadata.annotations}`)
	if want := `team-b|{"virtkit.io/source-namespace":"team-a"}`; err != nil || out != want || len(s.made) > 0 {
		t.Errorf("%q, want %q; %v; made %v", out, want, err, s.made)
	}
}

// TestBeside makes an ordinary clone where the other namespace is that of the source.
func TestBeside(t *testing.T) {
	for _, line := range []string{
		"demo copy", "demo copy --target-namespace team-a", "demo copy -n team-a --target-namespace=",
	} {
		s := newServer(t)
		out, err := s.clone(line + ` --dry-run=client -o jsonpath={.metadata.namespace}|{.metadata.annotations}`)
		if err != nil || out != "team-a|" {
			t.Errorf("clone %s: %q, %v", line, out, err)
		}
	}
}

// TestAcrossRefused says which namespace it is about.
func TestAcrossRefused(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "virtualmachineclones/source"}, "", nil)
	for name, test := range map[string]struct {
		line   string
		change func(*server)
		want   string
		code   int
	}{
		"no name": {
			"demo --target-namespace Team_B", nil, `--target-namespace: "Team_B" is not a namespace: `, cli.ExitUsage,
		},
		"a path": {
			"demo --target-namespace team-b/demo", nil,
			`--target-namespace: "team-b/demo" is not a namespace: `, cli.ExitUsage,
		},
		"no source":   {"demo -n team-c --target-namespace team-b", nil, `look at VM team-c/demo: `, cli.ExitNotFound},
		"no snapshot": {"snapshot/other --target-namespace team-b", nil, `team-a/other`, cli.ExitNotFound},
		"not its own": {
			"demo demo --target-namespace team-a", nil, `VM team-a/demo exists already; give the copy another name`,
			cli.ExitFailure,
		},
		"taken": {
			"demo other --target-namespace team-b",
			func(s *server) { s.Put(vmPath("team-b", "other"), &v1.VirtualMachine{}) },
			`VM team-b/other exists already; give the copy another name`, cli.ExitFailure,
		},
		"not to look": {
			"demo other --target-namespace team-b", func(s *server) { s.Put(vmPath("team-b", "other"), forbidden) },
			`look whether VM team-b/other exists: `, cli.ExitNotAllowed,
		},
		"not the right": {
			"demo --target-namespace team-b", func(s *server) { s.Put(clonesPath("team-b"), forbidden) },
			`clone team-a/demo: `, cli.ExitNotAllowed,
		},
	} {
		s := newServer(t)
		if test.change != nil {
			test.change(s)
		}
		out, err := s.clone(test.line)
		if err == nil || !strings.Contains(err.Error(), test.want) || cli.ExitCode(err) != test.code {
			t.Errorf("%s: %v (code %d), want %s (code %d)", name, err, cli.ExitCode(err), test.want, test.code)
		}
		if out != "" || len(s.made) > 0 {
			t.Errorf("%s: %q, made %v", name, out, s.made)
		}
	}
}

// TestAcrossUnread leaves a source that the user may clone and not read to the server; beside it, it must be read.
func TestAcrossUnread(t *testing.T) {
	for line, made := range map[string]int{
		"demo copy --target-namespace team-b": 1, "snapshot/taken copy --target-namespace team-b": 1,
		"demo copy": 0, "snapshot/taken copy": 0,
	} {
		s := newServer(t)
		forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
		s.Put(vmPath("team-a", "demo"), forbidden)
		s.Put("/apis/snapshot.kubevirt.io/v1beta1/namespaces/team-a/virtualmachinesnapshots/taken", forbidden)
		_, err := s.clone(line)
		if len(s.made) != made || (err == nil) != (made > 0) || err != nil && cli.ExitCode(err) != cli.ExitNotAllowed {
			t.Errorf("clone %s: made %d, want %d; %v", line, len(s.made), made, err)
		}
	}
}

// TestPersistentState refuses, before anything is made, a copy that could not have the TPM's state of its source.
func TestPersistentState(t *testing.T) {
	vm := &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "demo"},
		Spec:       v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}},
	}
	vm.Spec.Template.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	const snapshots = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/team-a/virtualmachinesnapshot"
	content := &snapshotv1beta1.VirtualMachineSnapshotContent{
		TypeMeta: metav1.TypeMeta{
			APIVersion: snapshotv1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineSnapshotContent",
		},
	}
	content.Spec.Source.VirtualMachine = &snapshotv1beta1.VirtualMachine{ObjectMeta: vm.ObjectMeta, Spec: vm.Spec}
	for line, refused := range map[string]bool{
		"demo copy": true, "demo": true, "snapshot/demo copy": true,
		"demo copy --target-namespace team-b": true, "demo demo --target-namespace team-b": false,
	} {
		s := newServer(t)
		s.Put(vmPath("team-a", "demo"), vm)
		s.Put(snapshots+"contents/demo-content", content)
		_, err := s.clone(line)
		if refused != (err != nil && strings.Contains(err.Error(), "a copy must have that name")) ||
			refused != (len(s.made) == 0) {
			t.Errorf("clone %s: %v, made %d", line, err, len(s.made))
		}
	}
}
