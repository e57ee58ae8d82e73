package describe

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
)

const kv = "/apis/kubevirt.io/v1/namespaces/ns/"

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestGet(t *testing.T) {
	api := clienttest.New(t)
	always := v1.RunStrategyAlways
	api.Put(kv+"virtualmachines/vm", v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm"},
		Spec:       v1.VirtualMachineSpec{RunStrategy: &always, Template: &v1.VirtualMachineInstanceTemplateSpec{}},
	})
	api.Put(kv+"virtualmachineinstances/vm", v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "instance"},
		Status:     v1.VirtualMachineInstanceStatus{Phase: v1.Scheduling},
	})
	api.Put("/api/v1/namespaces/ns/pods", corev1.PodList{Items: []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "virt-launcher-vm-x"},
		Spec:       corev1.PodSpec{NodeName: "one"}, Status: corev1.PodStatus{Phase: corev1.PodPending},
	}}})
	event := func(name, kind, object string, minute int) corev1.Event {
		return corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name},
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "ns", Name: object},
			LastTimestamp:  metav1.Date(2026, 1, 1, 1, minute, 0, 0, time.UTC),
		}
	}
	api.Put("/api/v1/namespaces/ns/events", corev1.EventList{Items: []corev1.Event{
		event("pod's", "Pod", "virt-launcher-vm-x", 2),
		event("another's", "VirtualMachine", "web", 1),
		event("vm's", "VirtualMachine", "vm", 1),
		event("another pod's", "Pod", "virt-launcher-vm-two-x", 1),
	}})

	r, err := Get(t.Context(), api.Client(), "ns", "vm", now)
	if err != nil {
		t.Fatal(err)
	}
	if r.APIVersion != action.ReportVersion || r.Kind != Kind || r.VM == nil || r.VMI == nil || r.Why == nil ||
		r.Why.Summary == "" {
		t.Errorf("got %+v", r)
	}
	if want := []Pod{{Name: "virt-launcher-vm-x", Phase: "Pending", Node: "one"}}; !slices.Equal(r.Pods, want) {
		t.Errorf("pods %v, want %v", r.Pods, want)
	}
	var events []string
	for _, e := range r.Events {
		events = append(events, e.Name)
	}
	if want := []string{"vm's", "pod's"}; !slices.Equal(events, want) {
		t.Errorf("events %v, want %v", events, want)
	}
	// Copies are their own, and have the same keys.
	copied := r.DeepCopyObject().(*Report)
	copied.VM.Name, copied.Pods[0].Node = "other", "other"
	if r.VM.Name != "vm" || r.Pods[0].Node != "one" {
		t.Error("a copy shares what it copied")
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(data, &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"apiVersion", "kind", "vm", "vmi", "pods", "why", "events"} {
		if keys[key] == nil {
			t.Errorf("the report has no %s: %.200s", key, data)
		}
	}
}

func TestNothingToDescribe(t *testing.T) {
	api := clienttest.New(t)
	api.Put(kv+"virtualmachines",
		v1.VirtualMachineList{Items: []v1.VirtualMachine{{ObjectMeta: metav1.ObjectMeta{Name: "vms"}}}})
	if _, err := Get(t.Context(), api.Client(), "ns", "vm", now); !errors.Is(err, action.ErrNotFound) ||
		!strings.Contains(err.Error(), "vms") {
		t.Errorf("no machine: %v", err)
	}
	api.Put(kv+"virtualmachines/vm", http.HandlerFunc(http.NotFound))
	if _, err := Get(t.Context(), api.Client(), "ns", "vm", now); !errors.Is(err, action.ErrNotInstalled) {
		t.Errorf("no virtkit: %v", err)
	}
	api.Put("/api/v1/nodes", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "broken", http.StatusInternalServerError)
	}))
	if _, err := Get(t.Context(), api.Client(), "ns", "vm", now); err == nil ||
		!strings.HasPrefix(err.Error(), "read nodes: ") {
		t.Errorf("a broken server: %v", err)
	}
}
