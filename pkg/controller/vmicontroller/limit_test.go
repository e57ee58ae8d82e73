package vmicontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/virtkit/virtkit/pkg/service/config"
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
			got := plan(t, tc.vmi, func(f *Facts) { f.Limits.CPU = true }).Spec.Containers[0].Resources
			if got.Requests.Cpu().String() != tc.request || got.Limits.Cpu().String() != tc.limit {
				t.Errorf("requests %s, limit %s", got.Requests.Cpu(), got.Limits.Cpu())
			}
		})
	}
	vmi := parseVMI(t, `spec: {domain: {cpu: {sockets: 3}}}`)
	if _, fit := Sizes(vmi, config.Default(), Limits{CPU: true}); fit.Limits.Cpu().String() != "3" {
		t.Errorf("a guest that grows has %+v", fit)
	}
}

// The limit is in bytes as a multiple of the request, or what the guest and its overhead take.
func TestLimitMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		vmi        string
		ratio      float64
		limited    bool
		times      float64 // of the request
		guest      int64   // else the guest's memory in the container, MiB
		overcommit uint
	}{
		"none":           {vmi: "", ratio: 0},
		"twice":          {vmi: "", ratio: 2, limited: true, times: 2},
		"one and a half": {vmi: "", ratio: 1.5, limited: true, times: 1.5},
		"as much":        {vmi: "", ratio: 1, limited: true, times: 1},
		"its own": {
			vmi: `spec: {domain: {resources: {limits: {memory: 128Mi}}}}`, ratio: 2, limited: true, times: 1,
		},
		"CPUs of its own": {
			vmi: `spec: {domain: {cpu: {dedicatedCpuPlacement: true}}}`, ratio: 2, limited: true, times: 1,
		},
		"huge pages": {
			vmi: `spec: {domain: {memory: {hugepages: {pageSize: 2Mi}}}}`, ratio: 2, limited: true, times: 2,
		},
		"requests little": {
			vmi: `spec: {domain: {memory: {guest: 1Gi}, resources: {requests: {memory: 64Mi}}}}`, ratio: 2,
			limited: true,
			guest:   1024,
		},
		"overcommitted": {
			vmi: `spec: {domain: {memory: {guest: 4Gi}}}`, ratio: 2, limited: true, guest: 4096, overcommit: 800,
		},
		"without its overhead": {
			vmi:   `spec: {domain: {resources: {overcommitGuestOverhead: true}}}`,
			ratio: 1, limited: true, guest: 128,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := plan(t, tc.vmi, func(f *Facts) {
				f.Limits.MemoryRatio = tc.ratio
				if tc.overcommit > 0 {
					f.Config.MemoryOvercommit = int(tc.overcommit)
				}
			}).Spec.Containers[0].Resources
			limit, limited := got.Limits[corev1.ResourceMemory]
			want := int64(float64(got.Requests.Memory().Value()) * tc.times)
			if tc.guest > 0 {
				want = tc.guest*mebi + Overhead(parseVMI(t, tc.vmi), 1)
			}
			if limited != tc.limited || limit.Value() != want {
				t.Errorf("requests %s, limit %s (%d), want %d", got.Requests.Memory(), &limit, limit.Value(), want)
			}
		})
	}
	if got := limitMemory(resource.MustParse("1Ei"), 100, 0); got.Sign() <= 0 {
		t.Errorf("more than there are bytes: %s", got.String())
	}
}

// A quota that counts limits counts those of all of a pod's containers.
func TestLimitsOfAllContainers(t *testing.T) {
	facts := func(f *Facts) { f.Limits = Limits{CPU: true, MemoryRatio: 2} }
	overlay := `
spec:
  domain: {devices: {logSerialConsole: true, filesystems: [{name: data, virtiofs: {}}]}}
  volumes: [{name: data, persistentVolumeClaim: {claimName: fs}}]`
	pod := plan(t, overlay, facts)
	attachment := Attachment(parseVMI(t, ""), nil, &corev1.Pod{}, Facts{Config: config.Default()})
	all := append(append(pod.Spec.InitContainers, pod.Spec.Containers...), attachment.Spec.Containers...)
	if len(all) != 4 {
		t.Fatalf("%d containers", len(all))
	}
	for i := range all {
		limits := all[i].Resources.Limits
		if limits.Cpu().IsZero() || limits.Memory().IsZero() {
			t.Errorf("%s has limits %v", all[i].Name, limits)
		}
	}
}

