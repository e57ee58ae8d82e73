package root

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/tests/hostile"
)

// commandLines are what each command of the tree is run with. One that writes nothing about a cluster has none, and
// says why.
var commandLines = map[string][]string{
	"list": {
		"list", "list -o wide -A", "list vmpools", "list vmirs", "list -o name",
		"list -o custom-columns=A:.metadata.annotations,B:.status.conditions",
	},
	"describe":    {"describe demo", "describe vmi/demo"},
	"events":      {"events", "events demo", "events -A"},
	"top":         {"top", "top -A"},
	"why":         {"why demo", "why demo --migrate", "why other", "why demo --from 192.0.2.7 --port 80"},
	"doctor":      {"doctor", "doctor --quiet"},
	"evacuate":    {"evacuate node1 --dry-run=client", "evacuate node1 --yes --wait=false"},
	"start":       {"start demo"},
	"stop":        {"stop demo --yes"},
	"restart":     {"restart demo --yes"},
	"pause":       {"pause demo"},
	"unpause":     {"unpause demo"},
	"reset":       {"reset demo --yes"},
	"soft-reboot": {"soft-reboot demo"},
	"migrate": {
		"migrate demo --plan", "migrate demo", "volume migrate demo --storage-class fast --plan",
		"volume migrate demo --storage-class fast", "volume migrate demo --cancel",
	},
	"migrate-cancel":    {"migrate-cancel demo"},
	"evacuate-cancel":   {"evacuate-cancel vm demo"},
	"delete":            {"delete demo --yes"},
	"rename":            {"rename demo other --yes", "rename demo other --dry-run"},
	"undo":              {"undo --list"},
	"scale":             {"scale vmpool/sites --replicas 2"},
	"diff":              {"diff -f FILE"},
	"edit":              {"edit demo --dry-run", "edit vmi/demo"},
	"cpu":               {"set cpu demo 2", "set instancetype demo x", "set preference demo x"},
	"memory":            {"set memory demo 2Gi", "set memory demo 2Gi --dry-run"},
	"run-strategy":      {"set run-strategy demo Manual --dry-run=client"},
	"qos":               {"set qos demo --disk root=bps=1Mi", "set qos demo --none --dry-run"},
	"eviction-strategy": {"set eviction-strategy demo None"},
	"wait":              {"wait demo --for condition=Nothing --timeout 10ms", "wait demo --for agent --timeout 10ms"},
	"expand":            {"expand --vm demo -o name"},
	"objectgraph":       {"objectgraph demo -o name"},
	"addvolume":         {"addvolume demo --volume-name disk --dry-run"},
	"removevolume":      {"removevolume demo --volume-name disk"},
	"resize":            {"volume resize demo disk 20Gi --dry-run", "volume resize demo disk 20Gi"},
	"get":               {"memory-dump get demo --claim-name disk"},
	"remove":            {"memory-dump remove demo"},
	"image-upload": {
		"image-upload pvc disk --image-path FILE --wait-secs 1", "image-upload pvc disk --cancel",
		"image-upload pvc disk --image-path FILE --wait-secs 1 --via=native",
	},
	"guestfs": {"guestfs disk --timeout 10ms", "guestfs disk --image x --vm demo --timeout 10ms -- true"},
	"image":   {"image list", "image list -A", "image show debian"},
	"pull":    {"image pull debian/13 --arch s390x"}, // nothing is downloaded
	"import":  {"image import FILE golden/1 --size 1Gi --wait-secs 1", "import FILE"},
	"export":  {"export demo DIR/demo.tar --readiness-timeout 10ms", "export snapshot/snap DIR/snap.tar"},
	"add": {
		"image add golden/1 --size 1Gi --url https://example.com/x --checksums https://example.com/y",
	},
	"rm":       {"image rm debian/13 --yes", "create vm --name x --image debian"},
	"vmexport": {"vmexport create x --vm demo", "vmexport delete x"},
	"download": {
		"vmexport download x --output DIR/x --readiness-timeout 10ms",
		"vmexport download x --vm demo --manifest --readiness-timeout 10ms",
	},
	"guestosinfo": {"guestosinfo demo", "guestosinfo demo -o name"},
	"userlist":    {"userlist demo"},
	"fslist":      {"fslist demo"},
	"expose":      {"expose vm demo --name x --port 22"},
	"show": {
		"firewall show demo",
		"snapshot show snap", "snapshot show snap -o name", "snapshot list", "snapshot list -A -o wide",
	},
	"restore": {"snapshot restore snap --stop --yes", "snapshot restore snap --target copy --dry-run=client"},
	"clone":   {"clone demo copy", "clone snap --from-snapshot", "create clone --source-name demo --apply"},
	"snapshots": {
		"snapshot create demo", "snapshot create demo --partial", "snapshot delete snap --yes",
		"snapshot delete --vm demo --yes",
	},
	"logs":              {}, // the log is data: docs/output.md
	"log-verbosity":     {"adm log-verbosity --all", "adm log-verbosity --vm demo"},
	"permitted-devices": {"permitted-devices"},
	"process":           {"template process demo"},
	"convert":           {"template convert demo"},
	"dashboard":         {"dashboard --once"},
	"version":           {"version"},
	"vm":                {"create vm --name x --apply", "create vm --name x --image none/1 --pull --apply"},
	"instancetype":      {"create instancetype --name x --cpu 1 --memory 1Gi --apply"},
	"preference":        {"create preference --name x --apply"},
	"add-ssh-key":       {"credentials add-ssh-key demo --user root --value KEY"},
	"remove-ssh-key":    {"credentials remove-ssh-key demo --user root --value KEY"},
	"set-password":      {"credentials set-password demo --user root --password secret"},
	"console":           {"console demo --timeout 1m"},
	"exec":              {"exec demo -- true"},
	"cp":                {"cp demo:/x DIR/x", "cp FILE demo:/x"},
	"expect":            {"expect demo -"},
	"ssh":               {"ssh root@demo true"},
	"scp":               {"scp root@demo:x DIR/x"},
	"vnc":               {"vnc demo --proxy-only"},
	"screenshot":        {"vnc screenshot demo -f DIR/x"},
	"usbredir":          {"usbredir demo --no-launch"},
	"port-forward":      {"port-forward demo 0:22 --stdio"},
	"install":           {"install --dry-run=server"},
	"uninstall":         {"uninstall --yes --dry-run=server"},
	"list (forwards)":   {"port-forward list"},
	"stop (forwards)":   {"port-forward stop --all"},
	"help, completion":  {"help", "__complete describe ''", "__complete start vm/"},
}

