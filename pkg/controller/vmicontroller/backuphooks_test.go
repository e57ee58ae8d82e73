package vmicontroller

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

func TestBackupHooks(t *testing.T) {
	for _, c := range []struct {
		name, says string
		skip, want bool
	}{
		{"nobody says", "-", false, true},
		{"the installation skips them", "-", true, false},
		{"the guest skips them", "true", false, false},
		{"the guest has them all the same", "false", true, true},
		{"a word that says nothing", "perhaps", true, true},
	} {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
		if c.says != "-" {
			vmi.Annotations = map[string]string{names.AnnotationSkipBackupHooks: c.says}
		}
		got := backupHooks(vmi, c.skip)
		if !c.want {
			if len(got) > 0 {
				t.Errorf("%s: %v", c.name, got)
			}
			continue
		}
		want := map[string]string{
			"pre.hook.backup.velero.io/container":  "compute",
			"pre.hook.backup.velero.io/timeout":    "60s",
			"post.hook.backup.velero.io/container": "compute",
			"post.hook.backup.velero.io/timeout":   "60s",
		}
		command := `["/usr/bin/virt-freezer","--freeze","--name","demo","--namespace","default"]`
		want["pre.hook.backup.velero.io/command"] = command
		want["post.hook.backup.velero.io/command"] = strings.Replace(command, "--freeze", "--unfreeze", 1)
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}
