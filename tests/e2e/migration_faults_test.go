//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/instance"
)

const (
	processLauncher = "virt-launcher"
	processLibvirtd = "libvirtd"
	processQEMU     = "qemu-system-x86_64"
	processServer   = "virt-server"
)

// faulty is a guest that is moved while something fails. It writes records to its disks all the time.
type faulty struct {
	*guest
	n int
	// make makes another migration than begin does; nil for none.
	make func(t *testing.T)
	// known is the last record that was seen on the guest's disks.
	known int

	// Of the migration of now:
	m              *v1.VirtualMachineInstanceMigration
	uid            types.UID
	from, to       string
	source, target corev1.Pod
	// frozen are processes that hold the stage, and undo what else has to be taken back at its end.
	frozen []int
	undo   []func()
	// missed says that the migration was over before its stage could be held.
	missed bool
}

// newFaulty starts the guest.
func newFaulty(t *testing.T) *faulty {
	t.Helper()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", corev1.PersistentVolumeFilesystem)
	f := &faulty{guest: &guest{cluster: c, ns: ns, name: "mover"}}
	f.boot(t)
	return f
}

func (f *faulty) boot(t *testing.T) {
	t.Helper()
	f.create(t, newVM(f.ns, f.name, v1.RunStrategyAlways, withClaim("data"), withEmptyDisk(),
		withUserData("#cloud-config\nuser: root\npassword: tiny\nruncmd:\n"+
			"- records write DATA EMPTY >/dev/null 2>&1 &\n")))
	f.waitLogin(t)
	f.sound(t, f.vmi(t).Status.NodeName)
}

// run makes one migration, and something fail at a stage of it.
func (f *faulty) run(t *testing.T, stage, victim string, want outcome) {
	begun := time.Now()
	defer f.release(t)
	for try := 1; !f.reach(t, stage); try++ {
		if try == 6 {
			t.Fatalf("%s was over each time before it could be held", stage)
		}
		f.release(t)
		f.settled(t, either) // a launcher that is held for longer than receivedPatience is not waited for
	}
	if want != ends && f.overtaken(t, stage) {
		t.Logf("the migration is past %s already", stage)
		want = either
	}
	f.victims()[victim](t)
	f.release(t)
	f.settled(t, want)
	t.Logf("%s at %s: it %s, %v", victim, stage, want, time.Since(begun).Round(100*time.Millisecond))
}

// reach begins a migration and brings it to a stage; false when it was past it already.
func (f *faulty) reach(t *testing.T, stage string) bool {
	t.Helper()
	f.next(t)
	f.stages()[stage](t)
	return !f.missed
}

// next begins with another migration.
func (f *faulty) next(t *testing.T) {
	t.Helper()
	f.n++
	f.from, f.uid, f.source, f.target = f.vmi(t).Status.NodeName, f.vmi(t).UID, f.current(t), corev1.Pod{}
	f.to = other(f.nodes(t), f.from)
	f.missed = false
}

// current is the pod that the guest is in.
func (f *faulty) current(t *testing.T) corev1.Pod {
	t.Helper()
	for _, pod := range f.pods(t) {
		if pod.Spec.NodeName == f.vmi(t).Status.NodeName && pod.Status.Phase == corev1.PodRunning {
			return pod
		}
	}
	t.Fatal("the guest has no pod")
	return corev1.Pod{}
}

// stages bring a migration to a stage and hold it there.
func (f *faulty) stages() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"scheduling": func(t *testing.T) {
			label := fmt.Sprintf("virtkit.io/e2e-%s-%d", f.ns, f.n)
			f.begin(t, map[string]string{label: "yes"})
			f.phase(t, v1.MigrationScheduling)
			f.undo = append(f.undo, func() { f.label(t, f.to, label, "yes") })
			t.Cleanup(func() { f.label(t, f.to, label, nil) })
		},
		"preparing": func(t *testing.T) {
			f.begin(t, nil)
			f.freeze(t, f.waitTarget(t, processLauncher))
			f.phase(t, v1.MigrationPreparingTarget)
		},
		"ready": func(t *testing.T) {
			f.freeze(t, f.process(t, &f.source, processLauncher))
			f.begin(t, nil)
			f.waitTarget(t, processLauncher)
			f.phase(t, v1.MigrationTargetReady)
		},
		"copying": func(t *testing.T) {
			f.begin(t, nil)
			f.freeze(t, f.waitTarget(t, processQEMU))
			f.phase(t, v1.MigrationRunning)
			f.missed = !f.runsAtSource(t) // all of it had been sent before the target was stopped
		},
		"finishing": func(t *testing.T) {
			f.begin(t, nil)
			libvirtd := f.waitTarget(t, processLibvirtd)
			if !f.memoryFlows(t) {
				return
			}
			f.freeze(t, libvirtd)
			f.standsStill(t)
		},
		"arrived": func(t *testing.T) {
			f.begin(t, nil)
			launcher := f.waitTarget(t, processLauncher)
			before := f.messageOf(t, launcher)
			if !f.memoryFlows(t) {
				return
			}
			f.freeze(t, launcher)
			f.standsStill(t)
			f.missed = f.mayRunThere(t, launcher, before) // it was told to start the guest before it was stopped
		},
		"moved": func(t *testing.T) {
			f.begin(t, nil)
			f.waitTarget(t, processLauncher)
			f.phase(t, v1.MigrationSucceeded)
		},
	}
}

