package snapshotcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

const group = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/"

// server has objects by path; it answers a POST with what was sent, and a list with what is below its path.
type server struct {
	objects map[string]any
	asked   []string
	// state is where the journal is; empty is nowhere. url is that of a server that stays, empty for one for each run.
	state, url string
	// interrupt is called when the command begins to wait; nil does nothing.
	interrupt func()
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	if s.interrupt != nil && r.URL.Query().Get("fieldSelector") != "" {
		s.interrupt()
		<-r.Context().Done() // an answer might be faster than the interrupt
		return
	}
	switch object, ok := s.objects[r.URL.Path]; {
	case r.Method == http.MethodPost:
		_, _ = io.Copy(w, r.Body) // a client that has gone
	case ok:
		_ = json.NewEncoder(w).Encode(object) // a client that has gone
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(
			w,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"x not found","details":{"name":"x","kind":"things"}}`,
		)
	}
}

func (s *server) did(what string) bool {
	for _, asked := range s.asked {
		if strings.HasPrefix(asked, what) {
			return true
		}
	}
	return false
}

// run runs a command against the server.
func run(t *testing.T, s *server, command func(*cli.Factory) *cobra.Command, args ...string) (string, string, error) {
	t.Helper()
	url := s.url
	if url == "" {
		h := httptest.NewServer(s)
		defer h.Close()
		url = h.URL
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["x"] = &clientcmdapi.Cluster{Server: url}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "x"}
	config.CurrentContext = "x"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	f := cli.NewFactory("virtctl", &cli.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut},
		func(name string) string {
			return map[string]string{"KUBECONFIG": kubeconfig, "XDG_STATE_HOME": s.state}[name]
		})
	f.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	f.RandomName = func(int) string { return "abcde" }
	cmd := command(f)
	f.Flags.AddFlags(cmd.Flags())
	cmd.SetArgs(append([]string{"--kubeconfig", kubeconfig}, args...))
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if s.interrupt != nil {
		s.interrupt = cancel
	}
	err := cmd.ExecuteContext(ctx)
	return out.String(), errOut.String(), err
}

func machine(statuses ...v1.VolumeSnapshotStatus) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"},
	}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.Spec.Volumes = []v1.Volume{{
		Name: "disk", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "disk"}},
	}}
	vm.Status.VolumeSnapshotStatuses = statuses
	return vm
}

func taken(name string) *snapshotv1beta1.VirtualMachineSnapshot {
	s := snapshot.New("default", "demo", name, snapshot.Options{})
	s.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))
	s.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{
		Phase: snapshotv1beta1.Succeeded, ReadyToUse: new(true),
		SourceIndications: []snapshotv1beta1.SourceIndication{
			{Indication: snapshotv1beta1.VMSnapshotOnlineSnapshotIndication, Message: "it ran"},
		},
		SnapshotVolumes: &snapshotv1beta1.SnapshotVolumesLists{IncludedVolumes: []string{"disk"}},
	}
	return s
}

func cluster() *server {
	return &server{objects: map[string]any{
		"/apis/kubevirt.io/v1/namespaces/default/virtualmachines/demo": machine(v1.VolumeSnapshotStatus{
			Name: "disk", Enabled: true,
		}),
		group + "virtualmachinesnapshots/snap": taken("snap"),
		group + "virtualmachinesnapshots":      map[string]any{"items": []any{taken("snap")}},
		group + "virtualmachinerestores":       map[string]any{"items": []any{}},
	}}
}

func TestNameAll(t *testing.T) {
	for want, names := range map[string][]string{
		"snapshot s1 of namespace shop": {"s1"}, "snapshots s1, s2 of namespace shop": {"s1", "s2"},
	} {
		if got := nameAll(names, "shop"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCreate(t *testing.T) {
	s := cluster()
	out, _, err := run(t, s, NewCmdCreate, "demo")
	if want := "virtualmachinesnapshot.snapshot.kubevirt.io/demo-20260102-030405 created\n"; err != nil || out != want {
		t.Errorf("%q %v", out, err)
	}
	out, _, err = run(t, s, NewCmdCreate, "demo", "mine", "--deletion-policy", "Retain", "--failure-deadline", "2m",
		"-o", "jsonpath={.metadata.name} {.spec.deletionPolicy} {.spec.failureDeadline}")
	if err != nil || out != "mine Retain 2m0s" {
		t.Errorf("%q %v", out, err)
	}
}

// The memory of a guest that does not run is refused before anything is asked for.
func TestCreateWithMemory(t *testing.T) {
	s := cluster()
	vm := machine()
	vm.Status.PrintableStatus = v1.VirtualMachineStatusStopped
	s.objects["/apis/kubevirt.io/v1/namespaces/default/virtualmachines/demo"] = vm
	_, _, err := run(t, s, NewCmdCreate, "demo", "--memory")
	if err == nil || !strings.Contains(err.Error(), "the guest of default/demo does not run (Stopped)") ||
		s.did("POST") {
		t.Errorf("%v, asked %v", err, s.asked)
	}
	// The instance runs a moment before the VM says so.
	vm.Status.PrintableStatus = v1.VirtualMachineStatusStarting
	vmi := &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{Phase: v1.Scheduled}}
	vmi.Spec.Volumes = vm.Spec.Template.Spec.Volumes
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "disk", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}}
	s.objects["/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/demo"] = vmi
	if _, _, err := run(t, s, NewCmdCreate, "demo", "--memory"); err == nil ||
		!strings.Contains(err.Error(), "does not run (Scheduled)") {
		t.Errorf("%v", err)
	}
	vmi.Status.Phase = v1.Running
	out, _, err := run(t, s, NewCmdCreate, "demo", "--memory", "-o", `jsonpath={.metadata.annotations}`)
	if err != nil || !strings.Contains(out, `"virtkit.io/include-memory":"true"`) {
		t.Errorf("%q %v", out, err)
	}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "disk", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{}}},
	}
	vm.Spec.Template.Spec.Volumes, s.asked = vmi.Spec.Volumes, nil
	_, _, err = run(t, s, NewCmdCreate, "demo", "--memory")
	const lost = "its memory cannot be in the snapshot: disk disk is lost when the guest stops; put it on a claim"
	if err == nil || !strings.Contains(err.Error(), lost) || s.did("POST") {
		t.Errorf("%v, asked %v", err, s.asked)
	}
	stands := taken("snap")
	stands.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{
		Phase: snapshotv1beta1.InProgress,
		Conditions: []snapshotv1beta1.Condition{
			{Type: snapshotv1beta1.ConditionProgressing, Status: "False", Reason: "Source not locked: " + lost},
		},
	}
	s.objects[group+"virtualmachinesnapshots/snap"] = stands
	if out, _, err := run(t, s, NewCmdShow, "snap"); err != nil || !strings.Contains(out, "Source not locked: "+lost) {
		t.Errorf("%s, %v", out, err)
	}
}

func TestCreateRefuses(t *testing.T) {
	s := cluster()
	s.objects["/apis/kubevirt.io/v1/namespaces/default/virtualmachines/demo"] = machine(v1.VolumeSnapshotStatus{
		Name: "disk", Reason: "no class",
	})
	_, _, err := run(t, s, NewCmdCreate, "demo")
	if err == nil ||
		!strings.Contains(err.Error(),
			"volumes of VM default/demo that cannot be snapshotted: disk (no class); give --partial") || s.did("POST") {
		t.Errorf("%v, asked %v", err, s.asked)
	}
	_, said, err := run(t, s, NewCmdCreate, "demo", "--partial")
	if err != nil || !strings.Contains(said, "warning: ") || !s.did("POST "+group+"virtualmachinesnapshots") {
		t.Errorf("%v %q", err, said)
	}
	if _, _, err := run(t, s, NewCmdCreate, "ghost"); cli.ExitCode(err) != cli.ExitNotFound {
		t.Errorf("code %d of %v", cli.ExitCode(err), err)
	}
	for _, args := range [][]string{
		{},
		{"demo", "a/b"},
		{"demo", "--all"},
		{"--all"},
		{"vmi/demo"},
		{"demo", "--deletion-policy", "x"},
		{"demo", "--wait", "--dry-run"},
		{"demo", "--failure-deadline", "0"},
	} {
		if _, _, err := run(t, s, NewCmdCreate, args...); cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("%v: code %d of %v", args, cli.ExitCode(err), err)
		}
	}
}

func TestListAndShow(t *testing.T) {
	out, _, err := run(t, cluster(), NewCmdList, "demo", "-o", "wide")
	if err != nil || !strings.Contains(out, "snap") || !strings.Contains(out, "Online") ||
		!strings.Contains(out, "4m5s") {
		t.Errorf("%s %v", out, err)
	}
	if _, _, err := run(t, cluster(), NewCmdList, "other"); cli.ExitCode(err) != cli.ExitNotFound {
		t.Errorf("of a VM that is not there: code %d of %v", cli.ExitCode(err), err)
	}
	out, _, err = run(t, cluster(), NewCmdList, "-o", "name")
	if err != nil || out != "virtualmachinesnapshot.snapshot.kubevirt.io/snap\n" {
		t.Errorf("%q %v", out, err)
	}
	out, _, err = run(t, cluster(), NewCmdShow, "snapshot/snap")
	if err != nil || !strings.Contains(out, "Online: it ran") || !strings.Contains(out, "Succeeded") {
		t.Errorf("%s %v", out, err)
	}
}

// What a snapshot has by reference is named: of a Secret it has no copy.
func TestShowNamesReferences(t *testing.T) {
	s := cluster()
	snap := taken("snap")
	snap.Status.VirtualMachineSnapshotContentName = new("content")
	s.objects[group+"virtualmachinesnapshots/snap"] = snap
	content := &snapshotv1beta1.VirtualMachineSnapshotContent{}
	content.Spec.Source.VirtualMachine = &snapshotv1beta1.VirtualMachine{Spec: machine().Spec}
	s.objects[group+"virtualmachinesnapshotcontents/content"] = content
	if out, _, err := run(t, s, NewCmdShow, "snap"); err != nil || strings.Contains(out, "By reference") {
		t.Errorf("of none: %s %v", out, err)
	}
	seed := v1.Volume{Name: "seed"}
	seed.CloudInitNoCloud = &v1.CloudInitNoCloudSource{UserDataSecretRef: &corev1.LocalObjectReference{Name: "login"}}
	settings := v1.Volume{Name: "settings"}
	settings.ConfigMap = &v1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}}
	guest := &content.Spec.Source.VirtualMachine.Spec.Template.Spec
	guest.Volumes = append(guest.Volumes, seed, settings)
	out, _, err := run(t, s, NewCmdShow, "snap")
	if words := strings.Join(strings.Fields(out), " "); err != nil || !strings.Contains(words,
		"By reference: ConfigMap app, Secret login, which a restore takes as they are then") {
		t.Errorf("%s %v", out, err)
	}
}

func TestRestore(t *testing.T) {
	s := cluster()
	_, _, err := run(t, s, NewCmdRestore, "snap")
	if cli.ExitCode(err) != cli.ExitUsage || !strings.HasPrefix(err.Error(), "the spec of VM "+
		"default/demo and its volumes disk (claim disk) are replaced by those of snapshot snap of ") ||
		!strings.HasSuffix(err.Error(), "; add --yes to say that you mean it") || s.did("POST") {
		t.Errorf("nobody was asked: %v", err)
	}
	out, said, err := run(t, s, NewCmdRestore, "snap", "--yes")
	if err != nil || out != "virtualmachinerestore.snapshot.kubevirt.io/restore-snap-abcde created\n" || said != "" {
		t.Errorf("%q %q %v", out, said, err)
	}
	out, said, err = run(t, s, NewCmdRestore, "snap", "--target", "copy", "-o", "jsonpath={.spec.target.name}")
	if err != nil || out != "copy" || said != "note: there is no VM default/copy; the restore makes it, and it is off "+
		"until it is started\n" {
		t.Errorf("%q %q %v", out, said, err)
	}
	s.asked = nil
	if _, _, err = run(t, s, NewCmdRestore, "snap", "--target", "copy", "--keep"); err == nil ||
		!strings.Contains(err.Error(), "there is no VM default/copy yet") || s.did("POST") {
		t.Errorf("it keeps nothing: %v", err)
	}
	s.objects["/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/demo"] = &v1.VirtualMachineInstance{
		Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running},
	}
	if _, _, err := run(t, s, NewCmdRestore, "snap", "--yes"); err == nil ||
		!strings.Contains(err.Error(), "virtctl wait demo --for=stopped") {
		t.Errorf("a VM that is being stopped: %v", err)
	}
	vm := s.objects["/apis/kubevirt.io/v1/namespaces/default/virtualmachines/demo"].(*v1.VirtualMachine)
	vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
	vm.UID = "this"
	other := vm.DeepCopy()
	other.Name, other.UID = "other", "another"
	s.objects["/apis/kubevirt.io/v1/namespaces/default/virtualmachines/other"] = other
	s.objects[group+"virtualmachinesnapshots/snap"].(*snapshotv1beta1.VirtualMachineSnapshot).Status.SourceUID = new(
		types.UID("this"),
	)
	s.asked = nil
	for _, flags := range [][]string{{"--yes"}, {"--yes", "--dry-run"}, nil} {
		_, _, err := run(t, s, NewCmdRestore, append(flags, "snap", "--target", "other")...)
		var refused *snapshot.OtherVMError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "virtctl delete other -n default") ||
			s.did("POST") {
			t.Errorf("another VM that exists: %v", err)
		}
	}
	if _, _, err := run(t, s, NewCmdRestore, "snap", "--yes"); err == nil ||
		!strings.Contains(err.Error(), "virtctl stop demo") {
		t.Errorf("a VM that runs: %v", err)
	}
}

// A restore in place names the claims that it deletes, asks also where there is no VM, and is refused for a claim that
// another VM uses.
func TestRestoreInPlace(t *testing.T) {
	s := cluster()
	snap := taken("snap")
	snap.Status.VirtualMachineSnapshotContentName = new("content")
	s.objects[group+"virtualmachinesnapshots/snap"] = snap
	content := &snapshotv1beta1.VirtualMachineSnapshotContent{}
	content.Spec.Source.VirtualMachine = &snapshotv1beta1.VirtualMachine{Spec: machine().Spec}
	content.Spec.VolumeBackups = []snapshotv1beta1.VolumeBackup{{
		VolumeName:            "disk",
		PersistentVolumeClaim: snapshotv1beta1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "before"}},
	}}
	const machines = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
	s.objects[group+"virtualmachinesnapshotcontents/content"] = content
	s.objects["/api/v1/namespaces/default/persistentvolumeclaims/before"] = &corev1.PersistentVolumeClaim{}
	beta := machine()
	beta.Name, beta.Spec.Template.Spec.Volumes[0].DataVolume.Name = "beta", "before"
	s.objects[machines] = map[string]any{"items": []any{machine()}}
	s.objects[strings.TrimSuffix(machines, "s")+"instances"] = map[string]any{"items": []any{}}
	s.objects["/api/v1/namespaces/default/pods"] = map[string]any{"items": []any{}}

	flags := []string{"snap", "--volume-restore-policy", "InPlace"}
	_, _, err := run(t, s, NewCmdRestore, flags...)
	if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "its volumes disk (claim disk) are") ||
		!strings.Contains(err.Error(), " Deleted, and made anew under their names: claims before; "+
			"VM demo does not have before now") || s.did("POST") {
		t.Errorf("nobody was asked: %v", err)
	}
	if _, _, err := run(t, s, NewCmdRestore, append(flags, "--yes")...); err != nil || !s.did("POST") {
		t.Errorf("a claim that nobody uses: %v", err)
	}
	s.asked = nil
	_, _, err = run(t, s, NewCmdRestore, append(flags, "--target", "gone")...)
	if cli.ExitCode(err) != cli.ExitUsage || !strings.HasPrefix(err.Error(), "the VM default/gone is made of snapshot "+
		"snap. Deleted, and made anew under their names: claims before") || s.did("POST") {
		t.Errorf("nobody was asked where there is no VM: %v", err)
	}
	s.objects[machines] = map[string]any{"items": []any{machine(), beta}}
	for _, more := range []string{"--yes", "--dry-run=server", "--target=gone"} {
		_, _, err := run(t, s, NewCmdRestore, append(flags, more)...)
		if err == nil || !strings.Contains(err.Error(), "PVC default/before is used by VM beta, and "+
			"volumeRestorePolicy InPlace would delete it") || s.did("POST") {
			t.Errorf("%s, another VM's claim: %v", more, err)
		}
	}
}

// A restore that keeps what it replaces is undone by another, and undo says which claims are not used then.
func TestUndo(t *testing.T) {
	s := cluster()
	h := httptest.NewServer(s)
	defer h.Close()
	s.url, s.state = h.URL, t.TempDir()
	out, _, err := run(t, s, NewCmdRestore, "snap", "--yes", "-o", "jsonpath={.metadata.annotations}")
	if err != nil || out != "" {
		t.Errorf("%q %v", out, err)
	}
	if _, _, err := run(t, s, lifecyclecmd.NewCmdUndo); err == nil ||
		!strings.Contains(err.Error(), "restore with --keep") {
		t.Errorf("nothing was kept: %v", err)
	}
	if _, _, err := run(t, s, NewCmdRestore, "snap", "--yes",
		"--keep", "--volume-restore-policy", "InPlace"); cli.ExitCode(err) != cli.ExitUsage {
		t.Errorf("kept in place: %v", err)
	}
	out, _, err = run(t, s, NewCmdRestore, "snap", "--yes", "--keep", "-o", "jsonpath={.metadata.annotations}")
	if err != nil || out != `{"restore.virtkit.io/keep-replaced":"true"}` {
		t.Errorf("%q %v", out, err)
	}
	waits := snapshot.NewRestore("default", "restore-snap-abcde", "snap", "demo", snapshot.RestoreOptions{})
	s.objects[group+"virtualmachinerestores/restore-snap-abcde"] = waits
	if _, _, err := run(t, s, lifecyclecmd.NewCmdUndo); err == nil ||
		!strings.Contains(err.Error(), "restore restore-snap-abcde is still under way (Pending); wait until") {
		t.Errorf("under way: %v", err)
	}
	delete(s.objects, group+"virtualmachinerestores/restore-snap-abcde")
	restored := machine()
	restored.Annotations = map[string]string{"restore.kubevirt.io/lastRestoreUID": "other"}
	s.objects["/apis/kubevirt.io/v1/namespaces/default/virtualmachines/demo"] = restored
	if _, _, err := run(t, s, lifecyclecmd.NewCmdUndo); err == nil ||
		!strings.Contains(err.Error(), "its spec is not that of restore restore-snap-abcde") {
		t.Errorf("another restore: %v", err)
	}
	restored.Annotations["restore.kubevirt.io/lastRestoreUID"] = "restore-snap-abcde-uid"
	done := snapshot.NewRestore("default", "restore-snap-abcde", "snap", "demo", snapshot.RestoreOptions{})
	done.Status = &snapshotv1beta1.VirtualMachineRestoreStatus{
		Complete: new(true), Restores: []snapshotv1beta1.VolumeRestore{{PersistentVolumeClaimName: "restore-1-disk"}},
	}
	s.objects[group+"virtualmachinerestores/restore-snap-abcde"] = done
	undone := snapshot.NewUndo("undo-abcde-restore-snap-abcde", done)
	undone.Status = &snapshotv1beta1.VirtualMachineRestoreStatus{Complete: new(true)}
	s.objects[group+"virtualmachinerestores"] = map[string]any{"items": []any{undone}}
	out, errOut, err := run(t, s, lifecyclecmd.NewCmdUndo, "--wait")
	want := "virtualmachinerestore.snapshot.kubevirt.io/undo-abcde-restore-snap-abcde created, " +
		"which undoes restore-snap-abcde\n" +
		"VM demo has again what it had before restore-snap-abcde, which is undone\n"
	if err != nil || out != want ||
		errOut != "note: VM default/demo does not use these claims after that, which stay: restore-1-disk\n" {
		t.Errorf("%q, %q, %v", out, errOut, err)
	}
	if out, _, err := run(t, s, lifecyclecmd.NewCmdUndo, "--list"); err != nil ||
		strings.Contains(out, "restore-keep") || !strings.Contains(out, "done") {
		t.Errorf("%s, %v", out, err)
	}
}

func TestDelete(t *testing.T) {
	s := cluster()
	if _, _, err := run(t, s, NewCmdDelete, "snap"); cli.ExitCode(err) != cli.ExitUsage || s.did("DELETE") ||
		err.Error() != "this deletes snapshot snap of namespace default; add --yes to say that you mean it" {
		t.Errorf("nobody was asked: %v", err)
	}
	out, _, err := run(t, s, NewCmdDelete, "--vm", "demo", "--yes")
	if err != nil || out != "virtualmachinesnapshot.snapshot.kubevirt.io \"snap\" deleted\n" ||
		!s.did("DELETE "+group+"virtualmachinesnapshots/snap") {
		t.Errorf("%q %v", out, err)
	}
	if _, warned, _ := run(t, s, NewCmdDelete, "snap", "--yes"); warned != "" {
		t.Errorf("%q", warned)
	}
	// Who goes on from its memory is named.
	snap := s.objects[group+"virtualmachinesnapshots/snap"].(*snapshotv1beta1.VirtualMachineSnapshot)
	snap.Status.SourceIndications = append(snap.Status.SourceIndications,
		snapshotv1beta1.SourceIndication{Indication: vmsnapshots.WithMemory})
	snap.Status.VirtualMachineSnapshotContentName = new("content")
	s.objects[group+"virtualmachinesnapshotcontents/content"] = map[string]any{"metadata": map[string]any{"uid": "c"}}
	vm := s.objects["/apis/kubevirt.io/v1/namespaces/default/virtualmachines/demo"].(*v1.VirtualMachine)
	vm.Annotations = map[string]string{
		savedmemory.ResumeAnnotation: `{"claim":"` + savedmemory.Volume("c") + `","restore":"r"}`,
	}
	s.objects["/apis/kubevirt.io/v1/namespaces/default/virtualmachines"] = map[string]any{"items": []any{vm}}
	_, warned, err := run(t, s, NewCmdDelete, "snap")
	if cli.ExitCode(err) != cli.ExitUsage ||
		!strings.Contains(warned, "note: VM demo goes on from the memory of snapshot snap") ||
		!strings.Contains(warned, "kubectl annotate vm demo virtkit.io/resume-memory- -n default") {
		t.Errorf("%q %v", warned, err)
	}
	if _, _, err := run(t, s, NewCmdDelete, "ghost", "--yes"); cli.ExitCode(err) != cli.ExitNotFound {
		t.Errorf("%v", err)
	}
}

// What a clone has made for itself is deleted by its name only, and a list marks it.
func TestSnapshotOfAClone(t *testing.T) {
	for name, change := range map[string]func(*snapshotv1beta1.VirtualMachineSnapshot){
		"shop/copy": func(s *snapshotv1beta1.VirtualMachineSnapshot) {
			s.Labels = map[string]string{clones.UIDLabel: "1-2"}
			s.Annotations = map[string]string{clones.CloneAnnotation: "shop/copy"}
		},
		"copy": func(s *snapshotv1beta1.VirtualMachineSnapshot) {
			s.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: clones.Group + "/v1beta1", Kind: "VirtualMachineClone", Name: "copy",
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, own := cluster(), taken("tmp")
			change(own)
			s.objects[group+"virtualmachinesnapshots/tmp"] = own
			s.objects[group+"virtualmachinesnapshots"] = map[string]any{"items": []any{taken("snap"), own}}
			out, _, err := run(t, s, NewCmdList)
			if err != nil || strings.Count(out, "demo (of clone "+name+")") != 1 {
				t.Errorf("%s %v", out, err)
			}
			for _, chosen := range [][]string{{"--vm", "demo"}, {"--all"}, {"-l", "a=b"}} {
				if _, _, err := run(t, s, NewCmdDelete, append(chosen, "--yes")...); err != nil ||
					s.did("DELETE "+group+"virtualmachinesnapshots/tmp") {
					t.Errorf("%v deletes it: %v", chosen, err)
				}
			}
			if _, _, err := run(t, s, NewCmdDelete, "tmp", "--yes"); err != nil ||
				!s.did("DELETE "+group+"virtualmachinesnapshots/tmp") {
				t.Errorf("by its name: %v", err)
			}
		})
	}
}

// Who interrupts --wait is told what was created and goes on.
func TestInterrupted(t *testing.T) {
	for want, command := range map[string]func(*server) (string, string, error){
		"interrupted: snapshot snap2 was created, and goes on; `virtctl why snapshot/snap2 -n " +
			"default` says how far it is\n": func(s *server) (string, string, error) {
			return run(t, s, NewCmdCreate, "demo", "snap2", "--wait")
		},
		"interrupted: restore restore-snap-abcde was created, and goes on; " +
			"`virtctl why restore/restore-snap-abcde -n default` says how far it is\n": func(s *server,
		) (string, string, error) {
			return run(t, s, NewCmdRestore, "snap", "--yes", "--wait")
		},
	} {
		s := cluster()
		s.interrupt = func() {}
		_, errOut, err := command(s)
		if !errors.Is(err, context.Canceled) || errOut != want {
			t.Errorf("%v, said %q, want %q", err, errOut, want)
		}
	}
}

// TestReplacesSaysThatTheVMStaysOff has a VM that runs stopped for its restore, and stay so.
func TestReplacesSaysThatTheVMStaysOff(t *testing.T) {
	const says = " Its guest is stopped first, and the VM stays off until it is started."
	for _, runs := range []bool{false, true} {
		plan := &snapshot.Plan{
			Snapshot: &snapshotv1beta1.VirtualMachineSnapshot{}, Target: "vm", Exists: true, Runs: runs,
		}
		if text := replaces("ns", plan); strings.Contains(text, says) != runs {
			t.Errorf("of a VM that runs, %t, it says %q", runs, text)
		}
	}
}
