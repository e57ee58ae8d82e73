//go:build e2e

package compat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
	kvcorev1 "kubevirt.io/client-go/kubevirt/typed/core/v1"
)

func connect(t *testing.T) (kubecli.KubevirtClient, string) {
	t.Helper()
	kubeconfig := os.Getenv("VIRTKIT_COMPAT_KUBECONFIG")
	if kubeconfig == "" {
		kubeconfig = clientcmd.RecommendedHomeFile
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatalf("load %s: %v", kubeconfig, err)
	}
	client, err := kubecli.GetKubevirtClientFromRESTConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "compat-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.Background(),
			ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace: %v", err)
		}
	})
	return client, ns.Name
}

func image() string {
	if image := os.Getenv("VIRTKIT_COMPAT_IMAGE"); image != "" {
		return image
	}
	return "ghcr.io/virtkit/tiny-disk:dev"
}

func machine(ns string) *v1.VirtualMachine {
	strategy, memory := v1.RunStrategyManual, resource.MustParse("128Mi")
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "compat", Namespace: ns, Labels: map[string]string{"team": "sea"}},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template: &v1.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: map[string]string{"app": "compat"}, Annotations: map[string]string{"note": "kept"},
				},
				Spec: v1.VirtualMachineInstanceSpec{
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
							VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: image()}},
						},
					},
				},
			},
		},
	}
}

// What a KubeVirt client writes comes back as it was, but for defaults that were not set: reading an object back and
// writing it again changes nothing.
func TestRoundTrip(t *testing.T) {
	client, ns := connect(t)
	created, err := client.VirtualMachine(ns).Create(t.Context(), machine(ns), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := machine(ns)
	if !equalJSON(t, created.Labels, want.Labels) ||
		!equalJSON(t, created.Spec.Template.ObjectMeta, want.Spec.Template.ObjectMeta) {
		t.Errorf("metadata changed: %+v %+v", created.Labels, created.Spec.Template.ObjectMeta)
	}
	if !equalJSON(t, created.Spec.Template.Spec.Volumes, want.Spec.Template.Spec.Volumes) ||
		!equalJSON(t, created.Spec.Template.Spec.Networks, want.Spec.Template.Spec.Networks) {
		t.Errorf("spec changed: %+v", created.Spec.Template.Spec)
	}
	var got, again *v1.VirtualMachine
	// The controller, too, has things to write to a new VM.
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if got, err = client.VirtualMachine(ns).Get(t.Context(), created.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		again, err = client.VirtualMachine(ns).Update(t.Context(), got.DeepCopy(), metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !equalJSON(t, got.Spec, again.Spec) {
		t.Errorf("writing what was read changed the spec:\n%+v\n%+v", got.Spec, again.Spec)
	}
	if got.Generation != again.Generation {
		t.Errorf("writing what was read made generation %d of %d", again.Generation, got.Generation)
	}
}

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}

// A VM's life through KubeVirt's client: create, watch, start, console, stop.
func TestLife(t *testing.T) {
	client, ns := connect(t)
	vm, err := client.VirtualMachine(ns).Create(t.Context(), machine(ns), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := client.VirtualMachineInstance(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if err := client.VirtualMachine(ns).Start(t.Context(), vm.Name, &v1.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, watcher, 2*time.Minute, "running", func(e watch.Event, vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == v1.Running
	})

	stream, err := client.VirtualMachineInstance(ns).SerialConsole(vm.Name,
		&kvcorev1.SerialConsoleOptions{ConnectionTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	in, keyboard := io.Pipe()
	screen := &seen{}
	ended := make(chan error, 1)
	go func() { ended <- stream.Stream(kvcorev1.StreamOptions{In: in, Out: screen}) }()
	deadline := time.After(2 * time.Minute)
	enter := time.NewTicker(2 * time.Second)
	defer enter.Stop()
	for !screen.matches(`login: `) {
		select {
		case <-enter.C:
			if _, err := keyboard.Write([]byte("\r")); err != nil {
				t.Fatal(err)
			}
		case err := <-ended:
			t.Fatalf("the console ended: %v; output:\n%s", err, screen)
		case <-deadline:
			t.Fatalf("no login prompt; output:\n%s", screen)
		}
	}
	keyboard.Close()
	checkScreen(t, client, ns, vm.Name)

	if err := client.VirtualMachine(ns).Stop(t.Context(), vm.Name, &v1.StopOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, watcher, time.Minute, "deleted", func(e watch.Event, vmi *v1.VirtualMachineInstance) bool {
		return e.Type == watch.Deleted
	})
	if _, err := client.ServerVersion().Get(); err != nil {
		t.Errorf("version: %v", err)
	}
}

// checkScreen takes a screenshot, and opens the VNC server.
func checkScreen(t *testing.T, client kubecli.KubevirtClient, ns, name string) {
	t.Helper()
	shot, err := client.VirtualMachineInstance(ns).Screenshot(t.Context(), name,
		&v1.ScreenshotOptions{MoveCursor: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := png.DecodeConfig(bytes.NewReader(shot)); err != nil {
		t.Errorf("screenshot of %d bytes: %v", len(shot), err)
	}
	vnc, err := client.VirtualMachineInstance(ns).VNC(name, false)
	if err != nil {
		t.Fatal(err)
	}
	in, typing := io.Pipe()
	defer typing.Close()
	hello := &seen{}
	ended := make(chan error, 1)
	go func() { ended <- vnc.Stream(kvcorev1.StreamOptions{In: in, Out: hello}) }()
	tick, deadline := time.NewTicker(50*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !hello.matches(`^RFB 003\.008\n`) {
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatalf("vnc ended: %v", err)
		case <-deadline:
			t.Fatalf("the VNC server says %q", hello)
		}
	}
}

func await(t *testing.T, w watch.Interface, within time.Duration, what string,
	done func(watch.Event, *v1.VirtualMachineInstance) bool,
) {
	t.Helper()
	deadline := time.After(within)
	last := ""
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended before the instance was %s (%s)", what, last)
			}
			vmi, ok := e.Object.(*v1.VirtualMachineInstance)
			if !ok {
				t.Fatalf("watch gave %T", e.Object)
			}
			last = fmt.Sprintf("%s, phase %s", e.Type, vmi.Status.Phase)
			if done(e, vmi) {
				return
			}
		case <-deadline:
			t.Fatalf("the instance was not %s within %v (%s)", what, within, last)
		}
	}
}
