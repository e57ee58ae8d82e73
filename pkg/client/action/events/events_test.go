package events

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
)

func event(kind, name, eventType string) *corev1.Event {
	return &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Type: eventType}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		s    Selection
		e    *corev1.Event
		want bool
	}{
		{Selection{}, event("VirtualMachine", "demo", "Normal"), true},
		{Selection{}, event("Pod", "virt-launcher-demo-abcde", "Normal"), true},
		{Selection{}, event("Pod", "web-1", "Normal"), false},
		{Selection{}, event("Node", "demo", "Normal"), false},
		{Selection{Names: []string{"demo"}}, event("VirtualMachineInstance", "demo", "Normal"), true},
		{Selection{Names: []string{"demo"}}, event("VirtualMachineInstance", "demo2", "Normal"), false},
		{Selection{Names: []string{"demo"}}, event("Pod", "virt-launcher-demo-abcde", "Normal"), true},
		{Selection{Names: []string{"demo"}}, event("Pod", "virt-launcher-demo-two-abcde", "Normal"), false},
		{Selection{Names: []string{"demo"}}, event("Pod", "hp-volume-demo-x7", "Normal"), true},
		{
			Selection{Names: []string{"demo"}},
			event("VirtualMachineInstanceMigration", "demo-migration-x", "Normal"),
			true,
		},
		{
			Selection{Names: []string{"vm"}, moves: map[string]string{"kubevirt-migrate-vm-x": "demo"}},
			event(migration, "kubevirt-migrate-vm-x", "Normal"), false,
		},
		{
			Selection{Names: []string{"demo"}, moves: map[string]string{"kubevirt-migrate-vm-x": "demo"}},
			event(migration, "kubevirt-migrate-vm-x", "Normal"), true,
		},
		{Selection{Names: []string{"demo"}}, event(migration, "kubevirt-migrate-vm-x", "Normal"), false},
		{
			Selection{Names: []string{"demo"}, Types: []string{"warning"}},
			event("VirtualMachine", "demo", "Normal"),
			false,
		},
		{
			Selection{Names: []string{"demo"}, Types: []string{"warning"}},
			event("VirtualMachine", "demo", "Warning"),
			true,
		},
		{Selection{Names: []string{"db", "demo"}}, event("VirtualMachine", "demo", "Normal"), true},
		{Selection{Names: []string{"db", "demo"}}, event("VirtualMachine", "web", "Normal"), false},
	} {
		if got := c.s.Match(c.e); got != c.want {
			t.Errorf("%+v matches %s %s %s: %v", c.s, c.e.InvolvedObject.Kind, c.e.InvolvedObject.Name, c.e.Type, got)
		}
	}
}

// TestListKnowsMigrationsByTheirVM has migrations that are not called after the VM.
func TestListKnowsMigrationsByTheirVM(t *testing.T) {
	api := clienttest.New(t)
	api.Put("/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstancemigrations",
		&v1.VirtualMachineInstanceMigrationList{Items: []v1.VirtualMachineInstanceMigration{
			{
				ObjectMeta: metav1.ObjectMeta{Name: "kubevirt-migrate-vm-a"},
				Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: "demo"},
			},
			{
				ObjectMeta: metav1.ObjectMeta{Name: "kubevirt-migrate-vm-b"},
				Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: "other"},
			},
		}})
	api.Put("/api/v1/namespaces/shop/events", &corev1.EventList{Items: []corev1.Event{
		*event(migration, "kubevirt-migrate-vm-a", "Normal"), *event(migration, "kubevirt-migrate-vm-b", "Normal"),
	}})
	list, err := List(t.Context(), api.Client(), Selection{Namespace: "shop", Names: []string{"demo"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].InvolvedObject.Name != "kubevirt-migrate-vm-a" {
		t.Errorf("got %+v", list.Items)
	}
}

func TestWithout(t *testing.T) {
	list := []corev1.Event{*event("VirtualMachine", "web", "Normal"), *event("Pod", "virt-launcher-db-abcde", "Normal")}
	got := Selection{Names: []string{"ghost", "web", "db", "we"}}.Without(list)
	if len(got) != 2 || got[0] != "ghost" || got[1] != "we" {
		t.Errorf("got %v", got)
	}
	if got := (Selection{Names: []string{"demo"}}).Without(list); len(got) != 0 {
		t.Errorf("one name, all that was listed is its own: %v", got)
	}
}

// TestSince leaves out what was seen last before, however long it has been happening.
func TestSince(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := Selection{Since: now.Add(-10 * time.Minute)}
	for ago, want := range map[time.Duration]bool{0: true, 10 * time.Minute: true, 11 * time.Minute: false} {
		e := event("VirtualMachine", "web", "Normal")
		e.CreationTimestamp, e.LastTimestamp = metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now.Add(-ago))
		if got := s.Match(e); got != want {
			t.Errorf("seen %s ago: %v", ago, got)
		}
	}
}
