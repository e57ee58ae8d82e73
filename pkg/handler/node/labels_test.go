package node

import (
	"os"
	"path/filepath"
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
		got := ""
		if value := labels[v1.CPUManager]; value != nil {
			got = *value
		}
		if err != nil {
			got = "error"
		}
		if _, told := labels[v1.CPUManager]; got != want || !told {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
