package memorydumpcmd

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
)

const (
	machines = "/apis/kubevirt.io/v1/namespaces/team-a/"
	requests = "/apis/subresources.kubevirt.io/v1/namespaces/team-a/virtualmachines/demo/"
	claims   = "/api/v1/namespaces/team-a/persistentvolumeclaims"
)

// server has VM demo and its guest; it notes the bodies of what is sent, as one line each.
func server(t *testing.T, phase v1.VirtualMachineInstancePhase) (api *clienttest.API, sent *[]string) {
	t.Helper()
	api, sent = clienttest.New(t), &[]string{}
	meta := metav1.ObjectMeta{Namespace: "team-a", Name: "demo"}
	vm := &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: meta, Spec: v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyHalted)},
		Status: v1.VirtualMachineStatus{MemoryDumpRequest: &v1.VirtualMachineMemoryDumpRequest{
			ClaimName: "dump", Phase: v1.MemoryDumpCompleted, FileName: new("demo-dump-1.memory.dump"),
		}},
	}
	api.Put(machines+"virtualmachines/demo", vm)
	api.Put("/apis/storage.k8s.io/v1/storageclasses/fast", &metav1.PartialObjectMetadata{})
	api.Put(machines+"virtualmachines", &v1.VirtualMachineList{Items: []v1.VirtualMachine{*vm}})
	api.Put(machines+"virtualmachineinstances/demo", &v1.VirtualMachineInstance{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachineInstance"},
		ObjectMeta: meta, Status: v1.VirtualMachineInstanceStatus{Phase: phase},
		Spec: v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{
			Memory: &v1.Memory{Guest: new(resource.MustParse("1Gi"))},
		}},
	})
	note := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*sent = append(*sent, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]+" "+strings.TrimSpace(string(body)))
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write(body); err != nil {
			t.Error(err)
		}
	})
	for _, path := range []string{requests + "memorydump", requests + "removememorydump", claims} {
		api.Put(path, note)
	}
	return api, sent
}

// TestRequests has what each command line asks for, and what is said of it.
func TestRequests(t *testing.T) {
	const submitted = "Successfully submitted memory dump request of VM demo\n"
	for line, want := range map[string]struct{ sent, said string }{
		"get demo":                   {`memorydump {"claimName":"","phase":""}`, submitted},
		"get demo --claim-name=dump": {`memorydump {"claimName":"dump","phase":""}`, submitted},
		"get demo -o jsonpath={.status.memoryDumpRequest.claimName}": {
			`memorydump {"claimName":"","phase":""}`, "dump",
		},
		"get demo --claim-name=dump --wait": {
			`memorydump {"claimName":"dump","phase":""}`,
			submitted + "claim dump has the memory of VM demo, in the file demo-dump-1.memory.dump\n",
		},
		"remove vm/demo": {
			`removememorydump {}`, "Successfully submitted remove memory dump association of VM demo\n",
		},
	} {
		api, sent := server(t, v1.Running)
		out, errOut, err := clitest.Command{New: NewCmdMemoryDump, Kubeconfig: api.Kubeconfig("team-a")}.Run(t,
			strings.Fields(line)...)
		if got := strings.TrimSpace(strings.Join(*sent, "\n")); err != nil || got != want.sent || out != want.said ||
			errOut != "" {
			t.Errorf("memory-dump %s: %v, sent %s, stdout %q, stderr %q", line, err, got, out, errOut)
		}
	}
}

// A claim that is made has room for the guest's memory, and is made before the dump is asked for, of a guest that runs.
func TestCreateClaim(t *testing.T) {
	line := strings.Fields("get demo --claim-name=dump --create-claim --storage-class=fast --access-mode=ReadWriteMany")
	api, sent := server(t, v1.Running)
	dump := clitest.Command{New: NewCmdMemoryDump, Kubeconfig: api.Kubeconfig("team-a")}
	if _, _, err := dump.Run(t, line...); err != nil || len(*sent) != 2 {
		t.Fatalf("%v, %q", err, *sent)
	}
	var claim corev1.PersistentVolumeClaim
	text, ok := strings.CutPrefix((*sent)[0], "persistentvolumeclaims ")
	if err := json.Unmarshal([]byte(text), &claim); !ok || err != nil {
		t.Fatalf("%s: %v", (*sent)[0], err)
	}
	least := resource.MustParse("1124Mi") // memory and 100Mi
	if size := claim.Spec.Resources.Requests.Storage(); claim.Name != "dump" ||
		*claim.Spec.StorageClassName != "fast" ||
		claim.Spec.AccessModes[0] != corev1.ReadWriteMany || size.Cmp(least) < 0 {
		t.Errorf("%+v", claim)
	}

	unknown := append(slices.Clone(line), "--storage-class=slow")
	if _, _, err := dump.Run(t, unknown...); cli.ExitCode(err) != cli.ExitNotFound || len(*sent) != 2 {
		t.Errorf("a class that there is not: %v, sent %q", err, *sent)
	}

	api, sent = server(t, v1.Scheduling)
	dump.Kubeconfig = api.Kubeconfig("team-a")
	if _, _, err := dump.Run(t, line...); err == nil || len(*sent) > 0 || cli.ExitCode(err) != cli.ExitFailure {
		t.Errorf("a guest that does not run: %v, sent %q", err, *sent)
	}
	api, sent = server(t, v1.Running)
	api.Put(claims, clienttest.Forbidden("persistentvolumeclaims"))
	dump.Kubeconfig = api.Kubeconfig("team-a")
	if _, _, err := dump.Run(t, line...); cli.ExitCode(err) != cli.ExitNotAllowed || len(*sent) > 0 {
		t.Errorf("a claim may not be made: %v, sent %q", err, *sent)
	}
}

// TestRefused has what is added to the server's refusals: which flag, which command helps.
func TestRefused(t *testing.T) {
	stopped := apierrors.NewConflict(schema.GroupResource{Resource: "virtualmachines"}, "demo", nil)
	stopped.ErrStatus.Message = "VM is not running"
	for name, test := range map[string]struct {
		line   string
		answer error
		want   string
		not    string
	}{
		"no claim": {"get demo", apierrors.NewBadRequest("which claim?"), "name the claim with --claim-name", ""},
		"another": {
			"get demo --claim-name=dump", apierrors.NewBadRequest("it is too small"), "it is too small", "--claim-name",
		},
		"stopped": {"get demo --claim-name=dump", stopped, "start it with `virtctl start demo`", ""},
	} {
		api, _ := server(t, v1.Running)
		api.Put(requests+"memorydump", test.answer)
		out, _, err := clitest.Command{New: NewCmdMemoryDump, Kubeconfig: api.Kubeconfig("team-a")}.Run(t,
			strings.Fields(test.line)...)
		if err == nil || !strings.Contains(err.Error(), test.want) || out != "" ||
			test.not != "" && strings.Contains(err.Error(), test.not) {
			t.Errorf("%s: stdout %q, %v", name, out, err)
		}
	}
}
