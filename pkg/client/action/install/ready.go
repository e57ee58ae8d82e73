package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Wait ends when every workload runs in its newest form, the API services answer, and the KubeVirt
// resource is Available. When the context's deadline comes first, the error wraps ErrNotReady and says what
// is missing and, as far as the pods show, why.
func (i *Installer) Wait(ctx context.Context, objects []*unstructured.Unstructured) error {
	var missing []string
	err := i.poll(ctx, func(ctx context.Context) (bool, error) {
		now, err := i.missing(ctx, objects)
		if err != nil {
			return false, err
		}
		if len(now) > 0 && !slices.Equal(now, missing) {
			i.progress("Waiting for %s", strings.Join(now, ", "))
		}
		missing = now
		return len(missing) == 0, nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || len(missing) == 0 {
		return err
	}
	reasons := i.diagnose(context.WithoutCancel(ctx))
	return fmt.Errorf("%w: %s", ErrNotReady, strings.Join(append(missing, reasons...), "; "))
}

// missing lists what is not ready yet, in words.
func (i *Installer) missing(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
	var missing []string
	for _, o := range objects {
		check, checked := readiness[o.GetKind()]
		if !checked {
			continue
		}
		client, err := at(i.Client, o)
		if err != nil {
			return nil, err
		}
		now, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, o.GetName()+" (not there)")
		case err != nil:
			return nil, err
		default:
			if why := check(now); why != "" {
				missing = append(missing, o.GetName()+" ("+why+")")
			}
		}
	}
	return missing, nil
}

// readiness says why an object of a kind is not ready; "" means that it is.
var readiness = map[string]func(*unstructured.Unstructured) string{
	"Deployment": func(o *unstructured.Unstructured) string {
		want, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		if !found {
			want = 1
		}
		if number(o, "observedGeneration") < o.GetGeneration() {
			return fmt.Sprintf("0 of %d ready", want)
		}
		have := min(number(o, "updatedReplicas"), number(o, "availableReplicas"))
		if have < want {
			return fmt.Sprintf("%d of %d ready", have, want)
		}
		return ""
	},
	"DaemonSet": func(o *unstructured.Unstructured) string {
		want := number(o, "desiredNumberScheduled")
		if number(o, "observedGeneration") < o.GetGeneration() || want == 0 {
			return "no node yet"
		}
		have := min(number(o, "updatedNumberScheduled"), number(o, "numberAvailable"))
		if have < want {
			return fmt.Sprintf("%d of %d ready", have, want)
		}
		return ""
	},
	"APIService": func(o *unstructured.Unstructured) string {
		if c := condition(o, "Available"); c.status != "True" {
			return reasonOr(c, "not answering")
		}
		return ""
	},
	"KubeVirt": func(o *unstructured.Unstructured) string {
		if c := condition(o, "Available"); c.status != "True" {
			return reasonOr(c, "no status yet")
		}
		return ""
	},
}

func number(o *unstructured.Unstructured, field string) int64 {
	n, _, _ := unstructured.NestedInt64(o.Object, "status", field)
	return n
}

type state struct{ status, reason, message string }

// condition returns one of an object's status conditions, empty when it is not there.
func condition(o *unstructured.Unstructured, kind string) state {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		m, ok := c.(map[string]any)
		if !ok || m["type"] != kind {
			continue
		}
		text := func(key string) string { s, _ := m[key].(string); return s }
		return state{text("status"), text("reason"), text("message")}
	}
	return state{}
}

func reasonOr(c state, otherwise string) string {
	if c.reason != "" {
		return c.reason
	}
	return otherwise
}

// diagnose returns what keeps our pods from running. It is for an error message, so its own failures don't matter.
func (i *Installer) diagnose(ctx context.Context) []string {
	list, err := i.Client.Resource(pods).Namespace(names.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: names.LabelComponent})
	if err != nil {
		return nil
	}
	var reasons []string
	for k := range list.Items {
		if why := ailment(&list.Items[k]); why != "" && !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	return reasons
}

// ailment returns why a pod does not run, in words; empty when nothing is known or the pod is being deleted.
func ailment(object *unstructured.Unstructured) string {
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &pod); err != nil {
		return fmt.Sprintf("pod %s cannot be read: %v", object.GetName(), err)
	}
	if fault := life.PodFault(&pod); fault != "" && life.PodStaying(&pod) {
		return "pod " + pod.Name + ": " + fault
	}
	return ""
}
