package why

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// stack looks at virtkit itself.
func (e *explanation) stack() {
	const object = "kubevirt/" + names.KubeVirt
	if e.NotInstalled {
		e.add(rankAbsent, LayerStack, object, Broken, "NotInstalled", "virtkit is not installed in this cluster",
			"virtctl install --wait")
		return
	}
	if kv := e.KubeVirt; kv != nil {
		switch {
		case kv.DeletionTimestamp != nil:
			e.add(rankStack, LayerStack, object, Broken, "Uninstalling", "virtkit is being removed from this cluster",
				"virtctl install --wait")
		case kv.Status.Phase != "" && kv.Status.Phase != v1.KubeVirtPhaseDeployed:
			e.add(rankSymptom, LayerStack, object, Waiting, "NotDeployed",
				fmt.Sprintf("virtkit is not ready yet: phase %s", kv.Status.Phase), "virtctl doctor")
		}
	}
	if !e.readable("pods of virtkit") {
		return
	}
	for _, component := range []struct{ name, without string }{
		{names.VirtController, "no VM is started, stopped or moved"},
		{names.VirtAPI, "nothing can be created, started or connected to"},
	} {
		pods := life.Component(e.Stack, component.name)
		if slices.ContainsFunc(pods, life.PodReady) {
			continue
		}
		object := "deployment/" + component.name
		if len(pods) == 0 {
			e.add(rankStack, LayerStack, object, Broken, "ComponentMissing",
				fmt.Sprintf("%s does not run at all: without it %s", component.name, component.without),
				"virtctl install --wait",
				"kubectl -n "+names.Namespace+" describe deployment "+component.name)
			continue
		}
		e.add(rankStack, LayerStack, object, Broken, "ComponentNotReady",
			fmt.Sprintf("%s is not ready: %s; without it %s", component.name, life.PodTrouble(pods[0]),
				component.without),
			"kubectl -n "+names.Namespace+" logs deployment/"+component.name, "virtctl doctor")
	}
}

func (e *explanation) readable(what string) bool { return !slices.Contains(e.Unreadable, what) }
