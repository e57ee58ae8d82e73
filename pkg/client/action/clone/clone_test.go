package clone

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
)

const all = "/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones"

func TestNew(t *testing.T) {
	out := New("default", "c", Options{
		Source: "snap", FromSnapshot: true, Target: "copy", MACs: map[string]string{"default": "02-00-00-00-00-17"},
		Serial: "s",
	})
	data, err := json.Marshal(out.Spec)
	want := `{"source":{"apiGroup":"snapshot.kubevirt.io","kind":"VirtualMachineSnapshot","name":"snap"},"target":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"copy"},"template":{},"newMacAddresses":{"default":"02-00-00-00-00-17"},"newSMBiosSerial":"s"}`
	if err != nil || string(data) != want {
		t.Errorf("%s, want %s; %v", data, want, err)
	}
}

func TestWait(t *testing.T) {
	for name, tc := range map[string]struct {
		phase clonev1beta1.VirtualMachineClonePhase
		wrong string
	}{
		"done":   {clonev1beta1.Succeeded, ""},
		"failed": {clonev1beta1.Failed, "clone default/c failed: the source is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			api := clienttest.New(t)
			object := New("default", "c", Options{Source: "demo"})
			object.Status.Phase = tc.phase
			object.Status.Conditions = []clonev1beta1.Condition{
				{Type: clonev1beta1.ConditionReady, Status: "False", Message: "the source is gone"},
			}
			api.Put(all, &clonev1beta1.VirtualMachineCloneList{
				TypeMeta: metav1.TypeMeta{
					APIVersion: clonev1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineCloneList",
				},
				Items: []clonev1beta1.VirtualMachineClone{*object},
			})
			_, err := Wait(t.Context(), api.Client(), "default", "c", func(string) {})
			if tc.wrong == "" && err != nil ||
				tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestClusterWithoutClones(t *testing.T) {
	api := clienttest.New(t)
	api.Put(all, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "404 page not found", http.StatusNotFound)
	}))
	_, err := Create(t.Context(), api.Client(), New("default", "c", Options{Source: "demo"}), false)
	if !errors.Is(err, ErrNoKind) || apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
}