// overtaken says that a migration was faster than those who should have held it at a stage.
func (f *faulty) overtaken(t *testing.T, stage string) bool {
	t.Helper()
	ms := f.vmi(t).Status.MigrationState
	switch stage {
	case "preparing":
		return ms != nil && ms.MigrationUID == f.m.UID && ms.TargetNodeAddress != ""
	case "copying", "finishing":
		return !slices.ContainsFunc(named(processes(t, string(f.source.UID)), processQEMU), func(pid int) bool {
			_, there := cpuTicks(pid)
			return there
		})
	}
	return false
}

// victims are what fails.
func (f *faulty) victims() map[string]func(*testing.T) {
	of := func(pod *corev1.Pod, command string) func(*testing.T) {
		return func(t *testing.T) {
			// The launcher of a guest that has moved may have ended by itself.
			if found := named(processes(t, string(pod.UID)), command); len(found) > 0 {
				kill(t, string(pod.UID), command)
			}
		}
	}
	return map[string]func(*testing.T){
		"source handler":  func(t *testing.T) { f.killComponent(t, names.VirtHandler, f.from) },
		"target handler":  func(t *testing.T) { f.killComponent(t, names.VirtHandler, f.to) },
		"controller":      func(t *testing.T) { f.killComponent(t, names.VirtController, "") },
		"source launcher": of(&f.source, processLauncher),
		"source libvirtd": of(&f.source, processLibvirtd),
		"source QEMU":     of(&f.source, processQEMU),
		"target launcher": of(&f.target, processLauncher),
		"target libvirtd": of(&f.target, processLibvirtd),
		"target QEMU":     of(&f.target, processQEMU),
		"connection":      f.cut,
		"cancel":          f.cancel,
	}
}

// cancel takes the migration back, and waits until the source has been told, if it has to be: a cancel that comes when
// the guest has gone is too late.
func (f *faulty) cancel(t *testing.T) {
	t.Helper()
	if err := f.Client.Delete(t.Context(), f.m); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "the cancel is known", func() string {
		err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(f.m), f.m)
		if ms := f.vmi(t).Status.MigrationState; apierrors.IsNotFound(err) ||
			ms != nil && ms.MigrationUID == f.m.UID && ms.AbortRequested {
			return ""
		}
		return fmt.Sprint("phase ", f.m.Status.Phase, ", ", err)
	})
}

// begin makes the migration.
func (f *faulty) begin(t *testing.T, selector map[string]string) {
	t.Helper()
	if f.make != nil {
		f.make(t)
		return
	}
	f.m = &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: fmt.Sprintf("fault-%d", f.n)},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: f.name, AddedNodeSelector: selector},
	}
	if err := f.Client.Create(t.Context(), f.m); err != nil {
		t.Fatalf("create migration: %v", err)
	}
}

// phase waits until the migration is in a phase, or past it.
func (f *faulty) phase(t *testing.T, want v1.VirtualMachineInstanceMigrationPhase) {
	t.Helper()
	eventually(t, 60*time.Second, "migration is "+string(want), func() string {
		if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(f.m), f.m); err != nil {
			return err.Error()
		}
		for _, transition := range f.m.Status.PhaseTransitionTimestamps {
			if transition.Phase == want {
				return ""
			}
		}
		return "phase " + string(f.m.Status.Phase)
	})
}

// often waits for something that may be there for milliseconds only.
func often(t *testing.T, what string, look func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	for !look() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within a minute", what)
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		}
	}
}

