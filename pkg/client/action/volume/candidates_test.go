package volume

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// shelf answers by path and the page that is asked for.
type shelf struct {
	pages     map[string]string
	forbidden string
}

func (s shelf) Read(_ context.Context, path string, query url.Values, into any) error {
	if path == s.forbidden {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "virtualmachines"}, "", errors.New("no"))
	}
	if at := query.Get("continue"); at != "" {
		path += "?" + at
	}
	answer, ok := s.pages[path]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, path)
	}
	data, err := yaml.YAMLToJSON([]byte(answer))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

const (
	claimsPath = "/api/v1/namespaces/prod/persistentvolumeclaims"
	vmsPath    = "/apis/kubevirt.io/v1/namespaces/prod/virtualmachines"
	vmisPath   = "/apis/kubevirt.io/v1/namespaces/prod/virtualmachineinstances"
)

func TestCandidates(t *testing.T) {
	t.Parallel()
	s := shelf{pages: map[string]string{
		claimsPath: `{metadata: {continue: more}, items: [{metadata: {name: root, deletionTimestamp: "2026-01-02T03:04:05Z"}, spec: {storageClassName: fast, accessModes: [ReadWriteOnce, ReadWriteMany],
			resources: {requests: {storage: 1Gi}}}, status: {phase: Bound, capacity: {storage: 2Gi}}}]}`,
		claimsPath +
			"?more": `{items: [{metadata: {name: data}, spec: {accessModes: [ReadOnlyMany], resources: {requests: {storage: 3Gi}}}, status: {phase: Pending}}]}`,
		vmsPath: `{items: [{metadata: {name: web}, spec: {template: {spec: {volumes: [{name: a, persistentVolumeClaim: {claimName: root}}, {name: b, emptyDisk: {capacity: 1Gi}}]}}}}, {metadata: {name: bare}}]}`,
		vmisPath: `{items: [
			{metadata: {name: web, ownerReferences: [{kind: VirtualMachine, name: web, controller: true}]}, spec: {volumes: [{name: a, persistentVolumeClaim: {claimName: root}}, {name: c, dataVolume: {name: data}}]}},
			{metadata: {name: probe}, spec: {volumes: [{name: a, persistentVolumeClaim: {claimName: data}}]}}]}`,
	}}
	want := []Claim{
		{Name: "data", Size: "3Gi", Modes: "ROX", Status: "Pending", UsedBy: []string{"vmi/probe", "web"}},
		{Name: "root", Class: "fast", Size: "2Gi", Modes: "RWO,RWX", Status: "Terminating", UsedBy: []string{"web"}},
	}
	got, users, err := Candidates(context.Background(), s, "prod")
	if diff := cmp.Diff(want, got); diff != "" || !users || err != nil {
		t.Errorf("users %t, %v\n%s", users, err, diff)
	}
	s.forbidden = vmisPath
	got, users, err = Candidates(context.Background(), s, "prod")
	want[0].UsedBy, want[1].UsedBy = nil, nil
	if diff := cmp.Diff(want, got); diff != "" || users || err != nil {
		t.Errorf("who may not read machines: users %t, %v\n%s", users, err, diff)
	}
	s.forbidden = claimsPath
	if _, _, err := Candidates(context.Background(), s, "prod"); !apierrors.IsForbidden(err) {
		t.Errorf("who may not read claims: %v", err)
	}
	s.forbidden = ""
	delete(s.pages, vmsPath)
	if _, _, err := Candidates(context.Background(), s, "prod"); !apierrors.IsNotFound(err) {
		t.Errorf("an error is not said: %v", err)
	}
}

