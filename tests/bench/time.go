package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/bench/report"
	"github.com/virtkit/virtkit/tests/instance"
)

// patience bounds every wait of the benchmarks.
const patience = 3 * time.Minute

// percentile of samples, 0 < p ≤ 1, by the nearest rank.
func percentile(samples []time.Duration, p float64) float64 {
	return report.Timed("", "", "s", samples, p).Value
}

// warmUp makes the namespace and runs one VM on each node, so that images are unpacked and caches are filled.
func (b *bench) warmUp(ctx context.Context) error {
	ns, err := b.Kube.CoreV1().Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	b.namespace = ns.Name
	nodes, err := b.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for n, node := range nodes.Items {
		vmi := b.vmi(fmt.Sprintf("warm-%d", n))
		vmi.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Labels[corev1.LabelHostname]}
		if _, err := b.untilRunning(ctx, vmi); err != nil {
			return err
		}
		if _, err := b.untilGone(ctx, vmi); err != nil {
			return err
		}
	}
	return nil
}

// leave deletes the namespace of a cluster that stays up.
func (b *bench) leave(err *error) {
	if b.namespace != "" {
		b.cleanUp(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}, err)
	}
}

// vmi is the tiny guest; it is powered off at once when deleted.
func (b *bench) vmi(name string) *v1.VirtualMachineInstance {
	memory, grace := resource.MustParse("128Mi"), int64(0)
	return &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace},
		Spec: v1.VirtualMachineInstanceSpec{
			TerminationGracePeriodSeconds: &grace,
			Domain: v1.DomainSpec{
				Memory: &v1.Memory{Guest: &memory},
				Devices: v1.Devices{
					Disks: []v1.Disk{
						{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
					},
					Interfaces: []v1.Interface{*v1.DefaultMasqueradeNetworkInterface()},
				},
			},
			Networks: []v1.Network{*v1.DefaultPodNetwork()},
			Volumes: []v1.Volume{
				{
					Name:         "root",
					VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: instance.TinyDisk()}},
				},
			},
		},
	}
}

// pod is the plain Pod that VMs are compared with: one unprivileged container from an image that is present. Its grace
// period is not 0, since the API server would then remove it at once, whether or not the container has ended.
func (b *bench) pod(name string) *corev1.Pod {
	grace := int64(15)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name:            "sleep",
				Image:           "ghcr.io/virtkit/virt-launcher:" + instance.ImageTag(),
				ImagePullPolicy: corev1.PullIfNotPresent,
				// It ends at SIGTERM, which the shell, being PID 1, would otherwise not notice.
				Command: []string{"/bin/sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"},
			}},
		},
	}
}

// untilRunning creates the object and returns how long it took to be Running, as a watcher sees it.
func (b *bench) untilRunning(ctx context.Context, object client.Object) (time.Duration, error) {
	list, running := kindOf(object)
	return b.timed(ctx, object, list, func() error { return b.Client.Create(ctx, object) }, running)
}

// untilGone deletes the object and returns how long it took to be gone. A VMI keeps its finalizer until its pod is
// gone.
func (b *bench) untilGone(ctx context.Context, object client.Object) (time.Duration, error) {
	list, _ := kindOf(object)
	return b.timed(ctx, object, list, func() error { return b.Client.Delete(ctx, object) },
		func(e watch.Event) (bool, error) { return e.Type == watch.Deleted, nil })
}

func kindOf(object client.Object) (client.ObjectList, func(watch.Event) (bool, error)) {
	switch object.(type) {
	case *corev1.Pod:
		return &corev1.PodList{}, func(e watch.Event) (bool, error) {
			pod, ok := e.Object.(*corev1.Pod)
			return ok && pod.Status.Phase == corev1.PodRunning, nil
		}
	case *v1.VirtualMachineInstanceMigration:
		return &v1.VirtualMachineInstanceMigrationList{}, func(e watch.Event) (bool, error) {
			m, ok := e.Object.(*v1.VirtualMachineInstanceMigration)
			if ok && m.Status.Phase == v1.MigrationFailed {
				return false, fmt.Errorf("migration %s failed: %s", m.Name, m.Status.MigrationState.FailureReason)
			}
			return ok && m.Status.Phase == v1.MigrationSucceeded, nil
		}
	default:
		return &v1.VirtualMachineInstanceList{}, func(e watch.Event) (bool, error) {
			vmi, ok := e.Object.(*v1.VirtualMachineInstance)
			if ok && vmi.Status.Phase == v1.Failed {
				return false, fmt.Errorf("vmi %s failed: %+v", vmi.Name, vmi.Status.Conditions)
			}
			return ok && vmi.Status.Phase == v1.Running, nil
		}
	}
}

