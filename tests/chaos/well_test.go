//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/guests"
	"github.com/virtkit/virtkit/tests/instance"
)

// components are virtkit's, with how many pods each has on two nodes.
var components = map[string]int{names.VirtAPI: 2, names.VirtController: 2, names.VirtHandler: 2}

// well returns a condition that says what is not well after a fault, nil for none: cheap questions first.
func (r *run) well(f *fault) func(context.Context) string {
	return func(ctx context.Context) string {
		err := r.nodesReady(ctx)
		for _, g := range r.vms {
			if err == nil {
				err = r.vmWell(ctx, g, f)
			}
		}
		for _, check := range []func(context.Context, *fault) error{r.componentsReady, r.nothingLeft, r.answers} {
			if err == nil {
				err = check(ctx, f)
			}
		}
		if err != nil {
			return err.Error()
		}
		return ""
	}
}

func (r *run) nodesReady(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := r.Client.List(ctx, nodes); err != nil {
		return err
	}
	for _, node := range nodes.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("%s is not ready: %s", node.Name, c.Message)
			}
		}
		if node.Labels[v1.NodeSchedulable] != "true" {
			return fmt.Errorf("%s takes no VMs", node.Name)
		}
	}
	return nil
}

// vmWell checks that a VM has exactly the guest that it should have, and that the guest writes.
func (r *run) vmWell(ctx context.Context, g *vm, f *fault) error {
	pods, err := r.launchers(ctx, g)
	if err != nil {
		return err
	}
	running := 0
	for _, pod := range pods {
		switch {
		case pod.DeletionTimestamp != nil || g.halted:
			return fmt.Errorf("pod %s is still there, %s", pod.Name, pod.Status.Phase)
		case pod.Status.Phase == corev1.PodRunning:
			running++
		case pod.Status.Phase != corev1.PodSucceeded: // one that the guest has left stays for its log
			return fmt.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
		}
	}
	m, key := &v1.VirtualMachine{}, client.ObjectKey{Namespace: r.ns, Name: g.name}
	if err := r.Client.Get(ctx, key, m); err != nil {
		return err
	}
	qemus, err := g.qemus()
	if err != nil {
		return err
	}
	vmi := &v1.VirtualMachineInstance{}
	err = r.Client.Get(ctx, key, vmi)
	if g.halted {
		switch {
		case err == nil:
			return fmt.Errorf("vmi %s is still there, %s", g.name, vmi.Status.Phase)
		case !apierrors.IsNotFound(err):
			return err
		case m.Status.PrintableStatus != v1.VirtualMachineStatusStopped || m.Status.Ready:
			return fmt.Errorf("vm %s shows %s", g.name, m.Status.PrintableStatus)
		case len(qemus) > 0:
			return fmt.Errorf("vm %s is stopped, and its QEMU runs: %v", g.name, qemus)
		}
		return nil
	}
	switch {
	case err != nil:
		return err
	case m.Status.PrintableStatus != v1.VirtualMachineStatusRunning || !m.Status.Ready:
		return fmt.Errorf("vm %s shows %s, ready %v", g.name, m.Status.PrintableStatus, m.Status.Ready)
	case vmi.Status.Phase != v1.Running || vmi.DeletionTimestamp != nil || !ready(vmi):
		return fmt.Errorf("vmi %s is %s: %+v", g.name, vmi.Status.Phase, vmi.Status.Conditions)
	case running != 1:
		return fmt.Errorf("vm %s has %d launcher pods", g.name, running)
	case len(qemus) != 1:
		return fmt.Errorf("vm %s has QEMUs %v", g.name, qemus)
	}
	if err := g.volumesWell(vmi); err != nil {
		return err
	}
	// What an ended QEMU's guest wrote may still arrive.
	since := g.began(qemus[0])
	if f != nil && f.over.After(since) {
		since = f.over
	}
	if last, at := r.consoles.last(g.name); last.Number == 0 || at.Before(since) {
		return fmt.Errorf("guest %s has written nothing since record %d", g.name, last.Number)
	}
	return nil
}

