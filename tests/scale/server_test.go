//go:build scale

package scale

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// cluster answers as an API server does that has so many machines, for those who list and watch.
type cluster struct {
	*httptest.Server

	mu       sync.Mutex
	version  int
	vms      []*v1.VirtualMachine
	vmis     []*v1.VirtualMachineInstance
	watchers map[string]map[chan []byte]bool
}

func newCluster(t *testing.T, machines int) *cluster {
	c := &cluster{watchers: map[string]map[chan []byte]bool{}, version: 1}
	for i := range machines {
		vm, vmi := machine(i)
		c.vms, c.vmis = append(c.vms, vm), append(c.vmis, vmi)
	}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.CloseClientConnections)
	return c
}

// machine is of the size that real ones have: with annotations, managed fields and conditions.
func machine(i int) (*v1.VirtualMachine, *v1.VirtualMachineInstance) {
	name := fmt.Sprintf("machine-%05d", i)
	strategy := v1.RunStrategyAlways
	guest := resource.MustParse("2Gi")
	meta := metav1.ObjectMeta{
		Namespace: fmt.Sprintf("team-%02d", i%20), Name: name,
		UID: types.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)), ResourceVersion: "1",
		CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000+int64(i), 0)),
		Labels:            map[string]string{"app": fmt.Sprintf("app-%d", i%50)},
		Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 1500),
		},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{
				Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply,
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`),
			},
		},
	}
	spec := v1.VirtualMachineInstanceSpec{
		Domain: v1.DomainSpec{Memory: &v1.Memory{Guest: &guest}, CPU: &v1.CPU{Cores: 2}},
	}
	vm := &v1.VirtualMachine{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"}, ObjectMeta: meta,
		Spec: v1.VirtualMachineSpec{
			RunStrategy: &strategy, Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: spec},
		},
		Status: v1.VirtualMachineStatus{PrintableStatus: v1.VirtualMachineStatusRunning, Ready: true},
	}
	owned := *meta.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
	ip := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
	vmi := &v1.VirtualMachineInstance{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance"}, ObjectMeta: owned,
		Spec: spec,
		Status: v1.VirtualMachineInstanceStatus{
			Phase: v1.Running, NodeName: fmt.Sprintf("node-%03d", i%100),
			GuestOSInfo: v1.VirtualMachineInstanceGuestOSInfo{PrettyName: "Debian GNU/Linux 13"},
			Interfaces:  []v1.VirtualMachineInstanceNetworkInterface{{Name: "default", IP: ip, IPs: []string{ip}}},
			Conditions: []v1.VirtualMachineInstanceCondition{
				{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue},
				{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
				{Type: v1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue},
			},
		},
	}
	return vm, vmi
}

// set changes a machine's status, as a controller does.
func (c *cluster) set(i int, status v1.VirtualMachinePrintableStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	vm := c.vms[i]
	vm.ResourceVersion = fmt.Sprint(c.version)
	vm.Status.PrintableStatus = status
	event := encode("MODIFIED", vm)
	for w := range c.watchers["virtualmachines"] {
		select {
		case w <- event:
		default: // it is gone, or too slow to be of use
			delete(c.watchers["virtualmachines"], w)
			close(w)
		}
	}
}

func encode(kind string, object any) []byte {
	data, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err)
	}
	return append(data, '\n')
}

func (c *cluster) serve(w http.ResponseWriter, r *http.Request) {
	plural := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	w.Header().Set("Content-Type", "application/json")
	group, kind := "kubevirt.io/v1", map[string]string{
		"virtualmachines": "VirtualMachine", "virtualmachineinstances": "VirtualMachineInstance",
		"virtualmachineinstancemigrations": "VirtualMachineInstanceMigration",
		"nodes":                            "Node", "events": "Event",
	}[plural]
	if plural == "nodes" || plural == "events" {
		group = "v1"
	}
	switch {
	case plural == "selfsubjectrulesreviews":
		fmt.Fprint(w,
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","status":{"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}}`)
	case plural == "stats":
		fmt.Fprint(w, `{"items":[]}`)
	case kind == "":
		http.NotFound(w, r)
	case r.URL.Query().Get("watch") == "true":
		c.watch(w, r, plural, group, kind)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		fmt.Fprintf(w, `{"apiVersion":%q,"kind":"%sList","metadata":{"resourceVersion":"%d"},"items":[`, group, kind,
			c.version)
		for i, o := range c.objects(plural) {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			if err := json.NewEncoder(w).Encode(o); err != nil {
				return
			}
		}
		fmt.Fprint(w, "]}")
	}
}

func (c *cluster) objects(plural string) []any {
	var out []any
	switch plural {
	case "virtualmachines":
		for _, o := range c.vms {
			out = append(out, o)
		}
	case "virtualmachineinstances":
		for _, o := range c.vmis {
			out = append(out, o)
		}
	}
	return out
}

// watch streams what is there, if that is asked for, and then changes.
func (c *cluster) watch(w http.ResponseWriter, r *http.Request, plural, group, kind string) {
	changes := make(chan []byte, 20000)
	c.mu.Lock()
	initial := [][]byte{}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, o := range c.objects(plural) {
			initial = append(initial, encode("ADDED", o))
		}
		initial = append(initial,
			encode("BOOKMARK", map[string]any{"apiVersion": group, "kind": kind, "metadata": map[string]any{
				"resourceVersion": fmt.Sprint(c.version),
				"annotations":     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			}}))
	}
	if c.watchers[plural] == nil {
		c.watchers[plural] = map[chan []byte]bool{}
	}
	c.watchers[plural][changes] = true
	c.mu.Unlock()
	flusher := w.(http.Flusher)
	flusher.Flush()
	for chunk := range slices.Chunk(initial, 100) {
		for _, event := range chunk {
			if _, err := w.Write(event); err != nil {
				return
			}
		}
		flusher.Flush()
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case event, ok := <-changes:
			if !ok {
				return
			}
			if _, err := w.Write(event); err != nil {
				return
			}
			flusher.Flush()
		}
	}
}
