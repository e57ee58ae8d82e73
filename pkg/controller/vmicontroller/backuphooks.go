package vmicontroller

import (
	"encoding/json"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
)

// backupHookTimeout is how long a hook may take; the guest's agent freezes for less.
const backupHookTimeout = "60s"

// backupHooks are the annotations by which Velero, and what does as it does, freezes a guest before the volumes of its
// pod are backed up, and thaws it after; KubeVirt's. skip says that guests that do not say have none.
func backupHooks(vmi *v1.VirtualMachineInstance, skip bool) map[string]string {
	if _, says := vmi.Annotations[names.AnnotationSkipBackupHooks]; says {
		skip = config.SkipsBackupHooks(vmi.Annotations)
	}
	if skip {
		return nil
	}
	hooks := map[string]string{}
	for when, what := range map[string]string{"pre": "--freeze", "post": "--unfreeze"} {
		command, err := json.Marshal([]string{
			"/usr/bin/" + names.VirtFreezer, what, "--name", vmi.Name, "--namespace", vmi.Namespace,
		})
		if err != nil {
			panic(err) // strings can be written
		}
		hook := when + ".hook.backup.velero.io/"
		hooks[hook+"container"] = names.ContainerCompute
		hooks[hook+"command"] = string(command)
		hooks[hook+"timeout"] = backupHookTimeout
	}
	return hooks
}
