//go:build integration

package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/manifests"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/env"
)

// cluster is the API server that all tests share, each in a namespace of its own; writes is what
// virt-controller, which runs all along, wrote to it.
var (
	cluster *env.Environment
	writes  = &writeLog{}

	stopController func() error
)

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if cluster, err = env.Start(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if err := errors.Join(grant(ctx), createKubeVirt(ctx)); err != nil {
		return 0, err
	}
	stopController = startController(ctx)
	defer func() { err = errors.Join(err, stopController(), writes.refused()) }()
	return m.Run(), nil
}

// grant applies virt-controller's rights as they are installed, so that a test fails where they do
// not suffice.
func grant(ctx context.Context) error {
	file, err := manifests.FS.Open("base/rbac-virt-controller.yaml")
	if err != nil {
		return err
	}
	defer file.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read virt-controller's rights: %w", err)
		}
		if err := cluster.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

// createKubeVirt makes the resource that the controller waits for, and the node of all tests but those
// about nodes.
func createKubeVirt(ctx context.Context) error {
	_, err := cluster.CreateNode(ctx, "node01")
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: names.KubeVirt, Namespace: names.Namespace}}
	return errors.Join(err, cluster.Client.Create(ctx, kv))
}

// startController runs virt-controller until stop.
func startController(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	options := Options{
		LauncherImage: "registry.example/virt-launcher:test", ServerImage: "registry.example/virt-server:test",
		ImagePullPolicy: string(corev1.PullIfNotPresent),
		NodeTimeout:     5 * time.Minute, LeaderElect: true, Identity: "test", HealthAddress: "0",
		FenceAfter: fenceAfter, freezer: guests,
	}
	config := rest.CopyConfig(cluster.Config)
	config.Wrap(writes.wrap)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + names.Namespace + ":" + names.VirtController,
		Groups: []string{
			"system:serviceaccounts", "system:serviceaccounts:" + names.Namespace, "system:authenticated",
		},
	}
	done := make(chan error, 1)
	go func() { done <- options.RunWith(ctx, config) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// writeLog notes every request that changes something, leases apart.
type writeLog struct {
	mu               sync.Mutex
	lines, forbidden []string
	// last is a part of the line of the write after which virt-controller is as good as killed: it does not see the
	// answer, and writes nothing any more. cut says that it is so.
	last string
	cut  bool
	// first is the first line since killAfter.
	first int
}

// errKilled is what a virt-controller sees that is as good as killed.
var errKilled = errors.New("virt-controller is killed")

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (l *writeLog) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		phase := phaseSet(r)
		if r.Method != http.MethodGet && l.killed() {
			return nil, errKilled
		}
		response, err := next.RoundTrip(r)
		if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") {
			code := 0
			if response != nil {
				code = response.StatusCode
			}
			if l.add(fmt.Sprintf("%s %s%s %d", r.Method, r.URL.Path, phase, code)) {
				if response != nil {
					response.Body.Close()
				}
				return nil, errKilled
			}
		}
		if response != nil && response.StatusCode == http.StatusForbidden {
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			response.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte("cannot ")) { // Else admission refused, a quota for example.
				l.mu.Lock()
				l.forbidden = append(l.forbidden, r.Method+" "+r.URL.Path)
				l.mu.Unlock()
			}
		}
		return response, err
	})
}

// add notes a write, and reports whether virt-controller is killed by it.
func (l *writeLog) add(line string) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	if l.last == "" || !strings.Contains(line, l.last) {
		return false
	}
	l.last, l.cut = "", true
	return true
}

func (l *writeLog) killed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// killAfter has virt-controller killed by its next write whose line has a text; "" takes that back, and lets it write.
func (l *writeLog) killAfter(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.cut, l.first = text, false, len(l.lines)
}

// armed reports whether a write is to kill virt-controller, and has not.
func (l *writeLog) armed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last != ""
}

// wrote reports whether a line with a text was written since killAfter. That of a request whose sender has ended before
// the answer has the code 0 in place of the text's: it may have been carried out.
func (l *writeLog) wrote(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	unanswered := text
	if i := strings.LastIndexByte(text, ' '); i >= 0 {
		unanswered = text[:i] + " 0"
	}
	return slices.ContainsFunc(l.lines[l.first:],
		func(line string) bool { return strings.Contains(line, text) || strings.Contains(line, unanswered) })
}

// phaseSet returns " phase X" of a request that writes this phase.
func phaseSet(r *http.Request) string {
	if r.Body == nil {
		return ""
	}
	sent, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(sent), iotest.ErrReader(cmp.Or(err, io.EOF))))
	var object struct{ Status struct{ Phase string } }
	if json.Unmarshal(sent, &object) != nil || object.Status.Phase == "" { // or protobuf, for Kubernetes' own kinds
		return ""
	}
	return " phase " + object.Status.Phase
}

// refused is an error that lists what virt-controller had no right to.
func (l *writeLog) refused() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.forbidden) == 0 {
		return nil
	}
	return fmt.Errorf("virt-controller has no right to:\n%s", strings.Join(l.forbidden, "\n"))
}

// in returns the writes to a namespace.
func (l *writeLog) in(namespace string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, line := range l.lines {
		if strings.Contains(line, "/namespaces/"+namespace+"/") {
			out = append(out, line)
		}
	}
	return out
}

// test is one test's namespace.
type test struct {
	*testing.T
	ctx       context.Context
	namespace string
}

