package page

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// TestImageUsers: a machine on a copy counts for what was copied; one on a claim that is a row itself counts for that
// row, also where the claim was made of another.
func TestImageUsers(t *testing.T) {
	w := &World{Machines: store.NewMachines(func() {}), Images: store.NewTable[store.Image](func() {})}
	key := func(name string) store.Key { return store.Key{Namespace: "prod", Name: name} }
	w.Images.Load(map[store.Key]*store.Image{
		key("debian"): {Namespace: "prod", Name: "debian", Ref: "debian/13", Phase: images.PhaseReady},
		key("copy"):   {Namespace: "prod", Name: "copy", Of: "debian"},
		key("upload"): {Namespace: "prod", Name: "upload", Of: "debian", Phase: images.PhaseIncomplete},
	})
	var machines []v1.VirtualMachine
	for _, claim := range []string{"copy", "upload"} {
		vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "on-" + claim}}
		vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		vm.Spec.Template.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("root", claim)}
		machines = append(machines, vm)
	}
	w.Machines.Load(machines, nil)
	users := imageUsers(w)
	for claim, want := range map[string]string{"debian": "on-copy", "upload": "on-upload"} {
		if of := users[key(claim)]; len(of) != 1 || of[0].Name != want {
			t.Errorf("machines of %s: %d, want %s", claim, len(of), want)
		}
	}
}
