package app

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/report/progress"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

// lively is the cluster of the README's pictures.
type lively struct {
	*fake
	world *page.World
	vms   []v1.VirtualMachine
	vmis  []v1.VirtualMachineInstance
	clock time.Time
}

func newLively() *lively {
	l := &lively{fake: &fake{}, clock: now}
	l.world = &page.World{
		Scope: page.Scope{Context: "prod"}, Program: "virtctl", Theme: theme.New(theme.Options{}),
		Now:      func() time.Time { return l.clock },
		Machines: store.NewMachines(func() {}), Nodes: store.NewTable[store.Node](func() {}),
		Migrations: store.NewTable[store.Migration](func() {}), Events: store.NewTable[store.Event](func() {}),
		Usage: page.NewUsage(), Actions: l,
	}
	nodes := map[store.Key]*store.Node{}
	for i := range 4 {
		name := fmt.Sprintf("node%d", i+1)
		nodes[store.Key{Name: name}] = &store.Node{
			Name: name, Created: now.Add(-240 * time.Hour), Ready: true, Schedulable: true, Heartbeat: now,
			CPU: resource.MustParse("32"), Memory: resource.MustParse("128Gi"), Kubelet: "v1.37.1", Devices: 1000,
		}
	}
	l.world.Nodes.Load(nodes)
	l.world.Migrations.Load(nil)
	l.world.Events.Load(nil)
	for i, m := range []struct {
		namespace, name string
		status          v1.VirtualMachinePrintableStatus
		cores           uint32
		memory, os      string
	}{
		{"build", "runner-0", v1.VirtualMachineStatusRunning, 8, "16Gi", "Ubuntu 26.04 LTS"},
		{"build", "runner-1", v1.VirtualMachineStatusRunning, 8, "16Gi", "Ubuntu 26.04 LTS"},
		{"build", "runner-2", v1.VirtualMachineStatusProvisioning, 8, "16Gi", ""},
		{"data", "postgres-primary", v1.VirtualMachineStatusRunning, 16, "64Gi", "Debian GNU/Linux 13"},
		{"data", "postgres-replica", v1.VirtualMachineStatusRunning, 16, "64Gi", "Debian GNU/Linux 13"},
		{"data", "warehouse", v1.VirtualMachineStatusUnschedulable, 64, "512Gi", ""},
		{"desktops", "windows-11-ana", v1.VirtualMachineStatusRunning, 4, "8Gi", "Windows 11"},
		{"desktops", "windows-11-ben", v1.VirtualMachineStatusPaused, 4, "8Gi", "Windows 11"},
		{"shop", "cache", v1.VirtualMachineStatusRunning, 2, "4Gi", "Fedora Linux 44"},
		{"shop", "legacy-billing", v1.VirtualMachineStatusStopped, 2, "2Gi", ""},
		{"shop", "web-0", v1.VirtualMachineStatusRunning, 4, "8Gi", "Fedora Linux 44"},
		{"shop", "web-1", v1.VirtualMachineStatusRunning, 4, "8Gi", "Fedora Linux 44"},
	} {
		l.add(m.namespace, m.name, m.status, m.cores, m.memory, m.os, fmt.Sprintf("node%d", i%4+1), i)
	}
	l.load()
	return l
}

// add adds a machine, which runs on a node unless its status says otherwise.
func (l *lively) add(namespace, name string, status v1.VirtualMachinePrintableStatus, cores uint32,
	memory, os, node string, i int,
) {
	strategy := v1.RunStrategyAlways
	guest := resource.MustParse(memory)
	vm := v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			CreationTimestamp: metav1.NewTime(l.clock.Add(-time.Duration(i*i+1) * time.Hour)),
		},
		Spec: v1.VirtualMachineSpec{RunStrategy: &strategy, Template: &v1.VirtualMachineInstanceTemplateSpec{
			Spec: v1.VirtualMachineInstanceSpec{
				Domain: v1.DomainSpec{Memory: &v1.Memory{Guest: &guest}, CPU: &v1.CPU{Cores: cores}},
			},
		}},
		Status: v1.VirtualMachineStatus{PrintableStatus: status, Ready: status == v1.VirtualMachineStatusRunning},
	}
	l.vms = append(l.vms, vm)
	if status != v1.VirtualMachineStatusRunning && status != v1.VirtualMachineStatusPaused {
		return
	}
	ip := fmt.Sprintf("10.244.%d.%d", i%4+1, 10+i)
	conditions := []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue},
		{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
		{Type: v1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue},
	}
	if status == v1.VirtualMachineStatusPaused {
		conditions = append(conditions,
			v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue})
	}
	l.vmis = append(l.vmis, v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, CreationTimestamp: vm.CreationTimestamp,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&vm, v1.VirtualMachineGroupVersionKind)},
		},
		Spec: vm.Spec.Template.Spec,
		Status: v1.VirtualMachineInstanceStatus{
			Phase: v1.Running, NodeName: node, Conditions: conditions,
			GuestOSInfo: v1.VirtualMachineInstanceGuestOSInfo{PrettyName: os},
			Interfaces:  []v1.VirtualMachineInstanceNetworkInterface{{IP: ip, IPs: []string{ip}}},
		},
	})
}

func (l *lively) load() { l.world.Machines.Load(l.vms, l.vmis) }