// waitTarget waits for a process of the target pod.
func (f *faulty) waitTarget(t *testing.T, command string) (pid int) {
	t.Helper()
	eventually(t, 60*time.Second, "there is a target pod", func() string {
		for _, pod := range f.pods(t) {
			if pod.Labels[v1.MigrationJobLabel] == string(f.m.UID) {
				f.target = pod
				return ""
			}
		}
		return "not yet"
	})
	often(t, "target has a "+command, func() bool {
		if found := named(processes(t, string(f.target.UID)), command); len(found) > 0 {
			pid = found[0]
		}
		return pid != 0
	})
	return pid
}

// memoryFlows waits until the guest's memory is on its way to the target's QEMU; false when it is there already.
func (f *faulty) memoryFlows(t *testing.T) bool {
	t.Helper()
	handler := f.process(t, f.handler(t, f.to), processServer)
	source := f.process(t, &f.source, processQEMU)
	often(t, "memory flows", func() bool {
		if err := syscall.Kill(source, 0); errors.Is(err, syscall.ESRCH) {
			f.missed = true
			return true
		}
		return flows(t, handler)
	})
	return !f.missed
}

// flows says that memory is on its way to a QEMU of this virt-handler's node.
func flows(t *testing.T, handler int) bool {
	t.Helper()
	// The end that QEMU has accepted belongs to the network namespace of the one who has connected.
	sockets, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", handler))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sockets)) {
		// Num RefCount Protocol Flags Type St Inode Path; state 3 is connected.
		if fields := strings.Fields(line); len(fields) == 8 && fields[5] == "03" &&
			filepath.Base(fields[7]) == names.SocketMigrationMemory {
			return true
		}
	}
	return false
}

// mayRunThere says that the guest may run at the target already: the target's launcher, which is stopped, has taken
// back the termination message that says it never ran. before is what that file was when the launcher had just begun.
// It also says so when that launcher is gone: the source has not waited for it.
func (f *faulty) mayRunThere(t *testing.T, launcher int, before os.FileInfo) bool {
	t.Helper()
	text, err := os.ReadFile(terminationLog(launcher))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(text) == 0 && !f.messageOf(t, launcher).ModTime().Equal(before.ModTime())
}

func (f *faulty) messageOf(t *testing.T, launcher int) os.FileInfo {
	t.Helper()
	info, err := os.Stat(terminationLog(launcher))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// terminationLog is the file of a launcher's termination message.
func terminationLog(launcher int) string {
	return fmt.Sprintf("/proc/%d/root/dev/termination-log", launcher)
}

// standsStill waits until the source's QEMU has nothing more to do.
func (f *faulty) standsStill(t *testing.T) {
	t.Helper()
	found := named(processes(t, string(f.source.UID)), processQEMU)
	if len(found) == 0 {
		return // it has ended, which the stage's end looks at
	}
	qemu := found[0]
	since, was := time.Now(), 0
	eventually(t, 60*time.Second, "the guest stands still at the source", func() string {
		used, there := cpuTicks(qemu)
		if !there {
			return ""
		}
		if used != was {
			since, was = time.Now(), used
		}
		if time.Since(since) < 400*time.Millisecond {
			return "it uses the CPU"
		}
		return ""
	})
}

// runsAtSource says that the guest runs at the source while its target is stopped: its last pages have not been sent.
func (f *faulty) runsAtSource(t *testing.T) bool {
	t.Helper()
	found := named(processes(t, string(f.source.UID)), processQEMU)
	if len(found) == 0 {
		return false
	}
	time.Sleep(300 * time.Millisecond) // what can be sent has been sent
	before, _ := cpuTicks(found[0])
	time.Sleep(500 * time.Millisecond)
	after, there := cpuTicks(found[0])
	return there && after-before > 2
}

// cpuTicks is the CPU time that a process has used, in hundredths of a second; false when it has ended, also when its
// parent has yet to hear of it.
func cpuTicks(pid int) (int, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(stat))
	if fields[2] == "Z" || fields[2] == "X" {
		return 0, false
	}
	user, _ := strconv.Atoi(fields[13])
	system, _ := strconv.Atoi(fields[14])
	return user + system, true
}

func (f *faulty) freeze(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop %d: %v", pid, err)
	}
	f.frozen = append(f.frozen, pid)
}

