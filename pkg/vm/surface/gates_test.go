package surface

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

func TestValidateGates(t *testing.T) {
	for name, tc := range map[string]struct{ gate, spec, want string }{
		"none needed": {"", "{}", ""},
		"host disk": {
			GateHostDisk, "volumes: [{name: root, hostDisk: {path: /d/disk.img, type: Disk}}]",
			"spec.volumes[0].hostDisk",
		},
		"metrics disk": {
			GateDownwardMetrics, "volumes: [{name: root, downwardMetrics: {}}]", "spec.volumes[0].downwardMetrics",
		},
		"vsock":      {GateVSOCK, "domain: {devices: {autoattachVSOCK: true}}", "spec.domain.devices.autoattachVSOCK"},
		"no vsock":   {"", "domain: {devices: {autoattachVSOCK: false}}", ""},
		"encryption": {GateWorkloadEncryptionSEV, "domain: {launchSecurity: {sev: {}}}", "spec.domain.launchSecurity"},
		"metrics device": {
			GateDownwardMetrics, "domain: {devices: {downwardMetrics: {}}}", "spec.domain.devices.downwardMetrics",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &instance(t, tc.spec).Spec
			got := Message(validateGates(spec, nil, field.NewPath("spec")))
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if tc.gate == "" {
				return
			}
			if !strings.Contains(got, "can add "+tc.gate+" to ") {
				t.Errorf("%q names not the gate", got)
			}
			developer := &v1.DeveloperConfiguration{FeatureGates: []string{"Snapshot", tc.gate}}
			if errs := validateGates(spec, OpenGates(developer), field.NewPath("spec")); errs != nil {
				t.Errorf("with the gate open: %s", Message(errs))
			}
			developer.DisabledFeatureGates = []string{tc.gate}
			if errs := validateGates(spec, OpenGates(developer), field.NewPath("spec")); errs == nil {
				t.Error("a disabled gate is open")
			}
		})
	}
}

func TestKubeVirtWarnings(t *testing.T) {
	kv := &v1.KubeVirt{}
	kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{
		FeatureGates: []string{
			"HostDisk", "LiveMigration", "RebootPolicy", "ReservedOverheadMemlock", "Sidecar", "Snapshot",
		},
		DisabledFeatureGates: []string{"DownwardMetrics", "LiveMigration", "Snapshot"},
	}
	want := []string{
		"spec.configuration.developerConfiguration.featureGates: virtkit has no gate Sidecar: it has no effect " +
			"(see docs/api-surface.md for what there is)",
		"spec.configuration.developerConfiguration.disabledFeatureGates: virtkit has no gate LiveMigration that " +
			"could be closed: it has no effect",
	}
	if diff := cmp.Diff(want, KubeVirtWarnings(kv)); diff != "" {
		t.Error(diff)
	}
}

// Snapshots are allowed unless an administrator closes KubeVirt's gate.
func TestSnapshotGate(t *testing.T) {
	for name, tc := range map[string]struct {
		developer *v1.DeveloperConfiguration
		none      bool
	}{
		"says nothing": {nil, false},
		"opened":       {&v1.DeveloperConfiguration{FeatureGates: []string{"Snapshot"}}, false},
		"closed": {
			&v1.DeveloperConfiguration{FeatureGates: []string{"Snapshot"}, DisabledFeatureGates: []string{"Snapshot"}},
			true,
		},
	} {
		if got := AllowedBy(&v1.KubeVirtConfiguration{DeveloperConfiguration: tc.developer},
			"amd64").NoSnapshots; got != tc.none {
			t.Errorf("%s: no snapshots %t", name, got)
		}
	}
}
