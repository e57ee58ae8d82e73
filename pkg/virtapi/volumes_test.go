package virtapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// summarize says of a write to which object it goes, which volumes it leaves there, and which of them are declared.
func summarize(t *testing.T, write string) string {
	t.Helper()
	fields := strings.SplitN(write, " ", 3)
	body, dryRun, _ := strings.Cut(fields[2], " dryRun=")
	type volumes []struct{ Name string }
	var patch struct {
		Metadata struct {
			Annotations     map[string]string
			ResourceVersion *string
		}
		Spec struct {
			Volumes  volumes
			Template struct{ Spec struct{ Volumes volumes } }
		}
	}
	if err := json.Unmarshal([]byte(body), &patch); err != nil {
		t.Fatal(err)
	}
	if patch.Metadata.ResourceVersion == nil {
		t.Errorf("%s: not locked", write)
	}
	out := strings.TrimSuffix(fields[1], "/vm") + ":"
	for _, v := range append(patch.Spec.Volumes, patch.Spec.Template.Spec.Volumes...) {
		out += " " + v.Name
	}
	if declared, ok := patch.Metadata.Annotations[hotplug.DeclaredAnnotation]; ok {
		out += " (" + declared + ")"
	}
	return strings.TrimSpace(out + " " + dryRun)
}

// The template is changed before the instance, which is asked first whether it would refuse; the instance is told which
// volumes are its VM's.
func TestVolumeWrites(t *testing.T) {
	pluggable := func(names ...string) (volumes []v1.Volume, disks []v1.Disk) {
		for _, name := range names {
			volumes = append(volumes, v1.Volume{
				Name: name,
				VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
					Hotpluggable:                      true,
				}},
			})
			disks = append(disks,
				v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}})
		}
		return volumes, disks
	}
	const (
		add    = `{"name":"b","disk":{},"volumeSource":{"persistentVolumeClaim":{"claimName":"b"}}}`
		remove = `{"name":"a"}`
	)
	for name, tc := range map[string]struct {
		path, body string
		// template and instance are the names of what they have, declared those that the instance says.
		template, instance, declared string
		stopped                      bool
		conflicts                    int
		// code is the answer's, 0 for accepted.
		code int
		want string
	}{
		"add": {
			path: "virtualmachines/vm/addvolume", body: add, template: "a", instance: "a", declared: "a",
			want: "virtualmachineinstances: a b (a,b) All, virtualmachines: a b, virtualmachineinstances: a b (a,b)",
		},
		"add, contended": {
			path: "virtualmachines/vm/addvolume", body: add, template: "a", instance: "a", declared: "a", conflicts: 2,
			want: "virtualmachineinstances: a b (a,b) All, virtualmachines: a b, virtualmachineinstances: a b (a,b)",
		},
		"add, dry": {
			path: "virtualmachines/vm/addvolume", body: strings.Replace(add, "{", `{"dryRun":["All"],`, 1),
			instance: "a",
			want:     "virtualmachineinstances: a b (b) All, virtualmachines: b All",
		},
		"add, stopped": {path: "virtualmachines/vm/addvolume", body: add, stopped: true, want: "virtualmachines: b"},
		"add, carried over": {
			path: "virtualmachines/vm/addvolume", body: add, instance: "b", declared: "b", want: "virtualmachines: b",
		},
		"add, begun": {
			path: "virtualmachines/vm/addvolume", body: add, template: "a b", instance: "a", declared: "a",
			want: "virtualmachineinstances: a b (a,b)",
		},
		"add, done": {
			path: "virtualmachines/vm/addvolume", body: add, template: "b", instance: "b", declared: "b",
			code: http.StatusConflict,
		},
		"add, taken away": {
			path: "virtualmachines/vm/addvolume", body: add, template: "b", declared: "b", code: http.StatusConflict,
		},
		"remove, the instance's": {
			path: "virtualmachines/vm/removevolume", body: remove, instance: "a", code: http.StatusConflict,
		},
		"remove, begun": {
			path: "virtualmachines/vm/removevolume", body: remove, template: "b", instance: "a b", declared: "a,b",
			want: "virtualmachineinstances: b (b)",
		},
		"remove": {
			path: "virtualmachines/vm/removevolume", body: remove, template: "a", instance: "a", declared: "a",
			want: "virtualmachineinstances: () All, virtualmachines:, virtualmachineinstances: ()",
		},
		"remove, gone": {
			path: "virtualmachines/vm/removevolume", body: remove, template: "a", want: "virtualmachines:",
		},
		"of an older virtkit": {
			path: "virtualmachines/vm/removevolume", body: remove, template: "a", instance: "a",
			want: "virtualmachineinstances: All, virtualmachines:, virtualmachineinstances:",
		},

		"to the instance": {
			path: "virtualmachineinstances/vm/addvolume", body: add, template: "a", instance: "a", declared: "a,b",
			want: "virtualmachineinstances: a b (a)",
		},
		"from the instance": {
			path: "virtualmachineinstances/vm/removevolume", body: remove, template: "a", instance: "a", declared: "a",
			want: "virtualmachineinstances: (a)",
		},
	} {
		vm, vmi := machine(v1.RunStrategyAlways), instance(v1.Running)
		vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		vm.Spec.Template.Spec.Volumes, vm.Spec.Template.Spec.Domain.Devices.Disks = pluggable(
			strings.Fields(tc.template)...)
		vmi.Spec.Volumes, vmi.Spec.Domain.Devices.Disks = pluggable(strings.Fields(tc.instance)...)
		if tc.declared != "" {
			vmi.Annotations = map[string]string{hotplug.DeclaredAnnotation: tc.declared}
		}
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
		objects := map[string]any{"virtualmachines/vm": vm}
		if !tc.stopped {
			objects["virtualmachineinstances/vm"] = vmi
		}
		c := newCluster(t, objects, nil)
		c.conflicts = tc.conflicts
		if code, text := c.do(http.MethodPut, tc.path, tc.body); code != cmp.Or(tc.code, http.StatusAccepted) {
			t.Errorf("%s: %d %s", name, code, text)
		}
		var got []string
		for _, write := range c.written() {
			got = append(got, summarize(t, write))
		}
		if text := strings.Join(got, ", "); text != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, text, tc.want)
		}
	}
}

// The limits of a disk go with it.
func TestLimitsOfRemovedVolumes(t *testing.T) {
	spec := &v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{{Name: "root"}}}
	got := limitsWithout(map[string]string{
		"disk.virtkit.io/root": "bps=1Mi", "disk.virtkit.io/data": "bps=1Mi", "a": "b",
		"interface.virtkit.io/default": "in=1Mi",
	}, spec)
	if value, ok := got["disk.virtkit.io/data"]; len(got) != 1 || !ok || value != nil {
		t.Errorf("%v", got)
	}
}