// silent are commands that write nothing of a cluster's.
var silent = []string{
	"create", "set", "template", "credentials", "memory-dump", "snapshot", "volume", "adm", "completion", "options",
	"help", "firewall",
}

// TestHostileTextReachesNoTerminal runs every command against a server whose objects have hostile text in each string
// that is not held to a form, and against one that refuses everything in hostile words.
func TestHostileTextReachesNoTerminal(t *testing.T) {
	var cover func(cmd *cobra.Command)
	cover = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			if _, ok := commandLines[child.Name()]; !ok && !slices.Contains(silent, child.Name()) && !child.Hidden {
				t.Errorf("%s is not tried: give it a line in commandLines", child.CommandPath())
			}
			cover(child)
		}
	}
	cover(NewCommand(cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })))
	for _, refusing := range []bool{false, true} {
		kubeconfig := hostileServer(t, refusing)
		dir := t.TempDir()
		manifest := filepath.Join(dir, "manifest.yaml")
		writeFile(t, manifest,
			"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: demo, "+
				"namespace: default}\nspec: {runStrategy: Halted, template: {spec: {domain: {devices: {}}}}}\n")
		t.Setenv("XDG_STATE_HOME", dir)
		t.Setenv("XDG_RUNTIME_DIR", dir)
		t.Setenv("HOME", dir)
		t.Setenv("KUBE_EDITOR", "sed -i s/^spec:/spec:\\n__running:_true/;s/__/\\x20\\x20/;s/:_true/:\\x20true/")
		said := 0
		for _, lines := range commandLines {
			for _, line := range lines {
				line = strings.ReplaceAll(strings.ReplaceAll(line, "FILE", manifest), "DIR", dir)
				out, errOut := runHostile(t, kubeconfig, fields(line))
				for stream, text := range map[string]string{"stdout": out, "stderr": errOut} {
					if found := hostile.Find(text, false); found != "" {
						t.Errorf("virtctl %s, refused %t: %s has %s", line, refusing, stream, found)
					}
					if strings.Contains(text, `\u001b[5;41m`) || strings.Contains(text, `\u202e`) {
						said++ // the hostile text was there, and can be seen
					}
				}
			}
		}
		if said < 15 {
			t.Errorf("refused %t: only %d of the commands quote what they were told: the test tries nothing", refusing,
				said)
		}
		t.Logf("refused %t: %d outputs quote hostile text", refusing, said)
	}
}

