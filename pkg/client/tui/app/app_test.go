package app

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/action/diff"
	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/report/progress"
	"github.com/virtkit/virtkit/pkg/report/stats"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

var update = flag.Bool("update", false, "write the golden frames anew")

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fake does what pages ask for, and remembers it.
type fake struct {
	done      []string
	calls     int // of Do
	err       error
	forbidden string
	doctor    *doctor.Report
	mu        sync.Mutex
	sent      []byte // what was typed at a console
	lose      bool   // an x ends the console
	hang      bool   // nothing answers
	nothing   bool   // there is nothing of anything
	moves     bool   // what guests have on claims was there at their start, with limits
	copying   bool   // it is being copied to other claims, too
	leaving   bool   // what was plugged in is unplugged, and the guest has not let go of it
	keyless   bool   // the user has no SSH key
	onClaims  bool   // all disks are on claims of the template's that can be snapshotted
	shown     []string
	ending    string           // a claim that is being deleted
	plan      *evacuate.Report // of an evacuation; nil is one of three guests
	withDisks *evacuate.Report // the same with disks; nil is plan
	// held is closed when a transfer moves, which then goes on until it is cancelled; nil has it end.
	held chan struct{}
}

// wait is how a call begins: it does not answer at all where nothing does.
func (f *fake) wait() error {
	if f.hang {
		select {}
	}
	return f.err
}

func (f *fake) Do(_ context.Context, verb lifecycle.Verb, targets ...lifecycle.Target) error {
	f.calls++
	for _, t := range targets {
		text := string(verb) + " " + meant(t)
		if t.WithDisks {
			text += " with its disks"
		}
		if t.Migration != "" {
			text += " of migration " + string(t.Migration)
		}
		f.done = append(f.done, text)
	}
	return f.err
}

func (f *fake) Why(context.Context, string, string) (*why.Report, error) {
	if err := f.wait(); err != nil || f.nothing {
		return &why.Report{}, err
	}
	return &why.Report{
		Verdict: "broken", Summary: "the node has no room",
		Chain: []why.Link{
			{Layer: "vm", Object: "vm/web", State: "ok", Message: "run strategy Always"},
			{Layer: "pod", Object: "pod/virt-launcher-web-x", State: "broken", Message: "unschedulable"},
		},
		Causes: []why.Cause{
			{
				Object: "pod/virt-launcher-web-x", State: "broken", Message: "no node has 64Gi of memory free",
				Fixes: []string{"spec.template.spec.domain.memory.guest"},
			},
		},
	}, f.err
}

func (f *fake) WhySet(_ context.Context, s *store.Set) (*why.Report, error) {
	return f.Why(context.Background(), s.Namespace, s.Name)
}

func (f *fake) Scale(_ context.Context, s *store.Set, replicas int32) error {
	f.done = append(f.done,
		fmt.Sprintf("scale %s %s/%s from %d to %d", s.Short(), s.Namespace, s.Name, s.Desired, replicas))
	return f.err
}

func (f *fake) DeleteSet(_ context.Context, s *store.Set) error {
	f.done = append(f.done, fmt.Sprintf("delete %s %s/%s", s.Short(), s.Namespace, s.Name))
	return f.err
}

func (f *fake) Doctor(context.Context) *doctor.Report {
	if f.wait() != nil {
		return &doctor.Report{
			Checks: []doctor.Check{{Area: "server", Name: "api", Status: "failed", Message: f.err.Error()}},
		}
	}
	return f.doctor
}

func (f *fake) Stats(context.Context, string) (stats.List, error) { return stats.List{}, f.err }

func (f *fake) Object(_ context.Context, kind, namespace, name string) (string, error) {
	f.mu.Lock()
	f.shown = append(f.shown, kind+" "+namespace+"/"+name)
	f.mu.Unlock()
	if err := f.wait(); err != nil || f.nothing {
		return "", err
	}
	return "kind: VirtualMachine\nspec:\n  running: true\nstatus:\n  ready: true\n", f.err
}

func (f *fake) Cordon(_ context.Context, node string, on bool) error {
	f.done = append(f.done, fmt.Sprintf("cordon %s %t", node, on))
	return f.err
}

func (f *fake) Machine(_ context.Context, key store.Key, _ bool) (*page.Details, error) {
	if err := f.wait(); err != nil {
		return nil, err
	}
	if f.nothing {
		return &page.Details{}, nil
	}
	d := details(key)
	if key.Name == "off" {
		d.VMI = nil
	}
	if f.onClaims {
		inSnapshots(d)
	}
	if f.moves {
		settle(d)
	}
	if f.copying {
		exchange(d)
	}
	if f.leaving {
		d.VMI.Spec.Volumes = d.VMI.Spec.Volumes[:0]
		d.VM.Spec.Template.Spec.Volumes = d.VM.Spec.Template.Spec.Volumes[:0]
		for i := range d.VMI.Status.VolumeStatus {
			s := &d.VMI.Status.VolumeStatus[i]
			s.Phase, s.Reason, s.Message = v1.HotplugVolumeDetaching, hotplug.ReasonDetachFailed, "the guest holds it"
		}
	}
	return d, nil
}

func (f *fake) Guest(context.Context, store.Key) (*v1.VirtualMachineInstanceGuestAgentInfo, error) {
	return &v1.VirtualMachineInstanceGuestAgentInfo{
		GAVersion: "9.1.0", Hostname: "web", Timezone: "UTC, 0",
		OS:       v1.VirtualMachineInstanceGuestOSInfo{PrettyName: "Debian GNU/Linux 13", KernelRelease: "6.12.0"},
		UserList: []v1.VirtualMachineInstanceGuestOSUser{{UserName: "root"}, {UserName: "me", Domain: "home"}},
		FSInfo: v1.VirtualMachineInstanceFileSystemInfo{Filesystems: []v1.VirtualMachineInstanceFileSystem{
			{DiskName: "vda1", MountPoint: "/", FileSystemType: "ext4", UsedBytes: 3 << 30, TotalBytes: 10 << 30},
			{DiskName: "vdb", MountPoint: "/srv", FileSystemType: "xfs", UsedBytes: 99, TotalBytes: 100},
		}},
	}, f.err
}

func (f *fake) Screenshot(context.Context, store.Key) ([]byte, error) {
	picture := image.NewGray(image.Rect(0, 0, 64, 40))
	for i := range picture.Pix {
		picture.Pix[i] = byte(i % 64 * 4)
	}
	var out bytes.Buffer
	if err := png.Encode(&out, picture); err != nil {
		return nil, err
	}
	return out.Bytes(), f.err
}

