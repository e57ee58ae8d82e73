package payload

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// noDADSays runs the plugin as containerd does, and reads its answer.
func noDADSays(t *testing.T, wantExit int, environment ...string) map[string]any {
	t.Helper()
	cmd := exec.Command("sh", "no-dad.sh")
	cmd.Env = append(cmd.Environ(), environment...)
	cmd.Stdin = strings.NewReader(`{"cniVersion": "1.0.0"}`)
	out, err := cmd.Output()
	exit := new(exec.ExitError)
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != wantExit) || err == nil && wantExit != 0 {
		t.Fatalf("%v: %v, want exit code %d", environment, err, wantExit)
	}
	var answer map[string]any
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatalf("%v: %v: %q", environment, err, out)
	}
	return answer
}

// The plugin speaks CNI: its version, and what failed. What it does to a pod, the end-to-end test of IPv6 shows.
func TestNoDAD(t *testing.T) {
	if v := noDADSays(t, 0, "CNI_COMMAND=VERSION"); v["cniVersion"] != "1.0.0" {
		t.Errorf("version: %v", v)
	}
	v := noDADSays(t, 1, "CNI_COMMAND=ADD", `CNI_NETNS=/no such "place"`)
	if message, ok := v["msg"].(string); !ok || v["code"] != 100.0 || !strings.Contains(message, "accept_dad") {
		t.Errorf("a namespace that is not there: %v", v)
	}
}