// fields are a line's words; KEY is a public key.
func fields(line string) []string {
	words := strings.Fields(line)
	for i := range words {
		if words[i] == "KEY" {
			words[i] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me"
		}
	}
	return words
}

func runHostile(t *testing.T, kubeconfig string, args []string) (out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := func(name string) string {
		if name == "KUBECONFIG" {
			return kubeconfig
		}
		return ""
	}
	f := cli.NewFactory("virtctl",
		&cli.IOStreams{In: strings.NewReader("print \"x\"\n"), Out: &stdout, ErrOut: &stderr}, env)
	ctx, cancel := contextFor(t)
	defer cancel()
	if code := Run(ctx, f, append([]string{"--kubeconfig", kubeconfig}, args...)); code == cli.ExitUsage {
		t.Errorf("virtctl %s is no use: %s", strings.Join(args, " "), stderr.String())
	}
	return stdout.String(), stderr.String()
}

// hostileServer answers any request for the objects below, and lists them; a write is answered with what there is.
func hostileServer(t *testing.T, refusing bool) (kubeconfig string) {
	t.Helper()
	objects := objectsOf(t)
	for _, list := range objects {
		for _, object := range list {
			spoil(object)
		}
	}
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Add("Warning", `299 - "deprecated \u202e`+"\u202e\u009b31m"+`"`)
		code, answer := http.StatusOK, answerTo(objects, r)
		switch {
		case refusing:
			code = http.StatusForbidden
			answer = map[string]any{
				"kind":       "Status",
				"apiVersion": "v1",
				"status":     "Failure",
				"code":       code,
				"reason":     "Forbidden",
				"message":    "no: " + hostile.JSON + "\nerror: forged " + hostile.JSON,
			}
		case answer == nil:
			code = http.StatusNotFound
			answer = map[string]any{
				"kind":       "Status",
				"apiVersion": "v1",
				"status":     "Failure",
				"code":       code,
				"reason":     "NotFound",
				"message":    "not found " + hostile.JSON,
			}
		}
		data, err := json.Marshal(answer)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(code)
		_, _ = w.Write(data) // a client that has gone
	})
}

// objectsOf are hostileObjects by the plural of their kind, not yet spoilt.
func objectsOf(t *testing.T) map[string][]map[string]any {
	t.Helper()
	objects := map[string][]map[string]any{}
	for document := range strings.SplitSeq(hostileObjects, "\n---\n") {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		plural := strings.Replace(strings.ToLower(object["kind"].(string))+"s", "policys", "policies", 1)
		objects[plural] = append(objects[plural], object)
	}
	return objects
}

// server is an API server for as long as the test runs.
func server(t *testing.T, answer http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["x"] = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	config.AuthInfos["x"] = &clientcmdapi.AuthInfo{Token: "x"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "x", AuthInfo: "x"}
	config.CurrentContext = "x"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

var (
	onePath  = regexp.MustCompile(`^/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+)?/([a-z]+)/([^/]+)(/[a-z/-]+)?$`)
	listPath = regexp.MustCompile(`^/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+)?/([a-z]+)$`)
)

func answerTo(objects map[string][]map[string]any, r *http.Request) any {
	subresource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if r.Method == http.MethodPost {
		body := map[string]any{}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return nil
		}
		spoil(body)
		if strings.HasSuffix(r.URL.Path, "accessreviews") {
			body["status"] = map[string]any{"allowed": true, "reason": hostile.JSON}
		}
		return body
	}
	agent := map[string]any{
		"guestosinfo": map[string]any{
			"guestAgentVersion": "1",
			"hostname":          "h",
			"os":                map[string]any{"prettyName": "os"},
			"timezone":          "UTC",
		},
		"userlist": map[string]any{"items": []any{map[string]any{"userName": "root", "domain": "d"}}},
		"filesystemlist": map[string]any{
			"items": []any{map[string]any{"diskName": "d", "mountPoint": "/", "fileSystemType": "x"}},
		},
		"firewall": map[string]any{"interfaces": []any{
			map[string]any{
				"name": "a", "binding": "bridge", "mac": "m", "addresses": []any{"x"}, "ipv4": true,
				"policies": []any{map[string]any{
					"name": "p", "wrong": []any{"w"}, "passed": []any{map[string]any{"direction": "d", "frames": 1}},
				}},
				"denied": []any{map[string]any{"direction": "d", "frames": 1}},
			},
			map[string]any{"name": "b", "unguarded": "why"},
		}},
		"version": map[string]any{"gitVersion": "v1", "platform": "linux"},
	}[subresource]
	if agent != nil {
		spoil(agent)
		return agent
	}
	if m := listPath.FindStringSubmatch(r.URL.Path); m != nil {
		if r.URL.Query().Get("watch") != "" {
			return nil
		}
		items := objects[m[1]]
		if items == nil {
			items = []map[string]any{}
		}
		kind, version := "List", "v1"
		if len(items) > 0 {
			kind, version = fmt.Sprint(items[0]["kind"], "List"), items[0]["apiVersion"].(string)
		}
		return map[string]any{
			"kind":       kind,
			"apiVersion": version,
			"metadata":   map[string]any{"resourceVersion": "1"},
			"items":      items,
		}
	}
	m := onePath.FindStringSubmatch(r.URL.Path)
	if m == nil {
		return nil
	}
	for _, object := range objects[m[1]] {
		if object["metadata"].(map[string]any)["name"] == m[2] {
			return object
		}
	}
	return nil
}

