package gather

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/names"
)

const (
	in    = "/api/v1/namespaces/ns/"
	kv    = "/apis/kubevirt.io/v1/namespaces/ns/"
	kinds = "/apis/instancetype.kubevirt.io/v1beta1/"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// machine has one of each thing that leads somewhere else.
func machine() *v1.VirtualMachine {
	optional := true
	volume := func(name string, source v1.VolumeSource) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: source}
	}
	local := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	claim := func(name string) v1.VolumeSource {
		return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}
	}
	user, network := local("user"), local("network")
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm"}}
	vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "small"}
	vm.Spec.Preference = &v1.PreferenceMatcher{Name: "linux", Kind: "VirtualMachinePreference"}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{
		volume("root", claim("there")),
		volume("data", claim("gone")),
		volume("init", v1.VolumeSource{
			CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserDataSecretRef: &user, NetworkDataSecretRef: &network},
		}),
		volume("config",
			v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: local("settings")}}),
		volume("perhaps", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "optional", Optional: &optional}}),
	}}}
	return vm
}

func facts(t *testing.T, api *clienttest.API) why.Facts {
	t.Helper()
	f, err := Facts(t.Context(), api.Client(), "ns", "vm", now)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFactsOfAMachine(t *testing.T) {
	api := clienttest.New(t)
	api.Put(kv+"virtualmachines/vm", machine())
	vmi := v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "instance"}, Spec: machine().Spec.Template.Spec,
	}
	api.Put(kv+"virtualmachineinstances/vm", vmi)
	pod := func(name string, minute int) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, CreationTimestamp: metav1.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC),
			},
		}
	}
	api.Put(in+"pods", corev1.PodList{Items: []corev1.Pod{pod("old", 1), pod("new", 2)}})
	api.Put("/api/v1/namespaces/"+names.Namespace+"/pods", corev1.PodList{Items: []corev1.Pod{pod("virt-api-x", 0)}})
	api.Put("/api/v1/nodes", corev1.NodeList{Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "one"}}}})
	api.Put("/apis/kubevirt.io/v1/namespaces/"+names.Namespace+"/kubevirts",
		v1.KubeVirtList{Items: []v1.KubeVirt{{ObjectMeta: metav1.ObjectMeta{Name: "kubevirt"}}}})
	api.Put(kv+"virtualmachineinstancemigrations", v1.VirtualMachineInstanceMigrationList{
		Items: []v1.VirtualMachineInstanceMigration{{ObjectMeta: metav1.ObjectMeta{Name: "move"}}},
	})
	api.Put(in+"persistentvolumeclaims/there",
		corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "there"}})
	api.Put(in+"secrets/user", metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "user"}})
	api.Put(kinds+"virtualmachineclusterinstancetypes/small",
		metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "small"}})
	event := func(name string, e corev1.Event) corev1.Event {
		e.Name = name
		return e
	}
	at := func(minute int) metav1.Time { return metav1.Date(2026, 1, 1, 1, minute, 0, 0, time.UTC) }
	api.Put(in+"events", corev1.EventList{Items: []corev1.Event{
		event("series",
			corev1.Event{LastTimestamp: at(1), Series: &corev1.EventSeries{LastObservedTime: metav1.MicroTime(at(9))}}),
		event("last", corev1.Event{FirstTimestamp: at(8), LastTimestamp: at(3)}),
		event("new", corev1.Event{EventTime: metav1.MicroTime(at(2))}),
		event("created", corev1.Event{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(1)}}),
	}})

	f := facts(t, api)
	if f.VM == nil || f.VMI == nil || f.KubeVirt == nil || f.NotInstalled || len(f.Unreadable) > 0 ||
		!f.Now.Equal(now) {
		t.Fatalf("got %+v", f)
	}
	for what, got := range map[string]struct{ got, want any }{
		"pods, the youngest first": {podNames(f.Pods), []string{"new", "old"}},
		"the stack's pods":         {podNames(f.Stack), []string{"virt-api-x"}},
		"nodes":                    {f.Nodes[0].Name, "one"},
		"migrations":               {f.Migrations[0].Name, "move"},
		"storage classes, none":    {f.StorageClasses != nil, true},
		"claims":                   {len(f.Claims), 2},
		"the claim that is there":  {f.Claims["there"] != nil, true},
		"the claim that is not":    {f.Claims["gone"] == nil, true},
		"what else the volumes name": {f.References, map[string]bool{
			"Secret/user": true, "Secret/network": false, "ConfigMap/settings": false,
			"VirtualMachineClusterInstancetype/small": true, "VirtualMachinePreference/linux": false,
		}},
	} {
		if !reflect.DeepEqual(got.got, got.want) {
			t.Errorf("%s: %v, want %v", what, got.got, got.want)
		}
	}
	var order []string
	for _, e := range f.Events {
		order = append(order, e.Name)
	}
	if want := []string{"created", "new", "last", "series"}; !slices.Equal(order, want) {
		t.Errorf("events %v, want %v", order, want)
	}
	if got := api.Asked(in + "pods")[0].URL.Query().Get("labelSelector"); got != "kubevirt.io/created-by=instance" {
		t.Errorf("chose pods by %q", got)
	}
	for _, r := range api.Asked("/secrets/user") {
		if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
			t.Errorf("asked for the secret's content: %q", r.Header.Get("Accept"))
		}
	}
	if asked := api.Asked("/secrets/optional"); len(asked) > 0 {
		t.Error("asked for what the machine can do without")
	}
}