// release lets the stage go on.
func (f *faulty) release(t *testing.T) {
	t.Helper()
	for _, pid := range f.frozen {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("continue %d: %v", pid, err)
		}
	}
	f.frozen = nil
	for _, undo := range f.undo {
		undo()
	}
	f.undo = nil
}

// killComponent kills a component, on one node or wherever it runs. A container that ends a second time has its pod
// made anew: the kubelet would take longer each time to start it again.
func (f *faulty) killComponent(t *testing.T, component, node string) {
	t.Helper()
	var pods []corev1.Pod
	eventually(t, 30*time.Second, component+" runs", func() string { // its pod may just have been made
		pods = nil
		for _, pod := range f.componentPods(t, component) {
			if node != "" && pod.Spec.NodeName != node {
				continue
			}
			found := processes(t, string(pod.UID))
			if len(named(found, processServer)) == 0 || len(pod.Status.ContainerStatuses) == 0 {
				return fmt.Sprintf("%s has the processes %v", pod.Name, found)
			}
			pods = append(pods, pod)
		}
		if len(pods) == 0 {
			return "it has no pod on " + node
		}
		return ""
	})
	for _, pod := range pods {
		kill(t, string(pod.UID), processServer)
		if pod.Status.ContainerStatuses[0].RestartCount == 0 {
			continue
		}
		err := f.Kube.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name,
			metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

func (f *faulty) componentsReady(t *testing.T) {
	t.Helper()
	eventually(t, 60*time.Second, "virtkit is ready", func() string {
		for _, component := range []string{names.VirtHandler, names.VirtController} {
			for _, pod := range f.componentPods(t, component) {
				if len(pod.Status.ContainerStatuses) == 0 || !pod.Status.ContainerStatuses[0].Ready {
					return pod.Name + " is not ready"
				}
			}
		}
		return ""
	})
}

// handler is the virt-handler of a node.
func (f *faulty) handler(t *testing.T, node string) *corev1.Pod {
	t.Helper()
	for _, pod := range f.componentPods(t, names.VirtHandler) {
		if pod.Spec.NodeName == node {
			return &pod
		}
	}
	t.Fatalf("no virt-handler on %s", node)
	return nil
}

// cut cuts the connections between the two virt-handlers, and no new ones come about until the case is over.
func (f *faulty) cut(t *testing.T) {
	t.Helper()
	handler := f.process(t, f.handler(t, f.from), processServer)
	nft := func(ctx context.Context, rules string) error {
		cmd := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(handler), "--net", "nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	}
	// Both ends are told (reset) as soon as something comes their way, the resets themselves pass.
	port := strconv.Itoa(names.PortMigration)
	if err := nft(t.Context(), "table inet fault {\n"+
		"chain out { type filter hook output priority 0; tcp dport "+port+
		" tcp flags & rst == 0 reject with tcp reset; }\n"+
		"chain in { type filter hook input priority 0; tcp sport "+port+
		" tcp flags & rst == 0 reject with tcp reset; }\n}\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nft(context.Background(), "delete table inet fault\n"); err != nil {
			t.Error(err)
		}
	})
}

// settled waits for the migration's end, and checks what is left.
func (f *faulty) settled(t *testing.T, want outcome) {
	t.Helper()
	cancelled, begun, looked := false, time.Now(), false
	eventually(t, 2*time.Minute, "migration "+f.m.Name+" is over", func() string {
		if !looked && time.Since(begun) > time.Minute {
			looked = true
			t.Logf("threads of the source: %s", threads(t, string(f.source.UID)))
		}
		err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(f.m), f.m)
		switch {
		case apierrors.IsNotFound(err):
			cancelled = true
			return ""
		case err != nil:
			return err.Error()
		case f.m.Status.Phase == v1.MigrationSucceeded ||
			f.m.Status.Phase == v1.MigrationFailed && f.m.DeletionTimestamp == nil:
			return ""
		}
		return fmt.Sprintf("phase %s, state %+v", f.m.Status.Phase, f.m.Status.MigrationState)
	})
	node := f.from
	if want == ends {
		eventually(t, 60*time.Second, "the guest has ended", func() string {
			if vmi := f.vmi(t); vmi != nil && vmi.UID == f.uid && vmi.Status.Phase != v1.Failed {
				return "phase " + string(vmi.Status.Phase)
			}
			return ""
		})
		f.componentsReady(t)
		// A new VM with the same disk: this one would be started later each time.
		f.virtctl(t, nil, "-n", f.ns, "delete", f.name, "--wait")
		f.waitGone(t, 60*time.Second)
		f.boot(t)
		return
	}
	vmi := f.vmi(t)
	if vmi == nil || vmi.UID != f.uid {
		t.Fatal("the guest has ended")
	}
	succeeded := f.m.Status.Phase == v1.MigrationSucceeded
	if cancelled {
		succeeded = vmi.Status.NodeName == f.to
	}
	if ms := f.m.Status.MigrationState; !succeeded && !cancelled {
		if ms == nil || ms.FailureReason == "" {
			t.Fatalf("no reason for the failure in %+v", ms)
		}
		t.Logf("failed: %s", ms.FailureReason)
	}
	if succeeded && want == stays || !succeeded && want == moves {
		t.Fatalf("phase %s, but %q was wanted; migrationState %+v", f.m.Status.Phase, want, vmi.Status.MigrationState)
	}
	if succeeded {
		node = f.to
	}
	f.componentsReady(t)
	f.sound(t, node)
	f.leavesNothing(t)
}

