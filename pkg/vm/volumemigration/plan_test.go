package volumemigration

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func TestNewClaim(t *testing.T) {
	const gibibyte = 1 << 30
	files, block := corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock
	old := "fast"
	long := strings.Repeat("a", 80)
	for name, c := range map[string]struct {
		from, size string
		mode       corev1.PersistentVolumeMode
		disk       int64
		to         Target
		taken      []string
		// want are the new claim's name, class, mode and size.
		want string
	}{
		"the same":    {"data", "1Gi", block, gibibyte, Target{}, nil, "data-m1 fast Block 1Gi"},
		"a class":     {"data", "1Gi", block, gibibyte, Target{Class: "slow"}, nil, "data-m1 slow Block 1Gi"},
		"taken":       {"data", "1Gi", block, 0, Target{}, []string{"data-m1", "data-m2"}, "data-m3 fast Block 1Gi"},
		"again":       {"data-m2", "1Gi", block, 0, Target{}, []string{"data-m1"}, "data-m3 fast Block 1Gi"},
		"and again":   {"data-m1", "1Gi", block, 0, Target{}, nil, "data-m2 fast Block 1Gi"},
		"to a file":   {"data", "1Gi", block, gibibyte, Target{Mode: files}, nil, "data-m1 fast File 1191Mi"},
		"no size":     {"data", "1Gi", block, 0, Target{Mode: files}, nil, "data-m1 fast File 1191Mi"},
		"a full file": {"data", "1Gi", files, gibibyte, Target{}, nil, "data-m1 fast File 1Gi"},
		"its class":   {"data", "1Gi", files, gibibyte, Target{Class: "fast"}, nil, "data-m1 fast File 1Gi"},
		"a full one":  {"data", "1Gi", files, gibibyte, Target{Class: "slow"}, nil, "data-m1 slow File 1191Mi"},
		"room":        {"data", "2Gi", files, gibibyte, Target{}, nil, "data-m1 fast File 2Gi"},
		"to a device": {"data", "2Gi", files, gibibyte, Target{Mode: block}, nil, "data-m1 fast Block 2Gi"},
		"a long name": {long, "1Gi", block, 0, Target{}, nil, ""}, // a checksum in it
	} {
		t.Run(name, func(t *testing.T) {
			from := found(c.from, c.size, c.mode)
			from.Spec.StorageClassName = &old
			got := NewClaim(from, c.disk, c.to, func(name string) bool { return slices.Contains(c.taken, name) })
			text := strings.Join([]string{
				got.Name, *got.Spec.StorageClassName, strings.TrimSuffix(string(*got.Spec.VolumeMode), "system"),
				got.Spec.Resources.Requests.Storage().String(),
			}, " ")
			if c.from == long {
				if len(got.Name) > 63 || !strings.HasSuffix(got.Name, "-m1") {
					t.Errorf("%q", got.Name)
				}
				return
			}
			if text != c.want {
				t.Errorf("%q, want %q", text, c.want)
			}
		})
	}
}

// A claim is what its target says, where that says something.
func TestNewClaimAccess(t *testing.T) {
	from := found("data", "1Gi", corev1.PersistentVolumeBlock)
	from.Namespace, from.Spec.AccessModes = "team", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	free := func(string) bool { return false }
	if got := NewClaim(from, 0, Target{}, free); got.Namespace != "team" ||
		got.Spec.AccessModes[0] != corev1.ReadWriteMany {
		t.Errorf("%+v", got)
	}
	once := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	if got := NewClaim(from, 0, Target{Access: once}, free); !slices.Equal(got.Spec.AccessModes, once) {
		t.Errorf("%+v", got.Spec.AccessModes)
	}
}

// What a claim has is kept where its new class has it, too; what flags say is kept in any case.
func TestTargetBy(t *testing.T) {
	block, files := corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	many := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	once := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	sets := []cdiv1.ClaimPropertySet{{AccessModes: many, VolumeMode: &block}, {AccessModes: once, VolumeMode: &files}}
	for name, c := range map[string]struct {
		mode     corev1.PersistentVolumeMode
		access   []corev1.PersistentVolumeAccessMode
		to, want Target
		sets     []cdiv1.ClaimPropertySet
	}{
		"unknown":      {block, many, Target{Class: "x"}, Target{Class: "x"}, nil},
		"as it is":     {files, once, Target{}, Target{}, sets},
		"the best":     {files, many, Target{}, Target{Mode: block, Access: many}, sets},
		"of a mode":    {block, many, Target{Mode: files}, Target{Mode: files, Access: once}, sets},
		"of an access": {block, many, Target{Access: once}, Target{Mode: files, Access: once}, sets},
		"neither": {
			block, many, Target{Mode: files, Access: many}, Target{Mode: files, Access: many}, sets,
		},
	} {
		from := found("data", "1Gi", c.mode)
		from.Spec.AccessModes = c.access
		if got := c.to.By(from, c.sets); got.Mode != c.want.Mode || !slices.Equal(got.Access, c.want.Access) ||
			got.Class != c.want.Class {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
