//go:build chaos

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/instance"
)

const (
	processServer   = "virt-server"
	processLauncher = "virt-launcher"
	processLibvirtd = "libvirtd"
	processQEMU     = "qemu-system-x86_64"
)

// fault is a process that is about to fail, or has.
type fault struct {
	step Step
	// find returns the processes. Those of a guest's pod may come about only during the phase, and may be gone before
	// the kill.
	find func(context.Context) ([]int, error)
	// what says which process it is.
	what string
	// replaced, when set, says why another process is not yet in its place.
	replaced func(context.Context) error
	// lease says that the lease of virt-controller must have been renewed since.
	lease bool
	// sources are the pods that the guest is in before the phase. moved says that it was not in them any more at the
	// kill.
	sources []string
	moved   bool
	// over is when the process was killed, or went on after a pause.
	over time.Time
}

// processes returns those of a pod that run the given executable, without the launcher's that only pass on the console
// or a probe.
func processes(podUID, command string) (pids []int, err error) {
	all, err := instance.Processes(podUID)
	for _, p := range all {
		if p.Command != command {
			continue
		}
		// One that ends meanwhile has no command line any more.
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if err != nil || bytes.Contains(cmdline, []byte("\x00console-log")) ||
			bytes.Contains(cmdline, []byte("\x00probe")) {
			continue
		}
		pids = append(pids, p.PID)
	}
	return pids, err
}

// aim finds out what a step kills, before its phase begins.
func (r *run) aim(ctx context.Context, s Step) (*fault, error) {
	f := &fault{step: s, lease: s.Kind == Leader || s.Kind == ControlPlane || s.Kind == ControlPlaneStopped}
	node, err := r.node(ctx, s)
	if err != nil {
		return nil, err
	}
	switch s.Kind {
	case API:
		return f, r.aimComponent(ctx, f, names.VirtAPI, func(corev1.Pod, string) bool { return true })
	case Leader:
		return f, r.aimComponent(ctx, f, names.VirtController, func(p corev1.Pod, leader string) bool {
			return p.Name == leader
		})
	case Standby:
		return f, r.aimComponent(ctx, f, names.VirtController, func(p corev1.Pod, leader string) bool {
			return p.Name != leader
		})
	case Handler, HandlerStopped:
		return f, r.aimComponent(ctx, f, names.VirtHandler, func(p corev1.Pod, _ string) bool {
			return p.Spec.NodeName == node
		})
	case Kubelet, Containerd:
		return f, r.aimProgram(ctx, f, string(s.Kind), node)
	case ControlPlane, ControlPlaneStopped:
		return f, r.aimProgram(ctx, f, "control-plane", "")
	case Launcher:
		return f, r.aimGuest(ctx, f, processLauncher)
	case Libvirtd:
		return f, r.aimGuest(ctx, f, processLibvirtd)
	case QEMU:
		return f, r.aimGuest(ctx, f, processQEMU)
	}
	return nil, fmt.Errorf("nobody knows how to kill %s", s.Kind)
}

// node is the one that a step means: the guest's, or with Target the other one.
func (r *run) node(ctx context.Context, s Step) (string, error) {
	node := r.nodes[0]
	vmi := &v1.VirtualMachineInstance{}
	switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: r.vms[s.Guest].name}, vmi); {
	case client.IgnoreNotFound(err) != nil:
		return "", err
	case err == nil:
		node = vmi.Status.NodeName
	}
	if s.Target {
		node = r.nodes[1-max(0, slices.Index(r.nodes, node))]
	}
	return node, nil
}

// aimComponent takes the pod of a component that is the one. One that was restarted is replaced first: the kubelet
// would take longer each time to start it again.
func (r *run) aimComponent(ctx context.Context, f *fault, component string,
	one func(pod corev1.Pod, leader string) bool,
) error {
	var pod corev1.Pod
	err := r.wait(ctx, bootTime, func(ctx context.Context) string {
		lease, err := r.Kube.CoordinationV1().Leases(names.Namespace).Get(ctx, names.VirtController,
			metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if lease.Spec.HolderIdentity == nil {
			return "nobody leads"
		}
		pods, err := r.componentPods(ctx, component)
		if err != nil {
			return err.Error()
		}
		slices.SortFunc(pods, func(a, b corev1.Pod) int {
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		})
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool {
			return p.DeletionTimestamp == nil && one(p, *lease.Spec.HolderIdentity)
		})
		if i < 0 {
			return "no such pod of " + component
		}
		pod = pods[i]
		if err := r.renew(ctx, pod, 1); err != nil {
			return err.Error()
		}
		if err := r.componentsReady(ctx, nil); err != nil {
			return err.Error()
		}
		return ""
	})
	if err != nil {
		return err
	}
	f.what = pod.Name + " on " + pod.Spec.NodeName
	f.find = func(context.Context) ([]int, error) { return processes(string(pod.UID), processServer) }
	if f.step.Kind.Stops() {
		return nil
	}
	f.replaced = func(ctx context.Context) error {
		now := &corev1.Pod{}
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(&pod), now)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil && now.UID == pod.UID && restarts(*now) == 0 {
			return fmt.Errorf("%s was not started again", pod.Name)
		}
		return nil
	}
	return nil
}

