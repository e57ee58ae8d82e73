package root

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// guestLines need the guest of VM NAME to run.
var guestLines = []string{
	"cp NAME:/x DIR/x", "cp FILE NAME:/x", "top NAME", "exec NAME -- true", "ssh root@NAME --timeout 0 true",
	"scp --timeout 0 root@NAME:x DIR/x",
	"console NAME", "console NAME --timeout 1m", "vnc NAME --proxy-only", "vnc NAME --web",
	"vnc screenshot NAME -f DIR/x", "usbredir NAME --no-launch",
	"port-forward NAME 0:22 --stdio", "expect NAME -", "logs NAME", "logs NAME vm/NAME", "fslist NAME", "userlist NAME",
	"guestosinfo NAME", "firewall show NAME",
	"pause NAME", "unpause NAME", "reset NAME --yes", "soft-reboot NAME", "restart NAME --yes", "migrate NAME",
	"migrate NAME --plan", "volume migrate NAME --storage-class fast",
	"memory-dump get NAME --claim-name disk", "memory-dump get NAME --claim-name disk --create-claim",
}

// vmLines need VM NAME, and no guest.
var vmLines = []string{
	"start NAME", "stop NAME --yes", "delete NAME --yes", "rename NAME other --yes", "rename NAME other --dry-run",
	"describe NAME", "why NAME", "why NAME --migrate",
	"list NAME", "events NAME", "evacuate-cancel vm NAME", "edit NAME", "set cpu NAME 2", "set memory NAME 2Gi",
	"set qos NAME --none",
	"migrate-cancel NAME",
	"set instancetype NAME x", "set preference NAME x",
	"set run-strategy NAME Manual", "expand --vm NAME", "objectgraph NAME", "addvolume NAME --volume-name disk",
	"removevolume NAME --volume-name disk", "memory-dump remove NAME",
	"expose vm NAME --name x --port 22", "snapshot create NAME", "clone NAME copy",
	"volume migrate NAME --cancel",
	"wait NAME --for agent --timeout 5s", "wait NAME --for login --timeout 5s",
	"adm log-verbosity --vm NAME", "credentials add-ssh-key NAME --user root --value KEY",
	"credentials set-password NAME --user root --password secret",
	"credentials remove-ssh-key NAME --user root --value KEY", "port-forward NAME 0:22",
}

// TestStoppedMachine runs every verb that needs a guest on a VM that is stopped: each says so and how to start it.
func TestStoppedMachine(t *testing.T) {
	for _, line := range guestLines {
		code, out := runMachine(t, line, "off")
		if want := "start it with `virtctl start off`"; code != cli.ExitFailure || !strings.Contains(out, want) {
			t.Errorf("virtctl %s: code %d, want %d, and %q in\n%s", line, code, cli.ExitFailure, want, out)
		}
		if strings.Contains(out, "not found") {
			t.Errorf("virtctl %s: a VM that is there is not found:\n%s", line, out)
		}
	}
}

// TestMissingMachine runs every verb on a VM that does not exist: the one phrase is the API server's, about the VM that
// was asked for, and the code is 3.
func TestMissingMachine(t *testing.T) {
	phrase := regexp.MustCompile(
		`(?m)(^|[ :])virtualmachines\.kubevirt\.io "nope" not found(;| in namespace "default"|$)`)
	for _, line := range append(guestLines, vmLines...) {
		code, out := runMachine(t, line, "nope")
		if code != cli.ExitNotFound || !phrase.MatchString(out) {
			t.Errorf("virtctl %s: code %d, want %d and %s in\n%s", line, code, cli.ExitNotFound, phrase, out)
		}
		for _, other := range []string{"there is no", "VM or VMI", `virtualmachineinstances.kubevirt.io "nope"`} {
			if strings.Contains(out, other) {
				t.Errorf("virtctl %s says %q:\n%s", line, other, out)
			}
		}
	}
}

// runMachine runs a line of a table about a VM, and returns what was written.
func runMachine(t *testing.T, line, name string) (int, string) {
	t.Helper()
	kubeconfig := server(t, func(w http.ResponseWriter, r *http.Request) { machineServer(t, w, r) })
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	writeFile(t, file, "x")
	for _, variable := range []string{"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"} {
		t.Setenv(variable, dir)
	}
	var out bytes.Buffer
	f := cli.NewFactory("virtctl", &cli.IOStreams{In: strings.NewReader("print \"x\"\n"), Out: &out, ErrOut: &out},
		func(name string) string { return map[string]string{"KUBECONFIG": kubeconfig}[name] })
	ctx, cancel := contextFor(t)
	defer cancel()
	line = strings.NewReplacer("FILE", file, "DIR", dir, "NAME", name).Replace(line)
	code := Run(ctx, f, append([]string{"--kubeconfig", kubeconfig}, fields(line)...))
	return code, out.String()
}