func (f *fake) Tail(_ context.Context, _ store.Key, _ int64, w io.Writer) error {
	if err := f.wait(); err != nil {
		return err
	}
	_, err := io.WriteString(w, "booting\r\n 10%\r 100%\n\x1b[1mDebian\x1b[0m GNU/Linux 13 web ttyS0\n\nweb login: ")
	return errors.Join(err, f.err)
}

// Console has a guest that says something, and answers in capitals.
func (f *fake) Console(_ context.Context, _ store.Key, ends page.ConsoleEnds) error {
	if err := f.wait(); err != nil {
		return err
	}
	ends.Connected()
	if _, err := io.WriteString(ends.Out,
		"\x1b[32m[  OK  ]\x1b[0m Started getty on ttyS0.\r\n\r\n\x1b]0;title\aDebian GNU/Linux 13 web "+
			"ttyS0\r\n\r\nweb login: "); err != nil {
		return err
	}
	buf := make([]byte, 64)
	for {
		n, err := ends.In.Read(buf)
		if err != nil {
			return nil //nolint:nilerr // it was left
		}
		f.mu.Lock()
		f.sent = append(f.sent, buf[:n]...)
		f.mu.Unlock()
		if _, err := ends.Out.Write(bytes.ToUpper(buf[:n])); err != nil {
			return err
		}
		if f.lose && bytes.ContainsRune(buf[:n], 'x') {
			ends.Lost(errors.New("the connection was cut"))
		}
	}
}

func (f *fake) EvacuationPlan(_ context.Context, node string, withDisks bool) (*evacuate.Report, error) {
	if err := f.wait(); err != nil || f.nothing {
		return &evacuate.Report{Node: node}, err
	}
	if f.withDisks != nil && withDisks {
		return f.withDisks, nil
	}
	if f.plan != nil {
		return f.plan, nil
	}
	return &evacuate.Report{Node: node, Planned: true, Guests: []evacuate.Guest{
		{Namespace: "prod", Name: "web", Outcome: evacuate.Moves, Target: "node2"},
		{
			Namespace: "prod", Name: "old", Outcome: evacuate.Restarts,
			Reason: "it is shut down, since its eviction strategy is None",
		},
		{
			Namespace: "prod", Name: "db", Outcome: evacuate.Stays,
			Reason: "it cannot be migrated: PVC data is not shared",
		},
	}}, f.err
}

func (f *fake) Evacuate(_ context.Context, plan *evacuate.Report) error {
	f.done = append(f.done, "evacuate "+plan.Node)
	return f.err
}

func (f *fake) Choices(context.Context, string) page.Choices {
	return page.Choices{
		Namespaces:    []string{"default", "prod", "test"},
		Instancetypes: []string{"u1.small", "u1.medium", "virtualmachineinstancetype/own"},
		Preferences:   []string{"fedora"}, Claims: []string{"data"},
	}
}

func (f *fake) Create(_ context.Context, namespace string, vm *v1.VirtualMachine) error {
	f.done = append(f.done, "create "+namespace+"/"+vm.Name)
	return f.err
}

func (f *fake) Claims(context.Context, string) ([]volume.Claim, bool, error) {
	if err := f.wait(); err != nil || f.nothing {
		return nil, true, err
	}
	found := []volume.Claim{
		{Name: "data", Size: "2Gi", Class: "local-path", Modes: "RWO", Status: "Bound", UsedBy: []string{"web"}},
		{
			Name: "installer.iso", Size: "4Gi", Class: "shared", Modes: "ROX", Status: "Bound",
			UsedBy: []string{"db", "vmi/probe"},
		},
		{Name: "scratch", Size: "10Gi", Class: "local-path", Modes: "RWO", Status: "Pending"},
		{Name: "scratch-shared", Size: "100Gi", Class: "shared", Modes: "RWO,RWX", Status: "Bound"},
	}
	for i := range found {
		if found[i].Name == f.ending {
			found[i].Status = claims.Terminating
		}
	}
	return found, true, nil
}

// meant names the machine that is meant; one whose UID is not handed on is nobody's.
func meant(m lifecycle.Target) string {
	if m.UID == "" {
		return "any of name " + m.Namespace + "/" + m.Name
	}
	return m.Namespace + "/" + m.Name
}

func (f *fake) Plug(_ context.Context, m lifecycle.Target, o volume.Options) error {
	f.done = append(f.done, fmt.Sprintf("plug %s %+v", meant(m), o))
	return f.err
}

func (f *fake) Unplug(_ context.Context, m lifecycle.Target, o volume.Options) error {
	f.done = append(f.done, fmt.Sprintf("unplug %s of %s, instance %t", o.Volume, meant(m), o.Instance))
	return f.err
}

func (f *fake) Resize(_ context.Context, m lifecycle.Target, name string, size resource.Quantity) error {
	f.done = append(f.done, fmt.Sprintf("resize %s of %s to %s", name, meant(m), &size))
	return f.err
}

func (f *fake) Move(_ context.Context, m lifecycle.Target, volumes []string, class string) error {
	f.done = append(f.done, fmt.Sprintf("move %q of %s to %s", volumes, meant(m), class))
	return f.err
}

func (f *fake) CancelMove(_ context.Context, m lifecycle.Target) error {
	f.done = append(f.done, "cancel the move of "+meant(m))
	return f.err
}

func (f *fake) TakeSnapshot(_ context.Context, m lifecycle.Target, name string, o snapshot.Options) error {
	deadline := ""
	if o.Deadline != nil {
		deadline = o.Deadline.Duration.String()
	}
	if o.Memory {
		name += " with memory"
	}
	f.done = append(f.done,
		strings.TrimSpace(fmt.Sprintf("snapshot %s of %s %s %s", name, meant(m), deadline, o.Policy)))
	return f.err
}

func (f *fake) RestorePlan(_ context.Context, key store.Key, target string) (*snapshot.Plan, error) {
	if err := f.wait(); err != nil {
		return nil, err
	}
	inPlace := &snapshot.InPlace{Deleted: []string{"web-root", "web-data"}, Foreign: []string{"web-data"}}
	if target == "web-3" {
		inPlace.Trouble = "PVC prod/web-data is used by VM db"
	}
	return &snapshot.Plan{
		Claims: map[string]string{"data": "restore-u5-data", "root": "web-root"}, InPlace: inPlace,
		Target: target, Exists: target == "web" || target == "off", Runs: target == "web", Resumes: target == "web",
		Volumes: []string{"data", "root"}, Loses: []string{"scratch"},
	}, nil
}

func (f *fake) Restore(_ context.Context, key store.Key, o snapshot.RestoreOptions) (string, error) {
	f.done = append(f.done, fmt.Sprintf("restore %s %+v", key, o))
	return "restore-" + key.Name, f.err
}