// formed are the fields whose form admission, or the type, holds. Values that are times, quantities or truth values
// stay as well.
var formed = []string{
	"name", "namespace", "uid", "resourceVersion", "kind", "apiVersion", "phase", "status", "runStrategy", "type",
	"nodeName", "controller", "claimName", "kubevirt.io", "app",
}

var valued = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT.*|\d+[KMG]?i?|True|False)$`)

func spoil(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if text, ok := inner.(string); ok && !slices.Contains(formed, key) && !valued.MatchString(text) {
				v[key] = text + hostile.JSON
			}
			spoil(inner)
		}
	case []any:
		for i, inner := range v {
			if text, ok := inner.(string); ok {
				v[i] = text + hostile.JSON
			}
			spoil(inner)
		}
	}
}

const patience = 5 * time.Second

func contextFor(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), patience)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// hostileObjects are of a machine that runs and of one that cannot.
const hostileObjects = `apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: demo, namespace: default, uid: vm-uid, creationTimestamp: "2026-01-02T03:04:05Z", annotations: {note: a}, labels: {team: b}, ownerReferences: [{apiVersion: pool.kubevirt.io/v1beta1, kind: VirtualMachinePool, name: sites, uid: pool-uid, controller: true}]}
spec: {runStrategy: Always, instancetype: {name: small, kind: x}, template: {spec: {domain: {devices: {disks: [{name: disk, disk: {bus: virtio}}]}}, volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]}}}
status: {printableStatus: Running, ready: true, created: true, conditions: [{type: Ready, status: "True", reason: r, message: m}, {type: RestartRequired, status: "True", message: restart}, {type: Failure, status: "True", reason: Failed, message: failed}]}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: other, namespace: default, uid: other-uid, creationTimestamp: "2026-01-02T03:04:05Z"}
spec: {runStrategy: Always, template: {spec: {domain: {devices: {}}}}}
status: {printableStatus: ErrorUnschedulable, conditions: [{type: Failure, status: "True", reason: FailedCreate, message: quota}, {type: Ready, status: "False", reason: NotThere, message: nothing}]}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: demo, namespace: default, uid: vmi-uid, creationTimestamp: "2026-01-02T03:04:05Z", annotations: {note: a}, ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: demo, uid: vm-uid, controller: true}]}
spec: {domain: {devices: {disks: [{name: disk, disk: {bus: virtio}}]}}, volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]}
status:
  phase: Running
  nodeName: node1
  guestOSInfo: {prettyName: Debian, kernelRelease: k, name: Debian, version: "13"}
  machine: {type: q35}
  interfaces: [{name: default, ipAddress: 10.0.0.1, ipAddresses: [10.0.0.1], mac: a, interfaceName: eth0, infoSource: guest}]
  volumeStatus: [{name: disk, target: vda, phase: Ready, message: attached, reason: why}]
  activePods: {pod-uid: node1}
  conditions: [{type: Ready, status: "False", reason: GuestNotRunning, message: not ready}, {type: LiveMigratable, status: "False", reason: DisksNotLiveMigratable, message: cannot}, {type: AgentConnected, status: "True"}]
