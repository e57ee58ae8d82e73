package gather

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
)

const pools = "/apis/pool.kubevirt.io/v1beta1/namespaces/ns/virtualmachinepools/"

func ownedBy(uid types.UID, name string) metav1.ObjectMeta {
	yes := true
	return metav1.ObjectMeta{
		Namespace: "ns", Name: name, OwnerReferences: []metav1.OwnerReference{{UID: uid, Controller: &yes}},
	}
}

func TestSet(t *testing.T) {
	api := clienttest.New(t)
	api.Put(pools+"web", map[string]any{
		"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool",
		"metadata": map[string]any{"namespace": "ns", "name": "web", "uid": "pool"},
		"spec":     map[string]any{"replicas": 8}, "status": map[string]any{"replicas": 8, "readyReplicas": 1},
	})
	list := v1.VirtualMachineList{
		Items: []v1.VirtualMachine{
			{ObjectMeta: ownedBy("other", "db-0")},
			{ObjectMeta: metav1.ObjectMeta{Name: "alone"}},
		},
	}
	for i := range 8 {
		list.Items = append(list.Items, v1.VirtualMachine{
			ObjectMeta: ownedBy("pool", fmt.Sprintf("web-%d", i)), Status: v1.VirtualMachineStatus{Ready: i == 3},
		})
	}
	api.Put(kv+"virtualmachines", list)
	got, err := Set(t.Context(), api.Client(), sets.Pool, "ns", "web", now)
	if err != nil {
		t.Fatal(err)
	}
	var short []string
	for _, f := range got.Short {
		short = append(short, f.Name)
	}
	if diff := cmp.Diff([]string{"web-0", "web-1", "web-2", "web-4", "web-5"}, short); diff != "" || got.More != 2 {
		t.Errorf("looked at (-want +got):\n%sand left out %d", diff, got.More)
	}
	if diff := cmp.Diff([]string{"web-3"}, got.Ready); diff != "" || got.Set.Desired != 8 || got.Kind != "vmpool" {
		t.Errorf("%+v", got)
	}
	if _, err := Set(t.Context(), api.Client(), sets.Pool, "ns", "gone", now); !errors.Is(err, action.ErrNotFound) {
		t.Errorf("of a pool that is not there: %v", err)
	}
}

func TestSetOfInstances(t *testing.T) {
	api := clienttest.New(t)
	api.Put(kv+"virtualmachineinstancereplicasets/web", map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
		"metadata": map[string]any{"namespace": "ns", "name": "web", "uid": "set"},
	})
	ready := v1.VirtualMachineInstance{ObjectMeta: ownedBy("set", "weba"), Status: v1.VirtualMachineInstanceStatus{
		Conditions: []v1.VirtualMachineInstanceCondition{
			{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue},
		},
	}}
	api.Put(kv+"virtualmachineinstances",
		v1.VirtualMachineInstanceList{Items: []v1.VirtualMachineInstance{ready, {ObjectMeta: ownedBy("set", "webb")}}})
	got, err := Set(t.Context(), api.Client(), sets.ReplicaSet, "ns", "web", now)
	if err != nil || len(got.Ready) != 1 || len(got.Short) != 1 || got.Short[0].Name != "webb" {
		t.Errorf("%+v, %v", got, err)
	}
	api.Put(kv+"virtualmachineinstances", clienttest.Forbidden("virtualmachineinstances"))
	got, err = Set(t.Context(), api.Client(), sets.ReplicaSet, "ns", "web", now)
	if err != nil || len(got.Unreadable) != 1 {
		t.Errorf("who may not read them: %+v, %v", got, err)
	}
}