// timed opens a watch on the one object, acts, and returns how long it took until the watch satisfied the condition.
func (b *bench) timed(
	ctx context.Context, object client.Object, list client.ObjectList, act func() error,
	done func(watch.Event) (bool, error),
) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w, err := b.Client.Watch(ctx, list, client.InNamespace(object.GetNamespace()),
		client.MatchingFields{"metadata.name": object.GetName()})
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	start := time.Now()
	if err := act(); err != nil {
		return 0, err
	}
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return 0, fmt.Errorf("the watch on %s ended", object.GetName())
			}
			if e.Type == watch.Error {
				return 0, apierrors.FromObject(e.Object)
			}
			ready, err := done(e)
			if err != nil {
				return 0, err
			}
			if ready {
				return time.Since(start), nil
			}
		case <-ctx.Done():
			return 0, fmt.Errorf("%s: nothing within %v", object.GetName(), patience)
		}
	}
}

func createRunning(ctx context.Context, b *bench) ([]Row, error) {
	var vmis, pods []time.Duration
	for i := range b.rounds {
		pod, vmi := b.pod(fmt.Sprintf("plain-%d", i)), b.vmi(fmt.Sprintf("one-%d", i))
		for object, samples := range map[client.Object]*[]time.Duration{pod: &pods, vmi: &vmis} {
			took, err := b.untilRunning(ctx, object)
			if err != nil {
				return nil, err
			}
			*samples = append(*samples, took)
			if _, err := b.untilGone(ctx, object); err != nil {
				return nil, err
			}
		}
	}
	return []Row{
		report.Timed("create-running", "create → Running, median", "s", vmis, .5).
			Beside("plain Pod", pods, .5).
			Times(1.3),
		report.Timed("create-running-p95", "create → Running, p95", "s", vmis, .95).
			Beside("plain Pod, median", pods, .5).Times(1.5),
	}, nil
}

func tenAtOnce(ctx context.Context, b *bench) ([]Row, error) {
	burst := func(make func(i int) client.Object) ([]time.Duration, error) {
		const n = 10
		took, errs := [n]time.Duration{}, [n]error{}
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { took[i], errs[i] = b.untilRunning(ctx, make(i)) })
		}
		all.Wait()
		for i := range n {
			if errs[i] != nil {
				return nil, errs[i]
			}
		}
		for i := range n {
			all.Go(func() { _, errs[i] = b.untilGone(ctx, make(i)) })
		}
		all.Wait()
		for i := range n {
			if errs[i] != nil {
				return nil, errs[i]
			}
		}
		return took[:], nil
	}
	var pods, vmis []time.Duration
	for round := range max(b.rounds/3, 1) {
		took, err := burst(func(i int) client.Object { return b.pod(fmt.Sprintf("burst-pod-%d-%d", round, i)) })
		if err != nil {
			return nil, err
		}
		pods = append(pods, took...)
		if took,
			err = burst(func(i int) client.Object { return b.vmi(fmt.Sprintf("burst-vmi-%d-%d", round, i)) }); err !=
			nil {
			return nil, err
		}
		vmis = append(vmis, took...)
	}
	return []Row{
		report.Timed("ten-at-once", "ten at once → Running, median", "s", vmis, .5).
			Beside("ten plain Pods", pods, .5).Times(2),
		report.Timed("ten-at-once-p95", "ten at once → Running, p95", "s", vmis, .95).
			Beside("ten plain Pods", pods, .95).Times(2.5),
	}, nil
}

// deletion spreads the deletions over the kubelet's second: it looks for ended containers once a second, and one
// that begins a fixed time after the object has become Running, thus after such a look, would always wait as long.
func deletion(ctx context.Context, b *bench) ([]Row, error) {
	const settled, second, repeated = 2 * time.Second, time.Second, 2
	var samples, pods []time.Duration
	rounds := repeated * b.rounds
	for i := range rounds {
		pod, vmi := b.pod(fmt.Sprintf("gone-pod-%d", i)), b.vmi(fmt.Sprintf("gone-%d", i))
		for object, into := range map[client.Object]*[]time.Duration{pod: &pods, vmi: &samples} {
			if _, err := b.untilRunning(ctx, object); err != nil {
				return nil, err
			}
			time.Sleep(settled + second*time.Duration(i)/time.Duration(rounds))
			took, err := b.untilGone(ctx, object)
			if err != nil {
				return nil, err
			}
			*into = append(*into, took)
		}
	}
	return []Row{report.Timed("delete", "delete, grace 0 → VMI and pod gone, median", "s", samples, .5).
		Beside("plain Pod", pods, .5).Times(1)}, nil
}