func TestAttachments(t *testing.T) {
	t.Parallel()
	vm, vmi := &v1.VirtualMachine{}, &v1.VirtualMachineInstance{}
	for text, into := range map[string]any{
		`{spec: {template: {spec: {volumes: [{name: root, persistentVolumeClaim: {claimName: root}},
			{name: a, persistentVolumeClaim: {claimName: data, hotpluggable: true}}, {name: next, dataVolume: {name: image, hotpluggable: true}}],
			domain: {devices: {disks: [{name: next, serial: img, cdrom: {bus: sata}}]}}}}}}`: vm,
		`{spec: {volumes: [{name: root, persistentVolumeClaim: {claimName: root}}, {name: a, persistentVolumeClaim: {claimName: data, hotpluggable: true}},
			{name: b, persistentVolumeClaim: {claimName: extra, hotpluggable: true}}],
			domain: {devices: {disks: [{name: root, serial: r, disk: {bus: virtio}}, {name: a, serial: s1, disk: {bus: scsi}},
			{name: b, lun: {bus: scsi}}]}}}, status: {volumeStatus: [{name: a, phase: Ready}]}}`: vmi,
	} {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	both := []Attachment{
		{Name: "a", Claim: "data", Bus: "scsi", Serial: "s1", Status: &vmi.Status.VolumeStatus[0]},
		{Name: "b", Claim: "extra", Bus: "scsi", Instance: true},
		{Name: "next", Claim: "image", Bus: "sata", Serial: "img"},
	}
	if diff := cmp.Diff(both, Attachments(vm, vmi)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Attachment{{Name: "a", Claim: "data"}, both[2]}, Attachments(vm, nil)); diff != "" {
		t.Error(diff)
	}
	both[0].Instance = true
	if diff := cmp.Diff(both[:2], Attachments(nil, vmi)); diff != "" {
		t.Error(diff)
	}
}

// A volume that was unplugged, and that the guest has not let go of, is its machine's still, and so is the claim.
func TestLeaving(t *testing.T) {
	t.Parallel()
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name = "probe"
	if err := yaml.UnmarshalStrict([]byte(`{spec: {volumes: [{name: back, persistentVolumeClaim: {claimName: back,
		hotpluggable: true}}]}, status: {volumeStatus: [
		{name: root, phase: Detaching, persistentVolumeClaimInfo: {claimName: root}},
		{name: back, phase: Detaching, hotplugVolume: {}, persistentVolumeClaimInfo: {claimName: back}},
		{name: data, phase: Detaching, reason: VolumeDetachFailed, message: "volume \"data\": it is in use", hotplugVolume: {},
		persistentVolumeClaimInfo: {claimName: c}}]}}`), vmi); err != nil {
		t.Fatal(err)
	}
	want := Attachment{Name: "data", Claim: "c", Leaving: true, Status: &vmi.Status.VolumeStatus[2]}
	got := Attachments(nil, vmi)
	if len(got) != 2 || got[0].Name != "back" || got[0].Leaving {
		t.Fatalf("%+v", got)
	}
	if diff := cmp.Diff(want, got[1]); diff != "" {
		t.Error(diff)
	}
	users := claims.Users{}
	users.AddVMI(vmi)
	if len(users["c"]) != 1 || len(users["back"]) != 1 || len(users["root"]) != 0 {
		t.Errorf("%v", users)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for field, o := range map[string]Options{
		"":            {Volume: "data", DiskType: "disk", Bus: "virtio", Cache: "none"},
		"volume-name": {},
		"disk-name":   {Volume: "a.long.name"},
		"disk-type":   {Volume: "data", DiskType: "floppy"},
		"bus":         {Volume: "data", DiskType: "lun", Bus: "virtio"},
		"cache":       {Volume: "data", Cache: "much"},
	} {
		wrong := &FieldError{}
		if err := o.CheckAdd(); field == "" && err != nil ||
			field != "" && (!errors.As(err, &wrong) || wrong.Field != field) {
			t.Errorf("%+v: %v, not of %q", o, err, field)
		}
	}
	if err := (&Options{Volume: "a.long.name"}).CheckRemove(); err != nil {
		t.Error(err)
	}
}
