package nodestatus

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestCPUManager(t *testing.T) {
	for text, want := range map[string]string{
		"": "", `{"policyName":"none"}`: "", `{"policyName":"static","defaultCpuSet":"0-3"}`: "true", `{`: "error",
	} {
		dir := t.TempDir()
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, "cpu_manager_state"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		labels, err := CPUManager(dir)()
		got := labels.Labels[v1.CPUManager]
		if err != nil {
			got = "error"
		}
		if got != want || (err == nil) != labels.owns(v1.CPUManager) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestChange(t *testing.T) {
	wanted := Wanted{
		Labels: map[string]string{
			v1.CPUModelLabel + "Penryn":        "true",
			v1.CPUTimerLabel + "tsc-frequency": "2",
			v1.CPUFeatureLabel + "aes":         "true",
		},
		Owned: []string{v1.CPUModelLabel, v1.CPUFeatureLabel, v1.CPUTimerLabel, v1.CPUManager},
	}
	change := wanted.change(map[string]string{
		v1.CPUModelLabel + "Penryn": "true", v1.CPUModelLabel + "Gone": "true", v1.CPUTimerLabel + "tsc-frequency": "1",
		v1.CPUManager:              "true",
		v1.CPUManager + "-of-mine": "true", "kubernetes.io/os": "linux",
		"scheduling.node.kubevirt.io/tsc-frequency-1": "true",
	})
	got := map[string]string{}
	for key, value := range change {
		got[key] = "removed"
		if value != nil {
			got[key] = *value
		}
	}
	want := map[string]string{
		v1.CPUModelLabel + "Gone": "removed", v1.CPUTimerLabel + "tsc-frequency": "2",
		v1.CPUFeatureLabel + "aes": "true", v1.CPUManager: "removed",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestHostFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing": {nil, nil},
		"off": {
			map[string]string{
				"kvm_amd/parameters/sev":         "N",
				"kvm_intel/parameters/tdx":       "0",
				"sys/kernel/sched_rt_runtime_us": "950000\n",
			},
			nil,
		},
		"SEV only": {
			map[string]string{"kvm_amd/parameters/sev": "Y\n", "kvm_amd/parameters/sev_es": "N\n"},
			[]string{v1.SEVLabel},
		},
		"all of AMD": {
			map[string]string{
				"kvm_amd/parameters/sev":     "1",
				"kvm_amd/parameters/sev_es":  "Y",
				"kvm_amd/parameters/sev_snp": "Y",
			},
			[]string{v1.SEVLabel, v1.SEVESLabel, v1.SEVSNPLabel},
		},
		"Intel, real time": {
			map[string]string{"kvm_intel/parameters/tdx": "Y", "sys/kernel/sched_rt_runtime_us": "-1\n"},
			[]string{v1.RealtimeLabel, v1.TDXLabel},
		},
	} {
		dir := t.TempDir()
		for path, text := range tc.files {
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		wanted, err := All(Confidential(dir), Realtime(dir))()
		if got := slices.Sorted(maps.Keys(wanted.Labels)); err != nil || !slices.Equal(got, tc.want) ||
			len(wanted.Owned) != 5 {
			t.Errorf("%s: %v, owned %v, %v", name, got, wanted.Owned, err)
		}
	}
}