func TestLimitsIn(t *testing.T) {
	quota := func(names ...corev1.ResourceName) corev1.ResourceQuota {
		hard := corev1.ResourceList{}
		for _, name := range names {
			hard[name] = resource.MustParse("1")
		}
		return corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	}
	ratio := func(text string) labels.Set { return labels.Set{v1.AutoMemoryLimitsRatioLabel: text} }
	memory := []corev1.ResourceQuota{quota(corev1.ResourceLimitsMemory)}
	for name, tc := range map[string]struct {
		labels labels.Set
		quotas []corev1.ResourceQuota
		want   Limits
	}{
		"no quota":      {},
		"a ratio alone": {labels: ratio("3")},
		"of requests":   {quotas: []corev1.ResourceQuota{quota(corev1.ResourceRequestsCPU, corev1.ResourceMemory)}},
		"of CPU":        {quotas: []corev1.ResourceQuota{quota(corev1.ResourceLimitsCPU)}, want: Limits{CPU: true}},
		"of memory":     {quotas: memory, want: Limits{MemoryRatio: 2}},
		"of both, in two": {
			quotas: append(memory, quota(corev1.ResourceLimitsCPU)), want: Limits{CPU: true, MemoryRatio: 2},
		},
		"ratio":             {labels: ratio("1.25"), quotas: memory, want: Limits{MemoryRatio: 1.25}},
		"ratio less than 1": {labels: ratio("0.5"), quotas: memory, want: Limits{MemoryRatio: 2}},
		"no ratio":          {labels: ratio("much"), quotas: memory, want: Limits{MemoryRatio: 2}},
		"NaN":               {labels: ratio("NaN"), quotas: memory, want: Limits{MemoryRatio: 2}},
		"infinite":          {labels: ratio("Inf"), quotas: memory, want: Limits{MemoryRatio: 2}},
		"by configuration":  {labels: labels.Set{"tier": "shared"}, want: Limits{CPU: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := limitsIn(tc.labels, tc.quotas,
				labels.SelectorFromSet(labels.Set{"tier": "shared"})); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestReadLimits(t *testing.T) {
	namespace := func(name, tier string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": tier}}}
	}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "q"},
		Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourceLimitsMemory: resource.MustParse("1Gi")},
		},
	}
	live := fake.NewClientBuilder().WithObjects(namespace("a", "shared"), namespace("b", "own"), quota).Build()
	installation := config.Default()
	if got, err := ReadLimits(t.Context(), live, installation, "a"); got != (Limits{}) || err != nil {
		t.Errorf("unless set: %v, %v", got, err)
	}
	installation.LimitedNamespaces = labels.SelectorFromSet(labels.Set{"tier": "shared"})
	for name, want := range map[string]Limits{"a": {CPU: true}, "b": {MemoryRatio: 2}} {
		if got, err := ReadLimits(t.Context(), live, installation, name); got != want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := ReadLimits(t.Context(), live, installation, "gone"); err == nil {
		t.Error("no error without the namespace")
	}
}

// The configuration says what containers beside a guest's ask for, but for a guest with CPUs of its own.
func TestSupportContainers(t *testing.T) {
	given := &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("77Mi")},
	}
	facts := func(f *Facts) { f.Config.Support = config.Support{ConsoleLog: given, Attachment: given} }
	log := plan(t, `spec: {domain: {devices: {logSerialConsole: true}}}`, facts).Spec.InitContainers[0]
	if got := log.Resources.Requests.Memory().String(); got != "77Mi" {
		t.Errorf("guest-console-log requests %s", got)
	}
	log = plan(t, `spec: {domain: {cpu: {dedicatedCpuPlacement: true}, devices: {logSerialConsole: true}}}`,
		facts).Spec.InitContainers[0]
	if got := log.Resources; got.Limits.Cpu().IsZero() || !got.Limits.Memory().Equal(*got.Requests.Memory()) {
		t.Errorf("beside a guest with CPUs of its own %+v", got)
	}
	f := Facts{}
	facts(&f)
	if got := Attachment(&v1.VirtualMachineInstance{}, nil, &corev1.Pod{},
		f).Spec.Containers[0].Resources; got.Requests.Memory().String() != "77Mi" || got.Limits != nil {
		t.Errorf("the attachment pod's %+v", got)
	}
}