// use has the guests use something for a minute, each in its own way.
func (l *lively) use(a *App) {
	spent := make([]float64, len(l.vmis))
	for step := range 31 {
		list := stats.List{}
		for i := range l.vmis {
			cores := float64(l.vmis[i].Spec.Domain.CPU.Cores)
			wave := 0.5 + 0.45*math.Sin(float64(step)/(2+float64(i%3))+float64(i))
			spent[i] += 2 * cores * wave * (0.2 + 0.25*float64(i%4))
			memory := uint64(l.vmis[i].Spec.Domain.Memory.Guest.Value())
			list.Items = append(list.Items, stats.Guest{
				Namespace: l.vmis[i].Namespace, Name: l.vmis[i].Name, VCPUs: uint64(cores),
				Time:    l.clock.Add(time.Duration(2*step-60) * time.Second),
				CPUTime: uint64(spent[i] * float64(time.Second)),
				Memory:  stats.Memory{Guest: memory, Resident: memory, Used: memory / 16 * uint64(4+i%7+step/12)},
			})
		}
		a.used(usageRead{a.World, list, nil})
	}
}

// Console has the guest that the film makes.
func (l *lively) Console(ctx context.Context, key store.Key, ends page.ConsoleEnds) error {
	return l.fake.Console(ctx, key, ends)
}

// Choices are what the form completes.
func (l *lively) Choices(context.Context, string) page.Choices {
	return page.Choices{
		Namespaces: []string{"shop"}, Instancetypes: []string{"u1.medium"}, Preferences: []string{"debian"},
	}
}

// TestPictureOfCluster keeps the README's first picture as the page is.
func TestPictureOfCluster(t *testing.T) {
	t.Parallel()
	l := newLively()
	a := New(l.world)
	defer a.Close()
	drive(t, a, tea.WindowSizeMsg{Width: 132, Height: 20})
	l.use(a)
	drive(t, a, Changed{})
	press(t, a, "down", "down", "down")
	picture(t, filepath.Join(docs, "cluster.svg"), svg(a.screen()))
}

// TestFilm keeps the README's recording as the pages are: a machine is made, its console answers, and it is moved.
func TestFilm(t *testing.T) {
	t.Parallel()
	l := newLively()
	a := New(l.world)
	defer a.Close()
	drive(t, a, tea.WindowSizeMsg{Width: 110, Height: 22})
	l.use(a)
	drive(t, a, Changed{})
	var stills []still
	shot := func(lasts float64) { stills = append(stills, still{a.screen(), lasts}) }
	shot(1.6)
	press(t, a, "+")
	shot(0.8)
	for _, keys := range []string{"'web-2", "tab", "ctrl+u", "'shop", "tab", "'u1.", "tab", "tab", "'deb", "tab"} {
		press(t, a, keys)
	}
	shot(0.9)
	press(t, a, "tab", "down", "down", "'quay.io/containerdisks/debian:13")
	shot(1.4)
	press(t, a, "ctrl+s")
	if got := strings.Join(l.done, ""); got != "create shop/web-2" {
		t.Fatalf("did %q\n%s", got, a.screen())
	}
	l.add("shop", "web-2", v1.VirtualMachineStatusRunning, 1, "4Gi", "", "node1", 0)
	l.load()
	l.use(a)
	drive(t, a, Changed{})
	shot(1.6)
	press(t, a, "C")
	shown(t, a, "web login:")
	shot(1.2)
	press(t, a, "'root")
	shown(t, a, "ROOT")
	shot(1.2)
	drive(t, a, tea.KeyPressMsg{Code: ']', Mod: tea.ModCtrl})
	press(t, a, "m")
	shot(1.4)
	press(t, a, "y", "3")
	move := &store.Migration{
		Namespace: "shop", Name: "m", Machine: "web-2", Phase: v1.MigrationRunning, From: "node1", To: "node3",
		Created: l.clock, Started: l.clock,
	}
	for _, percent := range []uint64{12, 38, 64, 91} {
		l.clock = l.clock.Add(time.Second)
		total := uint64(4) << 30
		move.Progress = &progress.Progress{
			Mode: "PreCopy", TotalBytes: total, ProcessedBytes: total / 100 * percent,
			RemainingBytes: total / 100 * (100 - percent), BandwidthBytesPerSecond: 1 << 30, Iteration: 1,
		}
		l.world.Migrations.Load(map[store.Key]*store.Migration{move.Key(): move})
		drive(t, a, Changed{})
		shot(0.6)
	}
	move.Phase, move.Progress, move.Ended = v1.MigrationSucceeded, nil, l.clock
	l.world.Migrations.Load(map[store.Key]*store.Migration{move.Key(): move})
	drive(t, a, Changed{})
	shot(2.4)
	picture(t, filepath.Join(docs, "film.svg"), film(stills))
}

// TestLivelyFrames draws a cluster with metrics, in which most things are well, on a small terminal and on a usual one.
func TestLivelyFrames(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{
		"lively-machines": {"down", "down"},
		"lively-machine":  {"/", "'web-0", "enter", "enter"},
		"lively-nodes":    {"2"},
	} {
		for _, size := range []tea.WindowSizeMsg{sizes[0], {Width: 140, Height: 40}} {
			l := newLively()
			a := New(l.world)
			drive(t, a, size)
			l.use(a)
			drive(t, a, Changed{})
			press(t, a, keys...)
			golden(t, sized(name, size), a)
			a.Close()
		}
	}
}

// docs is where the pictures are.
var docs = filepath.Join("..", "..", "..", "..", "docs", "dashboard")
