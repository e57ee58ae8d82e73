//go:build integration

package virtapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

// tryReserved has an administrator, who may write every VM and VMI, write each annotation of the components in every
// way that the API server has: he is no component. A component may.
func tryReserved(ctx context.Context, t *testing.T, config *rest.Config, admin client.Client, vm *v1.VirtualMachine,
	vmi *v1.VirtualMachineInstance,
) {
	component := rest.CopyConfig(config)
	component.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + names.Namespace + ":" + names.VirtController,
		Groups:   []string{"system:masters"},
	}
	controller, err := client.New(component, client.Options{Scheme: admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	merge := func(at, key, value string) client.Patch {
		return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, at, fmt.Sprintf(`{%q:%q}`, key, value)))
	}
	const (
		own      = `{"metadata":{"annotations":%s}}`
		template = `{"spec":{"template":{"metadata":{"annotations":%s}}}}`
	)
	for _, key := range reserved.Keys() {
		refused := func(how string, err error, in string) {
			t.Helper()
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), in+"["+key+"]: ") {
				t.Errorf("%s: %s: %v", key, how, err)
			}
		}
		made := vm.DeepCopy()
		made.ObjectMeta = metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: "made", Annotations: map[string]string{key: "a"},
		}
		refused("a VM is made", admin.Create(ctx, made.DeepCopy()), "metadata.annotations")
		made.Annotations, made.Spec.Template.ObjectMeta.Annotations = nil, map[string]string{key: "a"}
		refused("a VM's template is made", admin.Create(ctx, made), "spec.template.metadata.annotations")
		refused("a VM is patched", admin.Patch(ctx, vm.DeepCopy(), merge(own, key, "a")), "metadata.annotations")
		refused("a VM's template is patched", admin.Patch(ctx, vm.DeepCopy(), merge(template, key, "a")),
			"spec.template.metadata.annotations")
		refused("a VMI is patched", admin.Patch(ctx, vmi.DeepCopy(), merge(own, key, "a")), "metadata.annotations")
		applied, err := json.Marshal(map[string]any{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
			"metadata": map[string]any{
				"namespace": vm.Namespace, "name": vm.Name, "annotations": map[string]string{key: "a"},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		refused("a VM is applied", admin.Patch(ctx, vm.DeepCopy(), client.RawPatch(types.ApplyPatchType, applied),
			client.FieldOwner("jane"), client.ForceOwnership), "metadata.annotations")
		// Of a write to the status the API server keeps the status alone, for which virt-api is not asked.
		for _, object := range []client.Object{vm.DeepCopy(), vmi.DeepCopy()} {
			if err := admin.Status().Patch(ctx, object, merge(own, key, "a")); err != nil {
				t.Errorf("%s: the status of a %T is patched: %v", key, object, err)
			}
			if _, is := object.GetAnnotations()[key]; is {
				t.Errorf("%s: was written with the status of a %T", key, object)
			}
		}

		theirs := vmi.DeepCopy()
		if err := controller.Patch(ctx, theirs, merge(own, key, "a")); err != nil || theirs.Annotations[key] != "a" {
			t.Errorf("%s: virt-controller writes it: %v", key, err)
		}
		refused("a VMI's is removed", admin.Patch(ctx, vmi.DeepCopy(), client.RawPatch(types.JSONPatchType,
			fmt.Appendf(nil, `[{"op":"remove","path":"/metadata/annotations/%s"}]`,
				strings.ReplaceAll(key, "/", "~1")))), "metadata.annotations")
	}
}
