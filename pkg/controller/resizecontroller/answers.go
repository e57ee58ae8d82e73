package resizecontroller

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// causeNodeCapacity is the cause that the API server (since 1.36) gives when a pod would need more than its node has;
// Kubernetes' plugin/pkg/admission/podresize.
const causeNodeCapacity metav1.CauseType = "NodeCapacity"

// resized takes the API server's answer to the request for other resources of the pod. Why it does not let the pod have
// them goes into the status; it knows the size of the node. A pod that would have become smaller keeps what it has. An
// error ends the step.
func (s *Step) resized(view View, err error) error {
	switch {
	case err == nil:
	case !frame.Refused(err) && !apierrors.IsMethodNotSupported(err):
		return fmt.Errorf("resize pod %s: %w", view.Pod.Name, err)
	case !grows(view.VMI, cpus) && !grows(view.VMI, memory):
	case apierrors.HasStatusCause(err, causeNodeCapacity):
		s.move(view, err.Error())
	default:
		s.set(view, sizing.ReasonPodResizeRefused,
			"Pod "+view.Pod.Name+" cannot grow on node "+view.Pod.Spec.NodeName+": "+err.Error()+".")
		s.RequeueAfter = again
	}
	return nil
}