// listKinds are the kinds of lists by resource.
var listKinds = map[string]string{
	"virtualmachines": "VirtualMachineList", "virtualmachineinstances": "VirtualMachineInstanceList",
	"virtualmachineinstancemigrations": "VirtualMachineInstanceMigrationList",
	"kubevirts":                        "KubeVirtList",
}

// needsGuest are the subresources of a VM that the server refuses while it is stopped.
var needsGuest = regexp.MustCompile(`^/(restart|migrate|memorydump|portforward/.*)$`)

// machineServer has one VM, off, which is stopped, a KubeVirt resource, and whatever else is asked for by list none.
func machineServer(t *testing.T, w http.ResponseWriter, r *http.Request) {
	code, answer := http.StatusOK,
		map[string]any{"kind": "Status", "apiVersion": "v1", "gitVersion": "v1", "platform": "linux"}
	path := strings.Split(r.URL.Path, "/")
	group, version := "", "v1"
	if len(path) > 3 && path[1] == "apis" {
		group, version = path[2], path[3]
	}
	one, list := onePath.FindStringSubmatch(r.URL.Path), listPath.FindStringSubmatch(r.URL.Path)
	if len(path) > 6 && one == nil && list == nil { // …/portforward/22/tcp
		one = []string{"", path[6], path[7], "/" + strings.Join(path[8:], "/")}
	}
	vm := map[string]any{
		"kind": "VirtualMachine", "apiVersion": "kubevirt.io/v1",
		"metadata": map[string]any{"name": "off", "namespace": "default", "uid": "u", "resourceVersion": "1"},
		"spec": map[string]any{
			"runStrategy": "Halted",
			"template": map[string]any{
				"spec": map[string]any{"domain": map[string]any{"devices": map[string]any{}}},
			},
		},
		"status": map[string]any{"printableStatus": "Stopped"},
	}
	switch {
	case r.Method == http.MethodPost:
		answer = map[string]any{}
		if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
			t.Error(err)
		}
		if strings.HasSuffix(r.URL.Path, "reviews") {
			answer["status"] = map[string]any{"allowed": true}
		}
	case list != nil:
		items := []any{}
		if selector := r.URL.Query().Get("fieldSelector"); list[1] == "virtualmachines" &&
			(selector == "" || strings.Contains(selector, "name=off")) {
			items = append(items, vm)
		} else if list[1] == "kubevirts" {
			items = append(items, map[string]any{
				"kind":       "KubeVirt",
				"apiVersion": "kubevirt.io/v1",
				"metadata":   map[string]any{"name": "kubevirt", "namespace": "kubevirt"},
			})
		}
		answer = map[string]any{
			"kind":       cmp.Or(listKinds[list[1]], "List"),
			"apiVersion": strings.TrimPrefix(group+"/"+version, "/"),
			"metadata":   map[string]any{"resourceVersion": "1"},
			"items":      items,
		}
	case one != nil && one[1] == "virtualmachines" && one[2] == "off" && one[3] == "":
		answer = vm
	case one != nil && one[1] == "virtualmachines" && one[2] == "off" && needsGuest.MatchString(one[3]):
		code, answer = http.StatusConflict, map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": http.StatusConflict,
			"reason": "Conflict", "message": "VirtualMachine default/off: VM is not running",
			"details": map[string]any{"name": "off", "group": "kubevirt.io", "kind": "virtualmachines"},
		}
	case one != nil:
		group = strings.TrimPrefix(group, "subresources.")
		code, answer = http.StatusNotFound, map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": http.StatusNotFound,
			"reason":  "NotFound",
			"message": strings.TrimSuffix(one[1]+"."+group, ".") + ` "` + one[2] + `" not found`,
			"details": map[string]any{"name": one[2], "group": group, "kind": one[1]},
		}
	}
	data, err := json.Marshal(answer)
	if err != nil {
		t.Error(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data) // a client that has gone
}