func (f *fake) Clone(_ context.Context, s *store.Snapshot, o clone.Options) (string, error) {
	f.done = append(f.done,
		fmt.Sprintf("clone %s/%s of %s, snapshot %t", s.Namespace, o.Target, o.Source, o.FromSnapshot))
	return "clone-x", f.err
}

func (f *fake) DeleteSnapshot(_ context.Context, s *store.Snapshot) error {
	f.done = append(f.done, fmt.Sprintf("delete %s %s", s.Short(), s.Object()))
	return f.err
}

func (f *fake) WhySnapshot(_ context.Context, s *store.Snapshot) (*why.Report, error) {
	return f.Why(context.Background(), s.Namespace, s.Name)
}

func (f *fake) Undoable(context.Context) (*page.Undoable, error) {
	if f.err != nil {
		return nil, f.err
	}
	return &page.Undoable{ID: "17", Verb: lifecycle.Stop, Machines: "prod/web", At: now.Add(-time.Minute)}, nil
}

func (f *fake) Undo(_ context.Context, id string) error {
	f.done = append(f.done, "undo "+id)
	return f.err
}

func (f *fake) Verdict(_ context.Context, _, after string) (*diff.Object, error) {
	switch {
	case strings.Contains(after, "wrong"):
		return nil, errors.New("spec.wrong: unknown field")
	case strings.Contains(after, "outdated"):
		return nil, &diff.ChangedError{Kind: "VirtualMachine", Namespace: "prod", Name: "web"}
	}
	return &diff.Object{
		Kind: "VirtualMachine", Namespace: "prod", Name: "web", Exists: true, Running: true,
		Changes: []diff.Change{
			{
				Path: "spec.template.spec.domain.cpu.cores", Effect: "restart", Note: "the guest has 2 until then",
				Before: 2, After: 4,
			},
			{Path: "metadata.labels.app", Effect: "live", After: "web"},
		},
	}, nil
}

func (f *fake) Apply(_ context.Context, _, after string) error {
	f.done = append(f.done, "apply "+after)
	return f.err
}

func (f *fake) ForbiddenTo(string, string, string) string { return f.forbidden }

func (f *fake) Forbidden(string, lifecycle.Verb) string { return f.forbidden }

// details are the objects of a machine with two disks and two interfaces.
func details(key store.Key) *page.Details {
	size := resource.MustParse("2Gi")
	spec := v1.VirtualMachineInstanceSpec{
		Domain: v1.DomainSpec{
			Devices: v1.Devices{
				Disks: []v1.Disk{
					{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
					{
						Name: "data", Serial: "data",
						DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}},
					},
				},
			},
		},
		Volumes: []v1.Volume{
			{
				Name: "root",
				VolumeSource: v1.VolumeSource{
					ContainerDisk: &v1.ContainerDiskSource{Image: "quay.io/containerdisks/debian:13"},
				},
			},
			{
				Name: "data",
				VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
						PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
						Hotpluggable:                      true,
					},
				},
			},
		},
	}
	at := metav1.NewTime(now.Add(-time.Minute))
	return &page.Details{
		VM: &v1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Spec: v1.VirtualMachineSpec{
				Instancetype: &v1.InstancetypeMatcher{Name: "u1.small"},
				Template:     &v1.VirtualMachineInstanceTemplateSpec{Spec: spec},
			},
			Status: v1.VirtualMachineStatus{
				VolumeSnapshotStatuses: snapshotStatuses(key),
				Conditions: []v1.VirtualMachineCondition{
					{Type: v1.VirtualMachineReady, Status: corev1.ConditionTrue, LastTransitionTime: at},
					{
						Type: v1.VirtualMachineRestartRequired, Status: corev1.ConditionTrue, LastTransitionTime: at,
						Message: "spec.template.spec.domain.cpu.cores takes effect with the next start",
					},
				},
			},
		},
		VMI: &v1.VirtualMachineInstance{
			Spec: spec,
			Status: v1.VirtualMachineInstanceStatus{
				Phase: v1.Running, Machine: &v1.Machine{Type: "pc-q35-9.2"},
				Conditions: []v1.VirtualMachineInstanceCondition{
					{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue, LastTransitionTime: at},
					{
						Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse,
						Reason: "DisksNotLiveMigratable", Message: "cannot migrate VMI: PVC data is not shared",
						LastTransitionTime: at,
					},
				},
				VolumeStatus: []v1.VolumeStatus{
					{Name: "root", Target: "vda", Size: 2 << 30},
					{
						Name: "data", Target: "sda", Phase: v1.VolumeReady, HotplugVolume: &v1.HotplugVolumeStatus{},
						PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
							Capacity: corev1.ResourceList{corev1.ResourceStorage: size},
						},
					},
				},
				Interfaces: []v1.VirtualMachineInstanceNetworkInterface{
					{
						Name: "default", InterfaceName: "eth0", MAC: "02:00:00:00:00:01",
						IPs: []string{"10.0.0.1", "fd00::1"},
					},
					{Name: "lan", InterfaceName: "eth1", MAC: "02:00:00:00:00:02", IP: "192.168.1.5"},
				},
			},
		},
	}
}

