package sizing

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func spec(t *testing.T, text string) *v1.DomainSpec {
	t.Helper()
	out := &v1.DomainSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSockets(t *testing.T) {
	for text, want := range map[string][3]int{
		`{devices: {}}`: {1, 1, 1},
		`{devices: {}, cpu: {sockets: 2, cores: 3, maxSockets: 4}}`:             {2, 4, 3},
		`{devices: {}, cpu: {cores: 2}}`:                                        {1, 1, 2},
		`{devices: {}, cpu: {model: x}, resources: {requests: {cpu: 1500m}}}`:   {2, 2, 1},
		`{devices: {}, resources: {requests: {cpu: 4}, limits: {cpu: 3}}}`:      {3, 3, 1},
		`{devices: {}, cpu: {sockets: 8, maxSockets: 2}}`:                       {8, 8, 1},
		`{devices: {}, cpu: {sockets: 1, cores: 1, threads: 2, maxSockets: 2}}`: {1, 2, 2},
	} {
		domain := spec(t, text)
		online, most := Sockets(domain)
		if got := [3]int{online, most, PerSocket(domain)}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// VCPUs is what the guest has, Product what domain.cpu says.
func TestVCPUs(t *testing.T) {
	for text, want := range map[string]struct {
		vcpus   int
		product int64
	}{
		`{devices: {}, cpu: {}}`:                                        {1, 1},
		`{devices: {}, cpu: {sockets: 2, cores: 3, threads: 2}}`:        {12, 12},
		`{devices: {}, cpu: {sockets: 2, maxSockets: 8}}`:               {2, 2},
		`{devices: {}, cpu: {}, resources: {requests: {cpu: 3500m}}}`:   {4, 1},
		`{devices: {}, cpu: {cores: 2}, resources: {limits: {cpu: 8}}}`: {2, 2},
		`{devices: {}, cpu: {cores: 4194304}}`:                          {MaxVCPUs, 4 << 20},
		`{devices: {}, cpu: {sockets: 2147483648, cores: 2147483648, threads: 2147483648}}`: {
			(1 << 31) * MaxVCPUs, math.MaxInt64,
		},
	} {
		domain := spec(t, text)
		if vcpus, product := VCPUs(domain), Product(domain.CPU); vcpus != want.vcpus || product != want.product {
			t.Errorf("%s: %d vCPUs, product %d", text, vcpus, product)
		}
	}
}

func TestDefaults(t *testing.T) {
	const gib = 1 << 30
	ratio := Bounds{Ratio: 4}
	for name, tc := range map[string]struct {
		bounds  Bounds
		text    string
		sockets uint32
		guest   int64
	}{
		"ratio":          {ratio, `{cpu: {sockets: 2, cores: 2}, memory: {guest: 1Gi}}`, 8, 4 * gib},
		"no ratio":       {Bounds{Ratio: 1}, `{cpu: {sockets: 2}, memory: {guest: 1Gi}}`, 2, 0},
		"a small guest":  {ratio, `{cpu: {sockets: 1}, memory: {guest: 512Mi}}`, 4, 0},
		"many vCPUs":     {ratio, `{cpu: {sockets: 40, cores: 2}, memory: {guest: 1Gi}}`, 127, 4 * gib},
		"too many vCPUs": {ratio, `{cpu: {sockets: 4000, cores: 2}, memory: {guest: 1Gi}}`, 4000, 4 * gib},
		"bounds": {
			Bounds{Ratio: 4, MaxSockets: 3, MaxGuest: 2*gib + 1},
			`{cpu: {sockets: 2}, memory: {guest: 1Gi}}`, 3,
			2 * gib,
		},
		"beyond the bounds": {
			Bounds{Ratio: 4, MaxSockets: 1, MaxGuest: gib}, `{cpu: {sockets: 2}, memory: {guest: 2Gi}}`, 2, 0,
		},
		"no ACPI": {
			ratio, `{cpu: {sockets: 2}, memory: {guest: 1Gi}, features: {acpi: {enabled: false}}}`, 0, 0,
		},
		"odd memory": {ratio, `{cpu: {sockets: 1}, memory: {guest: 1073741825}}`, 4, 0},
		"huge pages": {
			ratio, `{cpu: {sockets: 1}, memory: {guest: 2Gi, hugepages: {pageSize: 1Gi}}}`, 4, 8 * gib,
		},
		"between huge pages": {ratio, `{cpu: {sockets: 1}, memory: {guest: 1025Mi, hugepages: {pageSize: 1Gi}}}`, 4, 0},
		"encrypted":          {ratio, `{cpu: {sockets: 1}, launchSecurity: {sev: {}}, memory: {guest: 1Gi}}`, 4, 0},
		"encrypted state": {
			ratio, `{cpu: {sockets: 1}, launchSecurity: {sev: {policy: {encryptedState: true}}}, memory: {guest: 1Gi}}`,
			0, 0,
		},
		"realtime": {ratio, `{cpu: {sockets: 1, realtime: {}}, memory: {guest: 1Gi}}`, 4, 0},
		"mapped NUMA": {
			ratio, `{cpu: {sockets: 1, numa: {guestMappingPassthrough: {}}}, memory: {guest: 1Gi}}`, 0, 0,
		},
		"no memory":          {ratio, `{cpu: {sockets: 1}}`, 4, 0},
		"more than there is": {ratio, `{cpu: {sockets: 1}, memory: {guest: 1Ei}}`, 4, 0},
	} {
		domain := spec(t, tc.text[:1]+"devices: {}, "+tc.text[1:])
		if got := tc.bounds.DefaultMaxSockets(domain); got != tc.sockets {
			t.Errorf("%s: maxSockets %d, want %d", name, got, tc.sockets)
		}
		if got := tc.bounds.DefaultMaxGuest(domain); got != tc.guest {
			t.Errorf("%s: maxGuest %d, want %d", name, got, tc.guest)
		}
	}
}

// A domain that does not say how much memory its guest has means what its pod asks for.
func TestMemory(t *testing.T) {
	list := func(memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	guest := resource.MustParse("1Gi")
	for name, c := range map[string]struct {
		domain v1.DomainSpec
		want   string
		said   bool
	}{
		"nothing": {v1.DomainSpec{}, "0", false},
		"the guest's": {
			v1.DomainSpec{Memory: &v1.Memory{Guest: &guest}, Resources: v1.ResourceRequirements{Requests: list("2Gi")}},
			"1Gi", true,
		},
		"the pod's request": {
			v1.DomainSpec{Resources: v1.ResourceRequirements{Requests: list("2Gi"), Limits: list("3Gi")}}, "2Gi", true,
		},
		"the pod's limit": {v1.DomainSpec{Resources: v1.ResourceRequirements{Limits: list("3Gi")}}, "3Gi", true},
		"one huge page":   {v1.DomainSpec{Memory: &v1.Memory{Hugepages: &v1.Hugepages{PageSize: "2Mi"}}}, "2Mi", true},
		"a page of no size": {
			v1.DomainSpec{Memory: &v1.Memory{Hugepages: &v1.Hugepages{PageSize: "large"}}}, "0", false,
		},
	} {
		if got, said := Memory(&c.domain); got.String() != c.want || said != c.said {
			t.Errorf("%s: %s, %t", name, got.String(), said)
		}
	}
}

func TestNoUnit(t *testing.T) {
	for text, want := range map[string]bool{"128": true, "100m": true, "1023Ki": true, "1Mi": false, "2Gi": false} {
		if got := NoUnit(resource.MustParse(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
