//go:build integration

package handler

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/manifests"
	"github.com/virtkit/virtkit/pkg/controller/certificates"
	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/tests/env"
)

// TestAgainstAPIServer runs virt-handler as it is installed, with the rights of the manifests, through
// one VMI's life.
func TestAgainstAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	e, err := env.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	}()
	create := func(o client.Object) {
		t.Helper()
		if err := e.Client.Create(ctx, o); err != nil {
			t.Fatalf("create %s: %v", o.GetName(), err)
		}
	}
	eventually := func(what string, f func() (bool, error)) {
		t.Helper()
		if err := env.Eventually(ctx, func(context.Context) (bool, error) { return f() }); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	grant(t, create)
	if _, err := e.CreateNode(ctx, nodeName); err != nil {
		t.Fatal(err)
	}
	clientConfig := makeCertificates(t, e.Config)

	// The VMI and its pod get their UIDs from the server.
	vmi := newVMI()
	vmi.UID = ""
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{}
	status := vmi.Status
	create(vmi)
	pod := newPod()
	pod.UID = ""
	pod.Labels[v1.CreatedByLabel] = string(vmi.UID)
	pod.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind),
	}
	create(pod)
	status.ActivePods = map[types.UID]string{pod.UID: nodeName}
	vmi.Status = status
	if err := e.Client.Status().Update(ctx, vmi); err != nil {
		t.Fatal(err)
	}

	w := newWorld(t)
	w.must(writeFile(filepath.Join(w.proc, "cgroup"), "0::/kubepods/pod"+string(pod.UID)+"/c\n"))
	writes := &writeLog{}
	config := rest.CopyConfig(e.Config)
	config.Wrap(writes.wrap)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + names.Namespace + ":" + names.VirtHandler,
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {nodeName}},
	}
	o := options{
		node: nodeName, namespace: names.Namespace, pods: w.node.PodsDir, proc: w.node.ProcDir, state: t.TempDir(),
		devices: t.TempDir(), device: filepath.Join(t.TempDir(), "kvm"), modules: t.TempDir(),
		port: freePort(t), healthPort: freePort(t), apiQPS: 50, apiBurst: 100,
	}
	handling, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- o.runWith(handling, config, slog.New(slog.NewTextHandler(io.Discard, nil)), &slog.LevelVar{})
	}()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("virt-handler: %v", err)
		}
		var node corev1.Node
		if err := e.Client.Get(ctx, types.NamespacedName{Name: nodeName}, &node); err != nil ||
			node.Labels[v1.NodeSchedulable] != "false" {
			t.Errorf("after the end: labels %v, %v", node.Labels, err)
		}
		if refused := writes.refused(); len(refused) > 0 {
			t.Errorf("virt-handler has no right to %v", refused)
		}
	}()

	eventually("ready", func() (bool, error) {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", o.healthPort))
		if err != nil {
			return false, nil
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
	eventually("schedulable", func() (bool, error) {
		var node corev1.Node
		err := e.Client.Get(ctx, types.NamespacedName{Name: nodeName}, &node)
		return node.Labels[v1.NodeSchedulable] == "true" && node.Annotations[v1.VirtHandlerHeartbeat] != "", err
	})
	w.startLauncherOf(pod.UID)
	phase := func(want v1.VirtualMachineInstancePhase) {
		t.Helper()
		eventually("phase "+string(want), func() (bool, error) {
			err := e.Client.Get(ctx, client.ObjectKeyFromObject(vmi), vmi)
			return vmi.Status.Phase == want, err
		})
	}
	phase(v1.Running)

	serial, err := listenIn(podfs.RunPath(w.node.PodsDir, pod.UID), names.SocketSerial)
	if err != nil {
		t.Fatal(err)
	}
	defer serial.Close()
	target := &url.URL{
		Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", o.port),
		Path: "/v1/namespaces/default/virtualmachineinstances/demo/console",
	}
	console, err := stream.DialURL(ctx, target, clientConfig, nil, stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	guest, err := serial.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Write([]byte("login: ")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 7)
	if _, err := io.ReadFull(console, got); err != nil || string(got) != "login: " {
		t.Errorf("console said %q, %v", got, err)
	}
	console.Close()
	guest.Close()
	stranger := clientConfig.Clone()
	stranger.GetClientCertificate = nil
	if c, err := stream.DialURL(ctx, target, stranger, nil, stream.Options{}); err == nil {
		c.Close()
		t.Error("a client without a certificate was served")
	}

	if err := e.Client.Delete(ctx, vmi); err != nil {
		t.Fatal(err)
	}
	eventually("shutdown", func() (bool, error) { _, s := w.launcher.counts(); return len(s) > 0, nil })
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, "shutdown")
	phase(v1.Succeeded)
	eventually("events", func() (bool, error) {
		var list corev1.EventList
		err := e.Client.List(ctx, &list, client.InNamespace("default"))
		var reasons []string
		for _, event := range list.Items {
			if event.Source.Component == names.VirtHandler && event.InvolvedObject.Name == "demo" {
				reasons = append(reasons, event.Reason)
			}
		}
		slices.Sort(reasons)
		return slices.Equal(reasons, []string{"Created", "Deleted", "ShuttingDown", "Started", "Stopped"}), err
	})
	if n := writes.count("/virtualmachineinstances/demo/status"); n != 2 {
		t.Errorf("%d writes of the status, want one for Running and one for Succeeded:\n%s", n,
			strings.Join(writes.all(), "\n"))
	}
}

// grant applies the rights that are installed, and the policies that bind them.
func grant(t *testing.T, create func(client.Object)) {
	t.Helper()
	for _, name := range []string{"base/rbac-virt-handler.yaml", "base/policy-virt-handler.yaml"} {
		data, err := manifests.FS.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			create(object)
		}
	}
}

// makeCertificates has an authority made, which signs what virt-handler asks for, and returns virt-api's configuration.
func makeCertificates(t *testing.T, config *rest.Config) *tls.Config {
	t.Helper()
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	rotator := certificates.New(clientset, dynamicClient, nil, certs.DefaultPolicy, logr.Discard())
	api := certs.NewSource(clientset, names.Namespace, names.APICertSecret)
	var running errgroup.Group
	running.Go(func() error { return rotator.Start(ctx) })
	running.Go(func() error { return api.Run(ctx) })
	t.Cleanup(func() {
		stop()
		if err := running.Wait(); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-api.Ready():
	case <-time.After(time.Minute):
		t.Fatal("virt-api has no certificate")
	}
	return api.HandlerConfig(nodeName)
}

// freePort returns a port that nothing uses. It is below those that the system gives to connections and listeners that
// ask for any, one of which would have it before it is listened on.
func freePort(t *testing.T) int {
	t.Helper()
	const least, most = 10_000, 32_000
	for range 100 {
		port := least + rand.IntN(most-least)
		l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// writeLog notes the requests that change something.
type writeLog struct {
	mu               sync.Mutex
	lines, forbidden []string
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (l *writeLog) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		l.mu.Lock()
		defer l.mu.Unlock()
		if r.Method != http.MethodGet {
			l.lines = append(l.lines, r.Method+" "+r.URL.Path)
		}
		if response != nil && response.StatusCode == http.StatusForbidden {
			l.forbidden = append(l.forbidden, r.Method+" "+r.URL.Path)
		}
		return response, err
	})
}

func (l *writeLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func (l *writeLog) refused() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.forbidden)
}

func (l *writeLog) count(path string) int {
	n := 0
	for _, line := range l.all() {
		if strings.HasSuffix(line, path) {
			n++
		}
	}
	return n
}

// listenIn makes a socket in a directory, however long its path is, that stays when it is closed, as
// after kill -9.
func listenIn(path, name string) (net.Listener, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	listener, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name))
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	return listener, nil
}