// began is when a VM's QEMU was seen first.
func (g *vm) began(qemu int) time.Time {
	if g.qemu != qemu {
		g.qemu, g.seen = qemu, time.Now()
	}
	return g.seen
}

func ready(vmi *v1.VirtualMachineInstance) bool {
	for _, c := range vmi.Status.Conditions {
		if c.Type == v1.VirtualMachineInstanceReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (g *vm) volumesWell(vmi *v1.VirtualMachineInstance) error {
	for _, s := range vmi.Status.VolumeStatus {
		switch {
		case s.Name != g.plug():
		case !g.plugged:
			return fmt.Errorf("volume %s is still there, %s", s.Name, s.Phase)
		case s.Phase == v1.VolumeReady:
			return nil
		default:
			return fmt.Errorf("volume %s is %s: %s", s.Name, s.Phase, s.Message)
		}
	}
	if g.plugged {
		return fmt.Errorf("there is no volume %s", g.plug())
	}
	return nil
}

// launchers returns the launcher pods of a VM, and remembers them.
func (r *run) launchers(ctx context.Context, g *vm) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, client.InNamespace(r.ns),
		client.MatchingLabels{names.LabelComponent: names.VirtLauncher}); err != nil {
		return nil, err
	}
	var mine []corev1.Pod
	for _, pod := range pods.Items {
		if pod.Annotations[v1.DomainAnnotation] == g.name {
			g.pods[pod.UID] = true
			mine = append(mine, pod)
		}
	}
	return mine, nil
}

// qemus are the QEMUs of a VM on both nodes, in whichever of its pods.
func (g *vm) qemus() (pids []int, err error) {
	for uid := range g.pods {
		all, err := instance.Processes(string(uid))
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			if strings.HasPrefix(p.Command, "qemu-system") {
				pids = append(pids, p.PID)
			}
		}
	}
	return pids, nil
}

// componentPods returns the pods of one of virtkit's components.
func (r *run) componentPods(ctx context.Context, component string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := r.Client.List(ctx, pods, client.InNamespace(names.Namespace),
		client.MatchingLabels{names.LabelComponent: component})
	return pods.Items, err
}

func (r *run) componentsReady(ctx context.Context, f *fault) error {
	for component, want := range components {
		pods, err := r.componentPods(ctx, component)
		if err != nil {
			return err
		}
		if len(pods) != want {
			return fmt.Errorf("%d pods of %s, want %d", len(pods), component, want)
		}
		for _, pod := range pods {
			if pod.DeletionTimestamp != nil || !podReady(pod) {
				return fmt.Errorf("%s is not ready", pod.Name)
			}
		}
	}
	lease, err := r.Kube.CoordinationV1().Leases(names.Namespace).Get(ctx, names.VirtController, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if f == nil {
		return nil
	}
	if renewed := lease.Spec.RenewTime; f.lease && (renewed == nil || renewed.Time.Before(f.over)) {
		return errors.New("no virt-controller leads")
	}
	if f.replaced == nil {
		return nil
	}
	return f.replaced(ctx)
}

func podReady(pod corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// nothingLeft checks that no migration is under way, that there is no pod beside those that should be, and that the
// nodes have nothing of pods that guests have left: no mounts, volumes, sockets or connections.
func (r *run) nothingLeft(ctx context.Context, _ *fault) error {
	migrations := &v1.VirtualMachineInstanceMigrationList{}
	if err := r.Client.List(ctx, migrations, client.InNamespace(r.ns)); err != nil {
		return err
	}
	for _, m := range migrations.Items {
		if !m.IsFinal() {
			return fmt.Errorf("migration %s is %s", m.Name, m.Status.Phase)
		}
	}
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, client.InNamespace(r.ns)); err != nil {
		return err
	}
	attached, plugged := 0, 0
	for _, pod := range pods.Items {
		if pod.Labels[names.LabelComponent] != names.VirtLauncher {
			attached++
		}
	}
	current := map[string]bool{}
	for _, g := range r.vms {
		if g.plugged && !g.halted {
			plugged++
		}
		launchers, err := r.launchers(ctx, g)
		if err != nil {
			return err
		}
		for _, pod := range launchers {
			if pod.Status.Phase == corev1.PodRunning {
				current[string(pod.UID)] = true
			}
		}
	}
	if attached > plugged {
		return fmt.Errorf("%d pods for volumes that were plugged in, want %d", attached, plugged)
	}
	handlers, err := r.componentPods(ctx, names.VirtHandler)
	if err != nil {
		return err
	}
	for _, handler := range handlers {
		pids, err := processes(string(handler.UID), processServer)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			for _, g := range r.vms {
				if left, err := g.left(pid, current); err != nil || left != "" {
					return fmt.Errorf("%s has %s of VM %s (%v)", handler.Spec.NodeName, left, g.name, err)
				}
			}
		}
	}
	return nil
}