// world has four machines, two nodes, a migration and some events.
func world(f *fake) *page.World {
	ready := v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}
	movable := v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue,
	}
	agent := v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue,
	}
	guest := resource.MustParse("1Gi")
	vm := func(namespace, name string, status v1.VirtualMachinePrintableStatus) v1.VirtualMachine {
		strategy := v1.RunStrategyAlways
		return v1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, UID: types.UID("vm-" + name),
				CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
				Labels:            map[string]string{"app": name},
			},
			Spec: v1.VirtualMachineSpec{RunStrategy: &strategy, Template: &v1.VirtualMachineInstanceTemplateSpec{
				Spec: v1.VirtualMachineInstanceSpec{
					Domain: v1.DomainSpec{Memory: &v1.Memory{Guest: &guest}, CPU: &v1.CPU{Cores: 2}},
				},
			}},
			Status: v1.VirtualMachineStatus{PrintableStatus: status, Ready: status == v1.VirtualMachineStatusRunning},
		}
	}
	vmi := func(of v1.VirtualMachine, node, ip, os string, conditions ...v1.VirtualMachineInstanceCondition,
	) v1.VirtualMachineInstance {
		return v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: of.Namespace, Name: of.Name, CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(&of, v1.VirtualMachineGroupVersionKind),
				},
			},
			Spec: of.Spec.Template.Spec,
			Status: v1.VirtualMachineInstanceStatus{
				Phase: v1.Running, NodeName: node, Conditions: conditions,
				GuestOSInfo: v1.VirtualMachineInstanceGuestOSInfo{PrettyName: os},
				Interfaces:  []v1.VirtualMachineInstanceNetworkInterface{{IP: ip, IPs: []string{ip}}},
			},
		}
	}
	owned := true
	web, db, off := vm("prod", "web", v1.VirtualMachineStatusRunning), vm("prod", "db", v1.VirtualMachineStatusRunning),
		vm("test", "off", v1.VirtualMachineStatusStopped)
	web.Status.Conditions = []v1.VirtualMachineCondition{
		{Type: v1.VirtualMachineRestartRequired, Status: corev1.ConditionTrue},
	}
	pool := &store.Set{
		Namespace: "prod", Name: "sites", Resource: store.Pools, Kind: "VirtualMachinePool", UID: "sites-uid",
		Created: now.Add(-2 * time.Hour), Labels: map[string]string{"team": "web"},
		Desired: 4, Current: 2, Ready: 1, Failure: "FailedCreate: exceeded quota: vms",
		Spec: [][2]string{{"Selector", "app=sites"}, {"Each", "2 CPUs, 1Gi"}, {"Update", "proactive"}},
		Conditions: []store.Condition{
			{
				Type: "ReplicaFailure", Status: corev1.ConditionTrue, Since: now.Add(-time.Minute),
				Reason: "FailedCreate", Message: "exceeded quota: vms",
			},
		},
	}
	web.OwnerReferences = []metav1.OwnerReference{{Kind: pool.Kind, Name: pool.Name, UID: pool.UID, Controller: &owned}}
	off.OwnerReferences = web.OwnerReferences
	web.Spec.Template.Spec.Volumes = []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{
		DataVolume: &v1.DataVolumeSource{Name: "web-disk"},
	}}}
	cjk := vm("test", "名前-a-very-long-name-of-a-machine-that-somebody-once-made", v1.VirtualMachineStatusUnschedulable)
	w := &page.World{
		Scope: page.Scope{Context: "kind"}, Program: "virtctl", Theme: theme.New(theme.Options{NoColour: true}),
		Now:      func() time.Time { return now },
		Machines: store.NewMachines(func() {}), Nodes: store.NewTable[store.Node](func() {}),
		Migrations: store.NewTable[store.Migration](func() {}),
		Events:     store.NewTable[store.Event](func() {}), Usage: page.NewUsage(), Actions: f,
	}
	w.Machines.Load([]v1.VirtualMachine{web, db, off, cjk}, []v1.VirtualMachineInstance{
		vmi(web, "node1", "10.0.0.1", "Debian GNU/Linux 13", ready, movable, agent),
		// A guest may call itself anything.
		vmi(db, "node2", "10.0.0.2", "\x1b[31mRed\x1b[0m \u202eHat\a", ready),
	})
	w.Nodes.Load(map[store.Key]*store.Node{
		{Name: "node1"}: {
			Name: "node1", Created: now.Add(-24 * time.Hour), Ready: true, Schedulable: true,
			Heartbeat: now.Add(-20 * time.Second), CPU: resource.MustParse("4"), Memory: resource.MustParse("16Gi"),
			Kubelet: "v1.37.1", Devices: 1000,
		},
		{Name: "node2"}: {
			Name: "node2", Created: now.Add(-24 * time.Hour), Ready: false, Schedulable: true, Cordoned: true,
			Heartbeat: now.Add(-time.Hour), CPU: resource.MustParse("4"), Memory: resource.MustParse("16Gi"),
			Kubelet: "v1.37.1", Taints: []string{"a=b:NoSchedule"},
		},
	})
	w.Migrations.Load(map[store.Key]*store.Migration{
		{Namespace: "prod", Name: "m1"}: {
			Namespace: "prod", Name: "m1", Machine: "web", Phase: v1.MigrationRunning, From: "node1", To: "node2",
			Created: now.Add(-time.Minute), Started: now.Add(-30 * time.Second),
			Progress: &progress.Progress{
				Mode: "PreCopy", TotalBytes: 1 << 30, ProcessedBytes: 700 << 20, RemainingBytes: 324 << 20,
				BandwidthBytesPerSecond: 60 << 20, DirtyBytesPerSecond: 6 << 20, Iteration: 1,
			},
		},
		{Namespace: "prod", Name: "m0"}: {
			Namespace: "prod", Name: "m0", Machine: "db", Phase: v1.MigrationFailed, From: "node2", To: "node1",
			Created: now.Add(-time.Hour), Failure: "the target's launcher ended",
		},
	})
	sizes := store.NewTable[store.Sizing](func() {})
	for _, s := range []*store.Sizing{
		{Name: "u1.small", Resource: store.ClusterInstancetypes, CPUs: 1, Memory: guest, Created: now.Add(-time.Hour)},
		{
			Name: "gpu", Namespace: "prod", Resource: store.Instancetypes, CPUs: 16, Memory: resource.MustParse("64Gi"),
			Created: now.Add(-time.Hour), Details: []string{"2 GPUs", "dedicated CPUs"},
		},
		{
			Name: "fedora", Resource: store.ClusterPreferences, Preference: true, Created: now.Add(-time.Hour),
			Details: []string{"disks virtio", "EFI"},
		},
	} {
		rows := map[store.Key]*store.Sizing{s.Key(): s}
		for _, r := range sizes.Rows() {
			rows[r.Key()] = r
		}
		sizes.Load(rows)
	}
	w.Sizings = append(w.Sizings, sizes)
	replicaSet := &store.Set{
		Namespace: "test", Name: "workers", Resource: store.ReplicaSets, Kind: "VirtualMachineInstanceReplicaSet",
		UID: "workers-uid", Created: now.Add(-time.Minute), Desired: 30, Current: 30, Ready: 30, Paused: true,
	}
	w.Sets = []*store.Table[store.Set]{store.NewTable[store.Set](func() {}), store.NewTable[store.Set](func() {})}
	w.Sets[0].Load(map[store.Key]*store.Set{pool.Key(): pool})
	w.Sets[1].Load(map[store.Key]*store.Set{replicaSet.Key(): replicaSet})
	w.Snapshots, w.Images = savedWorld(), imageTable()
	w.Transfers = page.NewTransfers(w.Now, func() {})
	w.Events.Load(map[store.Key]*store.Event{
		{Namespace: "prod", Name: "e1"}: {
			Namespace: "prod", Name: "e1", Kind: "VirtualMachineInstance", Object: "web", Type: "Normal",
			Reason: "Started", Message: "VirtualMachineInstance started.", Last: now.Add(-time.Minute), Count: 1,
		},
		{Namespace: "prod", Name: "e3"}: {
			Namespace: "prod", Name: "e3", Kind: "Pod", Object: "virt-launcher-web-abcde", Type: "Normal",
			Reason: "Scheduled", Message: "Successfully assigned prod/virt-launcher-web-abcde to node1",
			Last: now.Add(-3 * time.Minute), Count: 1,
		},
		{Namespace: "prod", Name: "e4"}: {
			Namespace: "prod", Name: "e4", Kind: "Pod", Object: "virt-launcher-web-abcde", Type: "Warning",
			Reason: "FailedMount", Message: "the volume is not there", First: now.Add(-150 * time.Second),
			Last: now.Add(-90 * time.Second), Count: 4,
		},
		{Namespace: "prod", Name: "e5"}: {
			Namespace: "prod", Name: "e5", Kind: "VirtualMachineInstanceMigration", Object: "m1", Type: "Normal",
			Reason: "SuccessfulCreate", Message: "Created migration target pod", Last: now.Add(-30 * time.Second),
			Count: 1,
		},
		{Namespace: "prod", Name: "e6"}: {
			Namespace: "prod", Name: "e6", Kind: "Pod", Object: "virt-launcher-web-two-abcde", Type: "Normal",
			Reason: "Scheduled", Message: "of another machine", Last: now, Count: 1,
		},
		{Namespace: "test", Name: "e2"}: {
			Namespace: "test", Name: "e2", Kind: "Pod", Object: "virt-launcher-x-abcde", Type: "Warning",
			Reason: "FailedScheduling", Message: "0/2 nodes are available:\n2 Insufficient memory.",
			Last: now.Add(-time.Second), Count: 12,
		},
	})
	return w
}

