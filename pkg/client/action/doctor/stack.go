package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// expected are the resources without which something does not work.
var expected = []string{"kubevirts", "virtualmachines", "virtualmachineinstances", "virtualmachineinstancemigrations"}

const install = "virtctl install --wait"

// stack looks at virtkit's components.
func (e *examination) stack() {
	if !e.installed() {
		return
	}
	e.kubeVirt()
	e.workloads()
	e.api()
	e.certificates()
	e.policies()
}

// installed reports whether there is anything to look at further.
func (e *examination) installed() bool {
	err := e.Resources.Err
	switch {
	case errors.Is(err, action.ErrNotInstalled), apierrors.IsNotFound(err):
		e.add(Stack, "installed", Failed, "virtkit is not installed in this cluster", install)
		return false
	case err != nil:
		e.skip(Stack, "installed", "the kinds that the cluster serves are", err)
		return true
	}
	var missing []string
	for _, resource := range expected {
		if !slices.Contains(e.Resources.Value, resource) {
			missing = append(missing, resource)
		}
	}
	if len(missing) > 0 {
		e.add(Stack, "resources", Failed, "the cluster does not know "+strings.Join(missing, ", "), install)
	} else {
		e.add(Stack, "resources", OK, fmt.Sprintf("%d resources of kubevirt.io/v1", len(e.Resources.Value)))
	}
	return true
}

func (e *examination) kubeVirt() {
	kv, err := e.KubeVirt.Value, e.KubeVirt.Err
	switch {
	case err != nil:
		e.skip(Stack, "phase", "the KubeVirt resource is", err)
	case kv == nil:
		e.add(Stack, "phase", Failed, "there is no KubeVirt resource, which holds the configuration", install)
	case kv.DeletionTimestamp != nil:
		e.add(Stack, "phase", Failed, "virtkit is being removed", install)
	case kv.Status.Phase == v1.KubeVirtPhaseDeployed:
		e.add(Stack, "phase", OK, "KubeVirt resource "+kv.Name+": Deployed")
	default:
		message := fmt.Sprintf("KubeVirt resource %s: phase %q", kv.Name, kv.Status.Phase)
		for _, c := range kv.Status.Conditions {
			if c.Type == v1.KubeVirtConditionAvailable && c.Status != corev1.ConditionTrue && c.Message != "" {
				message += ": " + c.Message
			}
		}
		e.add(Stack, "phase", Warning, message, "kubectl -n "+names.Namespace+" get pods")
	}
}

// workloads looks at the pods of virt-api and virt-controller; virt-handler's are the nodes'.
func (e *examination) workloads() {
	if err := e.Pods.Err; err != nil {
		e.skip(Stack, "components", "virt-api and virt-controller are", err)
		return
	}
	for _, component := range []string{names.VirtAPI, names.VirtController} {
		pods := life.Component(e.Pods.Value, component)
		up := 0
		restarts := int32(0)
		trouble := ""
		for _, pod := range pods {
			if life.PodReady(pod) {
				up++
			} else {
				trouble = pod.Name + ": " + life.PodTrouble(pod)
			}
			for _, c := range pod.Status.ContainerStatuses {
				restarts = max(restarts, c.RestartCount)
			}
		}
		logs := "kubectl -n " + names.Namespace + " logs deployment/" + component
		switch {
		case len(pods) == 0:
			e.add(Stack, component, Failed, component+" does not run", install)
		case up == 0:
			e.add(Stack, component, Failed,
				fmt.Sprintf("%s: none of %d pods is ready; %s", component, len(pods), trouble), logs)
		case up < len(pods):
			e.add(Stack, component, Warning,
				fmt.Sprintf("%s: %d of %d pods are ready; %s", component, up, len(pods), trouble), logs)
		case restarts > 3:
			e.add(Stack, component, Warning, fmt.Sprintf("%s: ready, but restarted %d times", component, restarts),
				logs+" --previous")
		default:
			e.add(Stack, component, OK, fmt.Sprintf("%s: %d of %d pods are ready", component, up, len(pods)))
		}
	}
}

// api looks at what virt-api serves: the subresources, and admission.
func (e *examination) api() {
	switch err := e.VirtAPI.Err; {
	case apierrors.IsForbidden(err):
		e.skip(Stack, "subresources", "the version of virt-api is", err)
	case err != nil:
		e.add(Stack, "subresources", Failed, "the aggregated API of virt-api does not answer: "+e.say(err),
			"kubectl get apiservice v1.subresources.kubevirt.io", "kubectl -n "+names.Namespace+" logs deployment/"+
				names.VirtAPI)
	case e.VirtAPI.Value.GitVersion != e.Program.Version.GitVersion:
		e.add(Stack, "subresources", Warning, fmt.Sprintf("virt-api is %s, this program is %s",
			e.VirtAPI.Value.GitVersion, e.Program.Version.GitVersion), install+" (or install the matching virtctl)")
	default:
		e.add(Stack, "subresources", OK, "virt-api answers: "+e.VirtAPI.Value.GitVersion)
	}
	switch err := e.Admission; {
	case err == nil:
		e.add(Stack, "admission", OK, "the webhooks admit a VM in namespace "+e.Namespace+" (dry run)")
	case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "admission webhook"):
		e.skip(Stack, "admission", "admission is", err)
	default:
		e.add(Stack, "admission", Failed, "a plain VM is not admitted: "+e.say(err),
			"kubectl get validatingwebhookconfigurations "+names.ValidatingWebhook+" -o yaml",
			"kubectl -n "+names.Namespace+" logs deployment/"+names.VirtAPI)
	}
}

func (e *examination) certificates() {
	authorities, err := e.Authorities.Value, e.Authorities.Err
	if err != nil {
		e.skip(Stack, "certificates", "the certificate authority is", err)
		return
	}
	var best time.Time
	for _, c := range authorities {
		if c.NotAfter.After(best) {
			best = c.NotAfter
		}
	}
	logs := "kubectl -n " + names.Namespace + " logs deployment/" + names.VirtController
	switch left := best.Sub(e.Now); {
	case len(authorities) == 0:
		e.add(Stack, "certificates", Failed, "virtkit has no certificate authority yet: virt-controller makes it", logs)
	case left < 0:
		e.add(Stack, "certificates", Failed,
			fmt.Sprintf("virtkit's certificate authority expired %s ago: virt-controller has not renewed it",
				spell(-left)), logs)
	case left < 24*time.Hour:
		e.add(Stack, "certificates", Warning,
			fmt.Sprintf("virtkit's certificate authority expires in %s: virt-controller should have renewed it",
				spell(left)), logs)
	default:
		e.add(Stack, "certificates", OK, fmt.Sprintf("virtkit's certificate authority is good for %s", spell(left)))
	}
}
