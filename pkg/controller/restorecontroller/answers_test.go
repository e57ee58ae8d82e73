package restorecontroller

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
)

var claimsResource = schema.GroupResource{Resource: "persistentvolumeclaims"}

// A refusal is said and tried again; a restore that is deleted ends with it.
func TestRefused(t *testing.T) {
	forbidden := fmt.Errorf("create PVC: %w", apierrors.NewForbidden(claimsResource, "c", errors.New("exceeded quota")))
	for name, tc := range map[string]struct {
		err     error
		deleted bool
		fresh   bool
		want    string
	}{
		"a quota": {err: forbidden, want: "stuck: VirtualMachineRestore encountered error create PVC"},
		"an invalid object": {
			err:  apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolumeClaim"}, "c", nil),
			want: "stuck: VirtualMachineRestore encountered error",
		},
		"being deleted": {
			err: forbidden, deleted: true,
			want: `ends, releases: VirtualMachineRestore is deleted before its end: create PVC: persistentvolumeclaims "c" ` +
				"is forbidden: exceeded quota; VM vm is the old one, whole: nothing of it was replaced",
		},
		"a conflict":         {err: apierrors.NewConflict(claimsResource, "c", errors.New("changed"))},
		"gone":               {err: apierrors.NewNotFound(claimsResource, "c")},
		"gone while deleted": {err: apierrors.NewNotFound(claimsResource, "c"), deleted: true},
		"another error":      {err: errors.New("connection refused")},
		"without a status":   {err: forbidden, fresh: true},
	} {
		v := viewOf(t)
		v.VM.Status.RestoreInProgress = &v.Restore.Name
		if tc.deleted {
			v.Restore.DeletionTimestamp = new(metav1.NewTime(now))
		}
		if tc.fresh {
			v.Restore.Status = nil
		}
		got := ""
		if step := v.refused(tc.err); step != nil {
			switch {
			case step.Stuck && step.Status != nil && !step.Release && !step.RemoveFinalizer:
				got = "stuck: "
			case step.RemoveFinalizer && step.Release && step.Status == nil:
				got = "ends, releases: "
			}
			got += step.Events[0].Message
		}
		if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestWouldRefuse(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}}
	vms := schema.GroupResource{Resource: "virtualmachines"}
	for name, tc := range map[string]struct {
		answer       error
		trouble, err bool
	}{
		"taken":              {},
		"invalid":            {answer: apierrors.NewInvalid(schema.GroupKind{}, "vm", nil), trouble: true},
		"a bad request":      {answer: apierrors.NewBadRequest("no"), trouble: true},
		"a quota, for now":   {answer: apierrors.NewForbidden(vms, "vm", errors.New("quota"))},
		"there already":      {answer: apierrors.NewAlreadyExists(vms, "vm")},
		"nobody answers yet": {answer: apierrors.NewInternalError(errors.New("webhook")), err: true},
	} {
		if trouble, err := wouldRefuse(vm, tc.answer); (trouble != "") != tc.trouble || (err != nil) != tc.err {
			t.Errorf("%s: %q, %v", name, trouble, err)
		}
	}
}