// drive sends messages and does what they ask for, as the program would; clocks do not run.
func drive(t *testing.T, a *App, msgs ...tea.Msg) {
	t.Helper()
	for _, msg := range msgs {
		_, cmd := a.Update(msg)
		run(t, a, cmd, 0)
	}
}

func run(t *testing.T, a *App, cmd tea.Cmd, depth int) {
	t.Helper()
	if cmd == nil || depth > 9 {
		return
	}
	answer := make(chan tea.Msg, 1)
	go func() { answer <- cmd() }()
	// What has not answered after 20 ticks is a clock, or a cursor that blinks. A ticker drops those for which this
	// process had no processor, and the command had none either.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 20 {
		select {
		case msg := <-answer:
			switch m := msg.(type) {
			case nil, tea.QuitMsg:
			case tea.BatchMsg:
				for _, c := range m {
					run(t, a, c, depth+1)
				}
			default:
				_, next := a.Update(m)
				run(t, a, next, depth+1)
			}
			return
		case <-tick.C:
		}
	}
}

// press sends keys: names such as "enter", or the letters of a word after a quote.
func press(t *testing.T, a *App, keys ...string) {
	t.Helper()
	codes := map[string]rune{
		"enter":     tea.KeyEnter,
		"esc":       tea.KeyEscape,
		"down":      tea.KeyDown,
		"up":        tea.KeyUp,
		"space":     ' ',
		"backspace": tea.KeyBackspace,
		"tab":       tea.KeyTab,
	}
	for _, k := range keys {
		a.screen() // what is drawn decides how far one can scroll
		if word, ok := strings.CutPrefix(k, "'"); ok {
			for _, r := range word {
				drive(t, a, tea.KeyPressMsg{Code: r, Text: string(r)})
			}
			continue
		}
		code, special := codes[k]
		msg := tea.KeyPressMsg{Code: code}
		switch rest, ctrl := strings.CutPrefix(k, "ctrl+"); {
		case ctrl:
			msg = tea.KeyPressMsg{Code: rune(rest[0]), Mod: tea.ModCtrl}
		case k == "space":
			msg.Text = " "
		case !special:
			msg = tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		}
		drive(t, a, msg)
	}
}

func golden(t *testing.T, name string, a *App) {
	t.Helper()
	got := frame(t, name, a)
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if changed := cmp.Diff(string(want), got); changed != "" {
		t.Errorf("%s, -want +got\n%s", name, changed)
	}
}

// busy has guests use something for a minute.
func busy(a *App) {
	for i := range 31 {
		sample := stats.Guest{
			Namespace: "prod", Name: "web", Time: now.Add(time.Duration(i) * 2 * time.Second), VCPUs: 2,
		}
		sample.CPUTime = uint64(i*i) * uint64(time.Second) / 16
		sample.Memory = stats.Memory{Guest: 1 << 30, Used: uint64(i) << 24, Resident: 1 << 30}
		sample.Interfaces = []stats.Interface{{Received: uint64(i%7) * uint64(i) << 20, Sent: uint64(i) << 16}}
		sample.Disks = []stats.Disk{{Read: uint64(i*i) << 18}}
		a.used(usageRead{a.World, stats.List{Items: []stats.Guest{sample}}, nil})
	}
}

func sized(name string, size tea.WindowSizeMsg) string {
	return fmt.Sprintf("%s-%dx%d", name, size.Width, size.Height)
}

var sizes = []tea.WindowSizeMsg{{Width: 80, Height: 24}, {Width: 120, Height: 40}, {Width: 200, Height: 60}}