// newTest is for a test that runs beside others.
func newTest(t *testing.T) *test {
	t.Helper()
	t.Parallel()
	return newSerialTest(t)
}

// newSerialTest is for a test that runs alone, before those of newTest.
func newSerialTest(t *testing.T) *test {
	t.Helper()
	namespace := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(t.Name(), "Test"), "/", "-"))
	if err := cluster.CreateNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	tt := &test{T: t, ctx: t.Context(), namespace: namespace}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("virt-controller wrote:\n%s", strings.Join(writes.in(namespace), "\n"))
		}
		tt.endMigrations()
	})
	return tt
}

func (t *test) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition, and says what it was about when it does not come.
func (t *test) eventually(what string, condition func() (bool, error)) {
	t.Helper()
	err := env.Eventually(t.ctx, func(context.Context) (bool, error) { return condition() })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// createVM makes a VM with a container disk and, with claims named, their volumes.
func (t *test) createVM(strategy v1.VirtualMachineRunStrategy, claims ...string) *v1.VirtualMachine {
	t.Helper()
	spec := v1.VirtualMachineInstanceSpec{
		Architecture: "amd64",
		Domain:       v1.DomainSpec{Memory: &v1.Memory{Guest: new(quantity("128Mi"))}},
		Volumes: []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{
			ContainerDisk: &v1.ContainerDiskSource{Image: "registry.example/tiny:1"},
		}}},
	}
	for _, claim := range claims {
		source := &v1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName = claim
		spec.Volumes = append(spec.Volumes,
			v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}})
	}
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: t.namespace},
		Spec: v1.VirtualMachineSpec{RunStrategy: &strategy, Template: &v1.VirtualMachineInstanceTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: spec,
		}},
	}
	t.must(cluster.Client.Create(t.ctx, vm))
	return vm
}

// waitVM waits until the VM is as it should be.
func (t *test) waitVM(what string, condition func(*v1.VirtualMachine) bool) *v1.VirtualMachine {
	t.Helper()
	vm := &v1.VirtualMachine{}
	t.eventually("VM: "+what, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key("demo"), vm)
		return err == nil && condition(vm), err
	})
	return vm
}

func (t *test) waitPrintable(want v1.VirtualMachinePrintableStatus) *v1.VirtualMachine {
	t.Helper()
	return t.waitVM(string(want), func(vm *v1.VirtualMachine) bool { return vm.Status.PrintableStatus == want })
}

func (t *test) waitVMI(what string, condition func(*v1.VirtualMachineInstance) bool) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	t.eventually("VMI: "+what, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key("demo"), vmi)
		return err == nil && condition(vmi), err
	})
	return vmi
}

func (t *test) waitPhase(want v1.VirtualMachineInstancePhase) *v1.VirtualMachineInstance {
	t.Helper()
	return t.waitVMI(string(want), func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.Phase == want })
}

// waitAnother waits for a VMI other than one that was there before.
func (t *test) waitAnother(old types.UID) *v1.VirtualMachineInstance {
	t.Helper()
	return t.waitVMI("a new one", func(vmi *v1.VirtualMachineInstance) bool { return vmi.UID != old })
}

// waitPod waits for the launcher pod of a VMI.
func (t *test) waitPod(vmi *v1.VirtualMachineInstance) *corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	t.eventually("pod", func() (bool, error) {
		err := cluster.Client.List(t.ctx, &pods, client.InNamespace(t.namespace),
			client.MatchingLabels{v1.CreatedByLabel: string(vmi.UID)})
		return len(pods.Items) > 0, err
	})
	if len(pods.Items) != 1 {
		t.Fatalf("%d pods for one VMI", len(pods.Items))
	}
	return &pods.Items[0]
}

// run takes the VM's instance to Running on a node.
func (t *test) run(node string) (*v1.VirtualMachineInstance, *corev1.Pod) {
	t.Helper()
	vmi := t.waitVMI("there", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.DeletionTimestamp == nil && !vmi.IsFinal()
	})
	pod := t.waitPod(vmi)
	t.must(cluster.Bind(t.ctx, pod, node))
	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) { status.Phase = corev1.PodRunning }))
	vmi = t.waitVMI("scheduled", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == v1.Scheduled && vmi.Labels[v1.NodeNameLabel] == node
	})
	t.must(cluster.SetVMIPhase(t.ctx, vmi, v1.Running))
	return vmi, pod
}

// endPod plays the kubelet that ends a deleted pod. One that was over needs none to go.
func (t *test) endPod(pod *corev1.Pod) {
	t.Helper()
	t.eventually("pod deleted", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(pod), pod)
		return apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil, client.IgnoreNotFound(err)
	})
	t.must(client.IgnoreNotFound(cluster.RemovePod(t.ctx, pod)))
}

// request asks for state changes as virt-api does.
func (t *test) request(requests ...v1.VirtualMachineStateChangeRequest) {
	t.Helper()
	vm := &v1.VirtualMachine{}
	t.must(cluster.Client.Get(t.ctx, t.key("demo"), vm))
	before := vm.DeepCopy()
	vm.Status.StateChangeRequests = requests
	t.must(cluster.Client.Status().Patch(t.ctx, vm, client.MergeFrom(before)))
}

func (t *test) waitGone(object client.Object) {
	t.Helper()
	t.eventually(fmt.Sprintf("%T gone", object), func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

func (t *test) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: t.namespace, Name: name}
}