---
apiVersion: v1
kind: Pod
metadata: {name: virt-launcher-demo-x, namespace: default, uid: pod-uid, creationTimestamp: "2026-01-02T03:04:05Z", labels: {kubevirt.io: virt-launcher, kubevirt.io/created-by: vmi-uid}, ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: demo, uid: vmi-uid, controller: true}]}
spec: {nodeName: node1, containers: [{name: compute, image: x}]}
status: {phase: Running, message: pod, reason: evicted, conditions: [{type: Ready, status: "False", reason: ContainersNotReady, message: not ready}], containerStatuses: [{name: compute, ready: false, restartCount: 0, image: x, imageID: x, state: {terminated: {exitCode: 1, reason: Error, message: the guest says}}, lastState: {}}]}
---
apiVersion: v1
kind: Event
metadata: {name: e, namespace: default, uid: e-uid, creationTimestamp: "2026-01-02T03:04:05Z"}
involvedObject: {kind: VirtualMachineInstance, name: demo, namespace: default, uid: vmi-uid}
reason: Stopped
message: the guest stopped
type: Warning
lastTimestamp: "2026-01-02T03:04:05Z"
count: 2
source: {component: c, host: h}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny, namespace: default}
spec: {podSelector: {}, policyTypes: [], ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}
---
apiVersion: v1
kind: Node
metadata: {name: node1, uid: node-uid, creationTimestamp: "2026-01-02T03:04:05Z", labels: {kubevirt.io/schedulable: "true"}, annotations: {kubevirt.io/heartbeat: never}}
spec: {unschedulable: true, taints: [{key: kk, value: vv, effect: NoSchedule}]}
status: {conditions: [{type: Ready, status: "False", reason: KubeletNotReady, message: gone}], nodeInfo: {kubeletVersion: v1, architecture: amd64, bootID: a, containerRuntimeVersion: a, kernelVersion: a, kubeProxyVersion: a, machineID: a, operatingSystem: a, osImage: a, systemUUID: a}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk, namespace: default, uid: pvc-uid}
spec: {accessModes: [ReadWriteOnce], storageClassName: slow}
status: {phase: Pending, conditions: [{type: Resizing, status: "True", message: pending}]}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceMigration
metadata: {name: move, namespace: default, uid: m-uid, creationTimestamp: "2026-01-02T03:04:05Z"}
spec: {vmiName: demo}
status: {phase: Failed, migrationState: {failureReason: failed, sourceNode: a, targetNode: b}}
---
apiVersion: snapshot.kubevirt.io/v1beta1
kind: VirtualMachineSnapshot
metadata: {name: snap, namespace: default, uid: s-uid, creationTimestamp: "2026-01-02T03:04:05Z", labels: {team: b}}
spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: demo}}
status: {phase: Succeeded, readyToUse: true, virtualMachineSnapshotContentName: content, error: {message: broken}, sourceIndications: [{indication: Online, message: it ran}], snapshotVolumes: {includedVolumes: [disk], excludedVolumes: [other]}, conditions: [{type: Ready, status: "True", reason: r, message: m}]}
---
apiVersion: snapshot.kubevirt.io/v1beta1
kind: VirtualMachineRestore
metadata: {name: back, namespace: default, uid: r-uid, creationTimestamp: "2026-01-02T03:04:05Z"}
spec: {target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: demo}, virtualMachineSnapshotName: snap}
status: {complete: false, conditions: [{type: Failure, status: "True", reason: r, message: failed}]}
---
apiVersion: clone.kubevirt.io/v1beta1
kind: VirtualMachineClone
metadata: {name: copy, namespace: default, uid: c-uid, creationTimestamp: "2026-01-02T03:04:05Z"}
spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: demo}}
status: {phase: Failed, conditions: [{type: Ready, status: "False", reason: r, message: failed}]}
---
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt, namespace: kubevirt, uid: kv-uid, annotations: {note: a}}
spec: {configuration: {developerConfiguration: {logVerbosity: {virtAPI: 3}}, permittedHostDevices: {pciHostDevices: [{pciVendorSelector: "1234:5678", resourceName: a/b}]}}}
status: {phase: Deployed, observedKubeVirtVersion: v1, operatorVersion: v1, conditions: [{type: Available, status: "False", reason: Bad, message: broken}]}
---
apiVersion: pool.kubevirt.io/v1beta1
kind: VirtualMachinePool
metadata: {name: sites, namespace: default, uid: pool-uid, creationTimestamp: "2026-01-02T03:04:05Z"}
spec: {replicas: 2, selector: {matchLabels: {app: sites}}, virtualMachineTemplate: {spec: {template: {spec: {domain: {devices: {}}}}}}}
status: {replicas: 1, readyReplicas: 0, conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: quota}]}`