// TestFrames draws each page at each size.
func TestFrames(t *testing.T) {
	t.Parallel()
	f := &fake{doctor: &doctor.Report{Checks: []doctor.Check{
		{Area: "client", Name: "version", Status: "ok", Message: "virtctl v1, linux/amd64"},
		{
			Area: "node", Object: "node1", Name: "kvm", Status: "warning", Message: "no KVM: guests are emulated",
			Fixes: []string{"enable virtualisation in the firmware"},
		},
	}}}
	for name, keys := range map[string][]string{
		"machines":      nil,
		"machine":       {"down", "enter"},
		"machine-end":   {"down", "enter", "G"},
		"machine-busy":  {"down", "enter", "g"},
		"machine-off":   {"down", "down", "enter", "g"},
		"nodes":         {"2"},
		"node":          {"2", "enter"},
		"migrations":    {"3"},
		"instancetypes": {"6"},
		"pools":         {"7"},
		"pool":          {"7", "enter"},
		"pool-machines": {"7", "i"},
		"scale":         {"7", "=", "backspace", "'x"},
		"scale-asked":   {"7", "down", "=", "backspace", "backspace", "'2", "enter"},
		"delete-pool":   {"7", "ctrl+d", "'si"},
		"evacuation":    {"2", "E"},
		"form":          {"+"},
		"form-typed": {
			"+", "'new", "tab", "tab", "'u1.", "tab", "tab", "tab", "tab", "tab", "'quay.io/containerdisks/fedora:42",
			"down", "down", "down", "down", "down", "'me", "down", "'secret",
		},
		"form-diskless": {"+", "'new", "ctrl+s"},
		"form-wrong":    {"+", "'new", "up", "'no key", "up"},
		"form-import": {
			"+", "'new", "down", "down", "down", "down", "down", "down", "down", "down", "'type:h", "tab",
			"'https://host/disk.qcow2",
		},
		"evacuate-asked": {"2", "E", "E"},
		"plug":           {"down", "P"},
		"plug-found":     {"down", "P", "'scr", "down", "enter", "right", "enter", "enter", "right"},
		"plug-asked":     {"down", "P", "'iso", "enter", "down", "right", "down", "down", "'installer", "ctrl+s"},
		"unplug":         {"down", "U"},
		"unplug-asked":   {"down", "U", "enter"},
		"resize":         {"down", "Z"},
		"move":           {"down", "z"},
		"move-asked":     {"down", "z", "'fast", "ctrl+s"},
		"resize-asked":   {"down", "Z", "down", "'20Gi", "ctrl+s"},
		"snapshots":      {"8", "down", "down", "down"},
		"snapshots-of":   {"down", "T", "down"},
		"snapshot":       {"down", "T", "down", "enter"},
		"snapshot-busy":  {"8", "/", "'hourly", "enter", "enter"},
		"take":           {"down", "t"},
		"take-asked":     {"down", "t", "down", "'90s", "down", "right", "down", "right", "ctrl+s"},
		"restore":        {"down", "T", "down", "b"},
		"restore-asked":  {"down", "T", "down", "b", "down", "right", "down", "right", "ctrl+s", "'we"},
		"clone":          {"down", "T", "down", "D", "'web-copy"},
		"delete-saved":   {"down", "T", "down", "ctrl+d", "'be"},
		"images":         {"9", "down", "down"},
		"image":          {"9", "down", "down", "enter"},
		"image-vm":       {"9", "down", "down", "+", "'new"},
		"image-vm-asked": {"9", "down", "down", "+", "'new", "ctrl+s"},
		"pull-asked":     {"9", "f"},
		"delete-image":   {"9", "down", "down", "ctrl+d", "'de"},
		"export":         {"down", "x"},
		"export-asked":   {"down", "x", "ctrl+s"},
		"transfers":      {"down", "x", "ctrl+s", "y"},
		"transfer":       {"down", "x", "ctrl+s", "y", "enter"},
		"events":         {"4"},
		"health":         {"5"},
		"why":            {"w"},
		"yaml":           {"y"},
		"copy":           {"down", "Y"},
		"help":           {"?"},
		"filtered":       {"/", "'prod", "enter"},
		"nothing":        {"/", "'nosuch", "enter"},
		"marked":         {"*", "X"},
		"delete":         {"down", "ctrl+d", "'we"},
		"log":            {"down", "p", "y", "L"},
		"pages-filtered": {":", "'n"},
	} {
		for _, size := range sizes {
			a := New(world(f))
			drive(t, a, size)
			if strings.Contains(name, "busy") {
				busy(a)
			}
			press(t, a, keys...)
			if strings.HasPrefix(name, "machine-") {
				a.screen() // what is not looked at is not read
				drive(t, a, Changed{})
				press(t, a, keys[len(keys)-1])
			}
			golden(t, sized(name, size), a)
		}
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	empty := func() *page.World {
		w := world(&fake{})
		w.Machines = store.NewMachines(func() {})
		return w
	}
	loading := New(empty())
	golden(t, "state-loading", loading)
	w := empty()
	w.Machines.Load(nil, nil)
	golden(t, "state-empty", New(w))
	tiny := New(world(&fake{}))
	drive(t, tiny, tea.WindowSizeMsg{Width: 12, Height: 3})
	golden(t, "state-too-small", tiny)
}

// TestTrouble draws pages whose readings fail, of which nothing has come yet, and that may not be used.
func TestTrouble(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{
		"machine":    {"down", "enter"},
		"form":       {"+", "'web", "ctrl+s", "ctrl+s"},
		"evacuation": {"2", "E"},
		"edit":       {"down", "e"},
	} {
		for state, f := range map[string]*fake{
			"error":     {err: errors.New("the server says no")},
			"forbidden": {forbidden: "you may not do that in prod"},
		} {
			for _, size := range sizes {
				a := New(world(f))
				a.editing = func(e page.EditText) tea.Cmd { return page.Send(e.Done("kind: VirtualMachine\n", nil)) }
				drive(t, a, size)
				press(t, a, keys...)
				golden(t, sized(state+"-"+name, size), a)
			}
		}
	}
	w := world(&fake{})
	w.Sizings = []*store.Table[store.Sizing]{store.NewTable[store.Sizing](func() {})}
	a := New(w)
	press(t, a, "6")
	golden(t, "loading-instancetypes", a)
}

func TestKeysDoWhatTheySay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys []string
		want string
	}{
		"pause asks":            {[]string{"down", "p"}, ""},
		"pause agreed":          {[]string{"down", "p", "y"}, "pause prod/web"},
		"start asks":            {[]string{"/", "'off", "enter", "S"}, ""},
		"stop asks":             {[]string{"down", "X"}, ""},
		"stop agreed":           {[]string{"down", "X", "y"}, "stop prod/web"},
		"stop not agreed":       {[]string{"down", "X", "enter"}, ""},
		"delete wants the name": {[]string{"down", "ctrl+d", "y", "enter"}, ""},
		"delete with the name":  {[]string{"down", "ctrl+d", "'web", "enter"}, "delete prod/web"},
		"start what is off":     {[]string{"/", "'off", "enter", "S", "y"}, "start test/off"},
		"start what runs":       {[]string{"S"}, ""},
		"bulk only what it fits": {
			[]string{"*", "X", "y"},
			"stop prod/db, stop prod/web, stop test/off, " +
				"stop test/名前-a-very-long-name-of-a-machine-that-somebody-once-made",
		},
		"marks choose":            {[]string{"space", "space", "R", "y"}, "restart prod/db, restart prod/web"},
		"migrate what cannot":     {[]string{"m"}, ""},
		"migrate what can":        {[]string{"down", "m", "y"}, "migrate prod/web"},
		"migrate asks":            {[]string{"down", "m"}, ""},
		"the palette knows verbs": {[]string{"down", ":", "'pause", "enter", "y"}, "pause prod/web"},
		"cordon":                  {[]string{"2", "O", "y"}, "cordon node1 true"},
		"cordon asks":             {[]string{"2", "O"}, ""},
		"C does not cordon":       {[]string{"2", "C", "y"}, ""},
		"create": {
			[]string{"+", "'new", "down", "down", "down", "down", "'4", "down", "'2Gi", "down", "'image", "ctrl+s"},
			"create default/new",
		},
		"create what is wrong": {[]string{"+", "'new", "down", "down", "down", "down", "'x", "ctrl+s"}, ""},
		"evacuate":             {[]string{"2", "E", "E", "y"}, "evacuate node1"},
		"scale up asks":        {[]string{"7", "=", "backspace", "'5", "enter"}, ""},
		"scale up agreed": {
			[]string{"7", "=", "backspace", "'5", "enter", "y"}, "scale vmpool prod/sites from 4 to 5",
		},
		"scale down asks": {[]string{"7", "=", "backspace", "'1", "enter"}, ""},
		"scale down agreed": {
			[]string{"7", "=", "backspace", "'1", "enter", "y"}, "scale vmpool prod/sites from 4 to 1",
		},
		"scale to the same": {[]string{"7", "=", "enter"}, ""},
		"scale to no number": {
			[]string{"7", "=", "'x", "enter", "backspace", "backspace", "'7", "enter", "y"},
			"scale vmpool prod/sites from 4 to 7",
		},
		"scale not at all": {[]string{"7", "=", "'9", "esc"}, ""},
		"many machines go": {
			[]string{
				"7", "down", "=", "backspace", "backspace", "'0", "enter", "y", "enter", "backspace", "'30", "enter",
			},
			"scale vmirs test/workers from 30 to 0",
		},
		"scale one that is shown": {
			[]string{"7", "enter", "=", "backspace", "'8", "enter", "y"}, "scale vmpool prod/sites from 4 to 8",
		},
		"pools by name": {[]string{":", "'pools", "enter", "ctrl+d", "'sites", "enter"}, "delete vmpool prod/sites"},
		"replica sets by name": {
			[]string{":", "'replicasets", "enter", "ctrl+d", "'workers", "enter"}, "delete vmirs test/workers",
		},
		"delete wants its name": {[]string{"7", "ctrl+d", "y", "enter"}, ""},
		"no marks of sets": {
			[]string{"7", "*", "down", "ctrl+d", "'workers", "enter"}, "delete vmirs test/workers",
		},
		"a machine of a pool": {[]string{"7", "enter", "enter", "down", "S", "y"}, "start test/off"},
		"uncordon":            {[]string{"2", "down", "O", "y"}, "cordon node2 false"},
	} {
		f := &fake{}
		w := world(f)
		if name == "migrate what can" {
			w.Migrations.Load(nil) // that of web has not ended
		}
		a := New(w)
		press(t, a, c.keys...)
		if got := strings.Join(f.done, ", "); got != c.want {
			t.Errorf("%s: did %q, not %q", name, got, c.want)
		}
	}
}

