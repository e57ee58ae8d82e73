package vmicontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/virtkit/virtkit/pkg/config"
)

func TestLimitCPU(t *testing.T) {
	for name, tc := range map[string]struct {
		vmi            string
		request, limit string
	}{
		"by its vCPUs":    {`spec: {domain: {cpu: {cores: 2, sockets: 2, threads: 1}}}`, "400m", "4"},
		"its own":         {`spec: {domain: {resources: {limits: {cpu: "3"}}}}`, "3", "3"},
		"requests less":   {`spec: {domain: {resources: {requests: {cpu: 200m}}}}`, "200m", "1"},
		"requests more":   {`spec: {domain: {resources: {requests: {cpu: 1500m}}}}`, "1500m", "1500m"},
		"CPUs of its own": {`spec: {domain: {cpu: {cores: 2, dedicatedCpuPlacement: true}}}`, "2", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			got := plan(t, tc.vmi, func(f *Facts) { f.LimitCPU = true }).Spec.Containers[0].Resources
			if got.Requests.Cpu().String() != tc.request || got.Limits.Cpu().String() != tc.limit {
				t.Errorf("requests %s, limit %s", got.Requests.Cpu(), got.Limits.Cpu())
			}
		})
	}
	vmi := parseVMI(t, `spec: {domain: {cpu: {sockets: 3}}}`)
	if _, fit := Sizes(vmi, config.Default(), true); fit.Limits.Cpu().String() != "3" {
		t.Errorf("a guest that grows has %+v", fit)
	}
}

func TestLimitsCPU(t *testing.T) {
	namespace := func(name, tier string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": tier}}}
	}
	live := fake.NewClientBuilder().WithObjects(namespace("a", "shared"), namespace("b", "own")).Build()
	installation := config.Default()
	if got, err := LimitsCPU(t.Context(), nil, installation, "a"); got || err != nil {
		t.Errorf("unless set: %v, %v", got, err)
	}
	installation.LimitedNamespaces = labels.SelectorFromSet(labels.Set{"tier": "shared"})
	for name, want := range map[string]bool{"a": true, "b": false} {
		if got, err := LimitsCPU(t.Context(), live, installation, name); got != want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := LimitsCPU(t.Context(), live, installation, "gone"); err == nil {
		t.Error("no error without the namespace")
	}
}

// The configuration says what containers beside a guest's ask for, but for a guest with CPUs of its own.
func TestSupportContainers(t *testing.T) {
	given := &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("77Mi")}}
	facts := func(f *Facts) { f.Config.Support = config.Support{ConsoleLog: given, Attachment: given} }
	log := plan(t, `spec: {domain: {devices: {logSerialConsole: true}}}`, facts).Spec.InitContainers[0]
	if got := log.Resources.Requests.Memory().String(); got != "77Mi" {
		t.Errorf("guest-console-log requests %s", got)
	}
	log = plan(t, `spec: {domain: {cpu: {dedicatedCpuPlacement: true}, devices: {logSerialConsole: true}}}`, facts).Spec.InitContainers[0]
	if got := log.Resources; got.Limits.Cpu().IsZero() || !got.Limits.Memory().Equal(*got.Requests.Memory()) {
		t.Errorf("beside a guest with CPUs of its own %+v", got)
	}
	f := Facts{}
	facts(&f)
	if got := Attachment(&v1.VirtualMachineInstance{}, nil, &corev1.Pod{}, f).Spec.Containers[0].Resources; got.Requests.Memory().String() != "77Mi" || got.Limits != nil {
		t.Errorf("the attachment pod's %+v", got)
	}
}
