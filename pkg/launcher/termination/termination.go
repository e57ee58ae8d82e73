// Package termination reads and writes a launcher's report on how its guest ended: the termination message of its
// container, which the kubelet copies to the pod's status. virt-handler and virt-controller decide by it whether a
// guest may run elsewhere, so there is one codec.
package termination

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// Message is a termination message. The zero value is none: the launcher was killed before it could write one, or has
// nothing to report.
type Message struct {
	Lifecycle launcherpb.Lifecycle
	// Reason is a text of the launcher's, or one of its well-known words (names.ReasonNeverRan,
	// names.ReasonTerminated).
	Reason string
	// StateSaved: the guest's persistent state is on the claim of the launcher's pod.
	StateSaved bool
}

// wire is a message as it is written.
type wire struct {
	Lifecycle  string `json:"lifecycle"`
	Reason     string `json:"reason"`
	StateSaved bool   `json:"stateSaved,omitempty"`
}

// Encode returns the text of a message; none for the zero value.
func (m Message) Encode() ([]byte, error) {
	if m == (Message{}) {
		return nil, nil
	}
	text, err := json.Marshal(wire{Lifecycle: m.Lifecycle.String(), Reason: m.Reason, StateSaved: m.StateSaved})
	if err != nil {
		return nil, fmt.Errorf("encode the termination message: %w", err)
	}
	return text, nil
}

// Parse reads a text. It returns the zero value when the text is no message, such as the end of a log, or its lifecycle
// is not known. The text comes from the guest's pod: Reason is as long as the kubelet lets it be, and may hold
// anything.
func Parse(text string) Message {
	var w wire
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return Message{} // no message of a launcher
	}
	lifecycle, known := launcherpb.Lifecycle_value[w.Lifecycle]
	if !known {
		return Message{}
	}
	return Message{Lifecycle: launcherpb.Lifecycle(lifecycle), Reason: w.Reason, StateSaved: w.StateSaved}
}

// Of reads the last message of a pod's launcher, if it has ended.
func Of(pod *corev1.Pod) Message {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.Name == names.ContainerCompute && status.State.Terminated != nil {
			return Parse(status.State.Terminated.Message)
		}
	}
	return Message{}
}