// TestActionsSayWhenTheyAreDone tells an action that was begun from one that has ended.
func TestActionsSayWhenTheyAreDone(t *testing.T) {
	t.Parallel()
	for _, ascii := range []bool{false, true} {
		w := world(&fake{})
		w.Theme = theme.New(theme.Options{ASCII: ascii})
		a := New(w)
		drive(t, a, sizes[1])
		done := map[bool]string{false: "✓ ", true: "ok "}[ascii]
		shows := func(want string) {
			t.Helper()
			screen := ansi.Strip(a.screen())
			if !strings.Contains(screen, "\n "+want) ||
				strings.Contains(screen, done) != strings.HasPrefix(want, done) {
				t.Errorf("%q is not what is said:\n%s", want, screen)
			}
		}
		first, second := a.start(page.Task{Line: "first", Do: func(context.Context) error { return nil }}),
			a.start(page.Task{Line: "second", Do: func(context.Context) error { return nil }})
		shows("second")
		run(t, a, first, 0)
		shows("second")
		run(t, a, second, 0)
		shows(done + "second")
		press(t, a, "down")
		if strings.Contains(a.screen(), "second") {
			t.Errorf("it is said on and on:\n%s", a.screen())
		}
		a.Close()
	}
}

// TestWrongWordIsSaid types another name than the one that is asked for.
func TestWrongWordIsSaid(t *testing.T) {
	t.Parallel()
	f := &fake{}
	a := New(world(f))
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	press(t, a, "down", "ctrl+d", "'wep", "enter")
	if !strings.Contains(strings.Join(strings.Fields(ansi.Strip(a.screen())), " "), "That is not web; esc cancels.") {
		t.Errorf("nothing says what is wrong:\n%s", a.screen())
	}
	press(t, a, "backspace")
	if strings.Contains(a.screen(), "That is not web") {
		t.Errorf("it is said of what was not entered:\n%s", a.screen())
	}
	press(t, a, "ctrl+u", "'web", "enter")
	if !slices.Equal(f.done, []string{"delete prod/web"}) {
		t.Errorf("did %v", f.done)
	}
}

func TestReadOnlyAndForbidden(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*page.World, *fake){
		"read-only": func(w *page.World, _ *fake) { w.ReadOnly = true },
		"forbidden": func(_ *page.World, f *fake) { f.forbidden = "you may not" },
	} {
		f := &fake{}
		w := world(f)
		prepare(w, f)
		a := New(w)
		press(t, a, "down", "p", "y", "X", "y", "ctrl+d", "'web", "enter")
		if len(f.done) > 0 {
			t.Errorf("%s: did %v", name, f.done)
		}
		a = New(w)
		press(t, a, "7", "down", "=", "'0", "enter", "y", "ctrl+d", "'workers", "enter", "esc", "enter", "=", "'0",
			"enter")
		if len(f.done) > 0 {
			t.Errorf("%s: did %v", name, f.done)
		}
		a = New(w)
		press(t, a, "down", "p")
		if a.notice == "" {
			t.Errorf("%s: the key does nothing, and nothing says why", name)
		}
	}
}

// TestSetGoes follows a pool's page while things happen to the pool, until it is deleted.
func TestSetGoes(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w := world(f)
	followed := 0
	w.FollowSets = func() { followed++ }
	a := New(w)
	if followed > 0 {
		t.Error("sets are followed though nobody looks at them")
	}
	press(t, a, "7", "enter")
	if followed == 0 {
		t.Error("sets are not followed")
	}
	w.Events.Load(map[store.Key]*store.Event{
		{Namespace: "prod", Name: "e1"}: {
			Namespace: "prod", Name: "e1", Kind: "VirtualMachinePool", Object: "sites", Type: "Warning",
			Reason: "FailedCreate", Message: "quota \x1b[31mof vms", Last: now.Add(-time.Minute), Count: 1,
		},
		{Namespace: "prod", Name: "e2"}: {
			Namespace: "prod", Name: "e2", Kind: "VirtualMachine", Object: "sites", Type: "Normal", Reason: "Other",
			Message: "of a machine", Last: now, Count: 1,
		},
	})
	drive(t, a, Changed{})
	golden(t, "pool-events", a)
	w.Sets[0].Load(nil)
	drive(t, a, Changed{})
	press(t, a, "=", "'0", "enter", "ctrl+d", "'sites", "enter")
	if s := a.screen(); !strings.Contains(s, "It has been deleted") || len(f.done) > 0 {
		t.Errorf("did %v\n%s", f.done, s)
	}
}