// left is what a node has of pods that a VM's guest is not in.
func (g *vm) left(handler int, current map[string]bool) (string, error) {
	now := ""
	var launchers []int
	var ended []string
	for uid := range g.pods {
		if !current[string(uid)] {
			ended = append(ended, string(uid))
			continue
		}
		now = string(uid)
		var err error
		if launchers, err = processes(now, processLauncher); err != nil {
			return "", err
		}
	}
	return guests.Leftovers(handler, launchers, now, ended), nil
}

// answers checks that requests go all the way: through virt-api's webhooks, and through each node's kubelet and
// containerd.
func (r *run) answers(ctx context.Context, _ *fault) error {
	probe := guests.NewVM(r.ns, "probe", v1.RunStrategyHalted)
	if err := r.Client.Create(ctx, probe, client.DryRunAll); err != nil {
		return err
	}
	subresources := r.Kube.Discovery().RESTClient().Get().AbsPath("/apis/subresources.kubevirt.io/v1")
	if err := subresources.Do(ctx).Error(); err != nil {
		return err
	}
	handlers, err := r.componentPods(ctx, names.VirtHandler)
	if err != nil {
		return err
	}
	for _, pod := range handlers {
		tail := &corev1.PodLogOptions{TailLines: new(int64(1))}
		if err := r.Kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, tail).Do(ctx).Error(); err != nil {
			return fmt.Errorf("log of %s: %w", pod.Name, err)
		}
	}
	return nil
}

// describe logs what a person would look at.
func (r *run) describe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	vmis := &v1.VirtualMachineInstanceList{}
	if err := r.Client.List(ctx, vmis, client.InNamespace(r.ns)); err == nil {
		for _, vmi := range vmis.Items {
			status := vmi.Status
			r.t.Logf("vmi %s: phase %q node %q volumes %+v migration %+v conditions %+v",
				vmi.Name, status.Phase, status.NodeName, status.VolumeStatus, status.MigrationState, status.Conditions)
		}
	}
	for _, ns := range []string{r.ns, names.Namespace} {
		pods, err := r.Kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			r.t.Logf("list pods: %v", err)
			continue
		}
		for _, pod := range pods.Items {
			r.t.Logf("pod %s: %s on %q: %+v", pod.Name, pod.Status.Phase, pod.Spec.NodeName,
				pod.Status.ContainerStatuses)
			tail := &corev1.PodLogOptions{TailLines: new(int64(15))}
			if log, err := r.Kube.CoreV1().Pods(ns).GetLogs(pod.Name, tail).DoRaw(ctx); err == nil {
				r.t.Logf("log of %s:\n%s", pod.Name, log)
			}
		}
	}
	events, err := r.Kube.CoreV1().Events(r.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		r.t.Logf("list events: %v", err)
		return
	}
	for _, e := range events.Items[max(0, len(events.Items)-40):] {
		about := e.InvolvedObject
		r.t.Logf("event %s %s/%s %s: %s", e.LastTimestamp.Format(time.TimeOnly), about.Kind, about.Name, e.Reason,
			e.Message)
	}
}