// renew replaces a pod that was restarted so often, and says so.
func (r *run) renew(ctx context.Context, pod corev1.Pod, often int32) error {
	if restarts(pod) < often || pod.DeletionTimestamp != nil {
		return nil
	}
	if err := r.Client.Delete(ctx, &pod); err != nil {
		return err
	}
	return fmt.Errorf("%s was restarted before", pod.Name)
}

func restarts(pod corev1.Pod) (n int32) {
	for _, c := range pod.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// aimProgram takes one of virt-local's own processes.
func (r *run) aimProgram(ctx context.Context, f *fault, program, node string) error {
	status, err := r.Status(ctx)
	if err != nil {
		return err
	}
	pid := status.PID(program, node)
	if pid == 0 {
		return fmt.Errorf("%s does not run", program)
	}
	f.what = program
	if node != "" {
		f.what += " of " + node
	}
	f.find = func(context.Context) ([]int, error) { return []int{pid}, nil }
	if f.step.Kind.Stops() {
		return nil
	}
	f.replaced = func(ctx context.Context) error {
		status, err := r.Status(ctx)
		if err != nil {
			return err
		}
		if now := status.PID(program, node); now == 0 || now == pid {
			return fmt.Errorf("%s was not started again", f.what)
		}
		return nil
	}
	return nil
}

// aimGuest takes a process of the guest's pod: of the one that it is in, or, when it starts or with Target, of the one
// that comes.
func (r *run) aimGuest(ctx context.Context, f *fault, command string) error {
	g := r.vms[f.step.Guest]
	pods, err := r.launchers(ctx, g)
	if err != nil {
		return err
	}
	comes := f.step.Target || f.step.Phase == Starting
	before := map[types.UID]bool{}
	for _, pod := range pods {
		before[pod.UID] = comes || pod.Status.Phase == corev1.PodRunning
		f.sources = append(f.sources, string(pod.UID))
	}
	f.what = command + " of " + g.name
	f.find = func(ctx context.Context) (pids []int, err error) {
		pods, err := r.launchers(ctx, g)
		for _, pod := range pods {
			if err == nil && before[pod.UID] != comes && len(pids) == 0 {
				pids, err = processes(string(pod.UID), command)
			}
		}
		return pids, err
	}
	return nil
}

// strike kills the processes after the step's delay, or stops them for its pause. A process of the guest that comes
// about in the phase is waited for first; one that has ended meanwhile is not missed.
func (r *run) strike(ctx context.Context, f *fault) error {
	if f.step.Kind.OfGuest() && f.step.Phase != Stopping {
		err := r.wait(ctx, time.Minute, func(ctx context.Context) string {
			pids, err := f.find(ctx)
			if err != nil {
				return err.Error()
			}
			if len(pids) == 0 {
				return "there is no " + f.what
			}
			return ""
		})
		if err != nil {
			return err
		}
	}
	if err := pause(ctx, f.step.Delay); err != nil {
		return err
	}
	pids, err := f.find(ctx)
	if err != nil {
		return err
	}
	f.moved = true
	for _, source := range f.sources {
		qemus, err := processes(source, processQEMU)
		if err != nil {
			return err
		}
		f.moved = f.moved && len(qemus) == 0
	}
	defer func() { f.over = time.Now() }()
	if len(pids) == 0 {
		f.what += ", which had ended"
		return nil
	}
	f.what += fmt.Sprintf(" %v", pids)
	if !f.step.Kind.Stops() {
		return signal(pids, syscall.SIGKILL)
	}
	if err := signal(pids, syscall.SIGSTOP); err != nil {
		return err
	}
	err = pause(ctx, f.step.Pause)
	return errors.Join(err, signal(pids, syscall.SIGCONT))
}

func signal(pids []int, s syscall.Signal) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal %d to process %d: %w", s, pid, err)
		}
	}
	return nil
}