// TestAttachmentsOfMigrations reads the pods of plugged-in volumes of the migrations that have not ended: they have no
// label of the instance.
func TestAttachmentsOfMigrations(t *testing.T) {
	api := clienttest.New(t)
	api.Put(kv+"virtualmachineinstances/vm", v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "instance"},
	})
	move := func(name string, phase v1.VirtualMachineInstanceMigrationPhase) v1.VirtualMachineInstanceMigration {
		return v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Status:     v1.VirtualMachineInstanceMigrationStatus{Phase: phase},
		}
	}
	api.Put(kv+"virtualmachineinstancemigrations", v1.VirtualMachineInstanceMigrationList{
		Items: []v1.VirtualMachineInstanceMigration{
			move("waits", v1.MigrationScheduling), move("failed", v1.MigrationFailed),
		},
	})
	api.Put(in+"pods", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := corev1.PodList{Items: []corev1.Pod{
			{ObjectMeta: metav1.ObjectMeta{Name: r.URL.Query().Get("labelSelector")}},
		}}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(&list); err != nil {
			t.Error(err)
		}
	}))
	f := facts(t, api)
	if got, want := podNames(f.Attachments), []string{
		"kubevirt.io/migrationJobUID=waits,kubevirt.io=hotplug-disk",
	}; !slices.Equal(got, want) {
		t.Errorf("pods of migrations %q, want %q", got, want)
	}
	if got, want := podNames(f.Pods), []string{"kubevirt.io/created-by=instance"}; !slices.Equal(got, want) {
		t.Errorf("pods %q, want %q", got, want)
	}
}

func podNames(pods []corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

// What a user may not read is left out and named once, and the rest is there.
func TestWhatMayNotBeRead(t *testing.T) {
	api := clienttest.New(t)
	api.Put(kv+"virtualmachines/vm", machine())
	for path, resource := range map[string]string{
		"/api/v1/nodes":                                   "nodes",
		"/apis/storage.k8s.io/v1/storageclasses":          "storageclasses",
		"/api/v1/namespaces/" + names.Namespace + "/pods": "pods",
		in + "persistentvolumeclaims/there":               "persistentvolumeclaims",
		in + "persistentvolumeclaims/gone":                "persistentvolumeclaims",
		in + "secrets/user":                               "secrets",
		in + "secrets/network":                            "secrets",
		in + "events":                                     "events",
	} {
		api.Put(path, clienttest.Forbidden(resource))
	}
	f := facts(t, api)
	want := []string{"events", "nodes", "persistentvolumeclaims", "pods of virtkit", "secrets", "storageclasses"}
	if !slices.Equal(f.Unreadable, want) {
		t.Errorf("unreadable %v, want %v", f.Unreadable, want)
	}
	if f.VM == nil || f.VMI != nil || f.StorageClasses != nil || len(f.Claims) > 0 {
		t.Errorf("got %+v", f)
	}
	if _, known := f.References["Secret/user"]; known {
		t.Error("says whether a secret exists that may not be read")
	}
	if _, known := f.References["ConfigMap/settings"]; !known {
		t.Error("does not say whether the config map exists")
	}
}

func TestNoMachine(t *testing.T) {
	api := clienttest.New(t)
	api.Put(kv+"virtualmachines", v1.VirtualMachineList{
		Items: []v1.VirtualMachine{
			{ObjectMeta: metav1.ObjectMeta{Name: "vm1"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
		},
	})
	f := facts(t, api)
	if f.VM != nil || f.VMI != nil || f.NotInstalled || !slices.Equal(f.Others, []string{"vm1", "web"}) {
		t.Errorf("got %+v", f)
	}
	if asked := api.Asked("/events"); len(asked) > 0 {
		t.Error("reads the events of nothing")
	}
}

// What else has the name is found, as far as it may be read.
func TestNoMachineButOthers(t *testing.T) {
	api := clienttest.New(t)
	object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "vm"}}
	api.Put("/apis/pool.kubevirt.io/v1beta1/namespaces/ns/virtualmachinepools/vm", object)
	api.Put("/apis/clone.kubevirt.io/v1beta1/namespaces/ns/virtualmachineclones/vm", object)
	api.Put("/apis/snapshot.kubevirt.io/v1beta1/namespaces/ns/virtualmachinesnapshots/vm",
		clienttest.Forbidden("virtualmachinesnapshots"))
	api.Put("/apis/snapshot.kubevirt.io/v1beta1/namespaces/ns/virtualmachinerestores/vm",
		http.HandlerFunc(http.NotFound))
	f := facts(t, api)
	if !slices.Equal(f.Namesakes, []string{"clone/vm", "vmpool/vm"}) || len(f.Unreadable) > 0 {
		t.Errorf("%v, unreadable %v", f.Namesakes, f.Unreadable)
	}
}

// A cluster that does not know the kinds answers with a 404 of its own, which is no object's.
func TestNotInstalled(t *testing.T) {
	for what, answer := range map[string]http.HandlerFunc{
		"text": http.NotFound,
		"status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w,
				`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}`)
		},
	} {
		api := clienttest.New(t)
		for _, path := range []string{
			kv + "virtualmachines/vm", kv + "virtualmachineinstances/vm", kv + "virtualmachineinstancemigrations",
		} {
			api.Put(path, answer)
		}
		if f := facts(t, api); !f.NotInstalled {
			t.Errorf("%s: got %+v", what, f)
		}
	}
}

// Anything else that fails is an error that says what could not be read.
func TestFailure(t *testing.T) {
	for _, path := range []string{"/api/v1/nodes", in + "events"} {
		api := clienttest.New(t)
		api.Put(kv+"virtualmachines/vm", machine())
		api.Put(path, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "broken", http.StatusInternalServerError)
		}))
		_, err := Facts(t.Context(), api.Client(), "ns", "vm", now)
		if want := "read " + path[strings.LastIndex(path, "/")+1:] + ": "; err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