// sound checks that the VM has one guest, on a node, and nothing else, that its console answers, and that its disks
// are what it has written.
func (f *faulty) sound(t *testing.T, node string) {
	t.Helper()
	f.onlyOn(t, node)
	eventually(t, 30*time.Second, "one QEMU", func() string {
		if all := f.everywhere(t); len(all) != 1 {
			return fmt.Sprintf("QEMU of this VM: %v", all)
		}
		return ""
	})
	var first int
	eventually(t, 60*time.Second, "the guest's disks are what it has written, and it goes on", func() string {
		stdout, stderr, err := f.Virtctl(t.Context(), nil, "-n", f.ns, "exec", f.name, "--", "records", "check", "DATA",
			"EMPTY")
		if err != nil {
			if strings.Contains(stdout, "record") && !strings.Contains(stdout, "nothing is written") {
				t.Fatalf("records: %s %s", stdout, stderr)
			}
			return instead(stdout + stderr)
		}
		n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(stdout, "ok ")))
		switch {
		case err != nil:
			t.Fatalf("records: %s", stdout)
		case first == 0:
			first = n
		case n > first:
			f.known = n
			return ""
		}
		return "it writes no more"
	})
	con := f.openConsole(t, "")
	con.send(t, "\r")
	con.expect(t, 30*time.Second, `login: $|`+shellPrompt)
}

// everywhere are the processes of this VM's guest, on all nodes.
func (f *faulty) everywhere(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && bytes.Contains(cmdline, []byte("guest="+f.ns+"_"+f.name+",")) {
			found = append(found, pid)
		}
	}
	return found
}

func (f *faulty) process(t *testing.T, pod *corev1.Pod, command string) int {
	t.Helper()
	found := named(processes(t, string(pod.UID)), command)
	if len(found) == 0 {
		t.Fatalf("no process %s in pod %s", command, pod.Name)
	}
	return found[0]
}

func named(all []instance.Process, command string) []int {
	var pids []int
	for _, p := range all {
		if p.Command == command {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func (c *cluster) nodes(t *testing.T) []string {
	t.Helper()
	list, err := c.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out
}

func other(nodes []string, node string) string {
	for _, n := range nodes {
		if n != node {
			return n
		}
	}
	return ""
}

// label sets a label of a node; nil removes it.
func (c *cluster) label(t *testing.T, node, key string, value any) {
	t.Helper()
	text := "null"
	if value != nil {
		text = fmt.Sprintf("%q", value)
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, text)
	if _, err := c.Kube.CoreV1().Nodes().Patch(context.Background(),
		node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Errorf("label node %s: %v", node, err)
	}
}

// usage is what a process has in use.
type usage struct {
	files  int
	memory int64
}

func (u usage) String() string { return fmt.Sprintf("%d files and %d KiB", u.files, u.memory>>10) }

// usage is that of a component's processes, by pod.
func (c *cluster) usage(t *testing.T, component string) map[string]usage {
	t.Helper()
	out := map[string]usage{}
	for _, pod := range c.componentPods(t, component) {
		for _, p := range processes(t, string(pod.UID)) {
			if p.Command != processServer {
				continue
			}
			files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
			if err != nil {
				t.Fatal(err)
			}
			memory, err := p.Memory("Pss")
			if err != nil {
				t.Fatal(err)
			}
			out[pod.Name] = usage{len(files), memory}
		}
	}
	return out
}