func TestErrorsStayUntilRead(t *testing.T) {
	t.Parallel()
	f := &fake{err: errors.New("the server says no")}
	a := New(world(f))
	press(t, a, "down", "p", "y", "down", "up")
	if !strings.Contains(a.screen(), "the server says no") {
		t.Errorf("the error is gone:\n%s", a.screen())
	}
	press(t, a, "esc")
	if strings.Contains(a.screen(), "the server says no") {
		t.Error("the error stays after it was read")
	}
	if a.log[0].err == nil || a.log[0].line != "virtctl pause web --namespace prod" {
		t.Errorf("log %+v", a.log)
	}
}

// TestNewestAnswerIsShown: an error that was not read does not hide what is done after it, and is not read unseen.
func TestNewestAnswerIsShown(t *testing.T) {
	t.Parallel()
	f := &fake{err: errors.New("the server says no")}
	a := New(world(f))
	drive(t, a, sizes[0])
	shows := func(want, not string) {
		t.Helper()
		if s := ansi.Strip(a.screen()); !strings.Contains(s, want) || not != "" && strings.Contains(s, not) {
			t.Errorf("it does not show %q, or shows %q:\n%s", want, not, s)
		}
	}
	press(t, a, "down", "p", "y")
	shows("the server says no", a.theme().Done+" ")
	f.err = nil
	press(t, a, "p", "y")
	shows(a.theme().Done+" virtctl pause web", "the server says no")
	shows("1 unread: esc", "")
	press(t, a, "esc")
	shows("the server says no", a.theme().Done+" ")
	f.err = errors.New("not now either")
	press(t, a, "p", "y")
	shows("not now either", "the server says no")
	press(t, a, "esc")
	shows("the server says no", "not now either")
	press(t, a, "esc")
	shows("", "the server says no")
}

func TestLongErrorsAreShownWhole(t *testing.T) {
	t.Parallel()
	long := "admission webhook denied the request: spec.template.spec.domain.devices.disks[0].disk.bus: " +
		strings.Repeat("one of many words ", 9) + "END"
	f := &fake{err: errors.New(long + "\nand a second line")}
	a := New(world(f))
	press(t, a, "down", "p", "y", "down", "p", "y")
	golden(t, "long-error", a)
	drive(t, a, tea.WindowSizeMsg{Width: 40, Height: 12})
	golden(t, "long-error-narrow", a)
	press(t, a, "L")
	drive(t, a, sizes[1])
	if s := ansi.Strip(a.screen()); !strings.Contains(strings.Join(strings.Fields(s), " "), "END and a second line") {
		t.Errorf("the log has not all of it:\n%s", s)
	}
	press(t, a, "esc", "esc")
	if strings.Contains(a.screen(), "esc: read") {
		t.Error("both were read")
	}
}

func TestCopy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys []string
		want string
	}{
		"a name":     {[]string{"down", "Y", "enter"}, "web"},
		"an address": {[]string{"down", "Y", "/", "'10.0.0", "enter", "enter"}, "10.0.0.1"},
		"a MAC":      {[]string{"down", "Y", "/", "'02:00:00:00:00:02", "enter", "enter"}, "02:00:00:00:00:02"},
		"an image":   {[]string{"down", "Y", "/", "'quay", "enter", "enter"}, "quay.io/containerdisks/debian:13"},
		"YAML": {
			[]string{"down", "Y", "/", "'yaml", "enter", "enter"},
			"kind: VirtualMachine\nspec:\n  running: true\nstatus:\n  ready: true\n",
		},
		"of one machine": {[]string{"down", "enter", "Y", "down", "enter"}, "prod"},
		"of a node":      {[]string{"2", "Y", "enter"}, "node1"},
		"an event's text": {
			[]string{"4", "/", "'FailedMount", "enter", "Y", "G", "enter"},
			"90s\tprod\tFailedMount\tpod/virt-launcher-web-abcde\t4\tthe volume is not there",
		},
	} {
		a := New(world(&fake{}))
		var got string
		a.copying = func(text string) tea.Cmd { got = text; return nil }
		press(t, a, c.keys...)
		if got != c.want {
			t.Errorf("%s: copied %q, not %q\n%s", name, got, c.want, a.screen())
		}
		if len(a.stack) > 2 {
			t.Errorf("%s: the choice stays", name)
		}
	}
}

func TestCursorStaysOnItsRow(t *testing.T) {
	t.Parallel()
	w := world(&fake{})
	a := New(w)
	press(t, a, "down") // prod/web
	vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "aaa", Name: "first"}}
	web := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}}
	w.Machines.Load([]v1.VirtualMachine{vm, web}, nil)
	drive(t, a, Changed{})
	press(t, a, "enter")
	if got := a.top().Title(); got != "prod/web" {
		t.Errorf("the cursor is on %s", got)
	}
}

func TestTheGuestCannotDraw(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	drive(t, a, tea.WindowSizeMsg{Width: 200, Height: 20})
	if s := a.screen(); strings.Contains(s, "\x1b[31mRed") || strings.ContainsAny(s, "\a\u202e") ||
		!strings.Contains(s, "Red Hat") {
		t.Errorf("%q", s)
	}
}

func TestNamespaceIsSwitchedInPlace(t *testing.T) {
	t.Parallel()
	f := &fake{}
	a := New(world(f))
	a.Namespaces = func(context.Context) []string { return []string{"all", "prod"} }
	a.Contexts = func(context.Context) []string { return []string{"kind"} }
	var asked []page.Scope
	a.Switch = func(s page.Scope) (*page.World, error) {
		asked = append(asked, s)
		w := world(f)
		w.Scope = s
		return w, nil
	}
	press(t, a, ":", "'namespace prod", "enter")
	if changed := cmp.Diff([]page.Scope{{Context: "kind", Namespace: "prod"}}, asked); changed != "" {
		t.Error(changed)
	}
	if !strings.Contains(a.screen(), "prod") {
		t.Error(a.screen())
	}
	// One that is not there is not switched to.
	asked = nil
	press(t, a, ":", "'ns prdo", "enter")
	if len(asked) > 0 || a.World.Namespace != "prod" || !strings.Contains(a.screen(), `There is no namespace "prdo"`) {
		t.Errorf("asked %+v\n%s", asked, a.screen())
	}
	// Who may not list namespaces may know of one.
	a.Namespaces = func(context.Context) []string { return []string{"all"} }
	press(t, a, ":", "'ns secret", "enter")
	if changed := cmp.Diff([]page.Scope{{Context: "kind", Namespace: "secret"}}, asked); changed != "" {
		t.Error(changed)
	}
	// The page of the bar stays.
	press(t, a, "8", ":", "'ns all", "enter")
	if _, stays := a.top().(*page.Snapshots); a.World.Namespace != "" || !stays {
		t.Errorf("namespace %q, page %T", a.World.Namespace, a.top())
	}
}
