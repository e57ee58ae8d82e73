package host

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// late is how old a heartbeat may be before somebody should look; virt-handler leaves one a minute. virt-controller has
// a limit of its own (--node-timeout), after which the node's guests count as lost.
const late = 3 * time.Minute

// Heartbeat returns when virt-handler has last left a heartbeat on its node: RFC 3339, or the same in the quotes of a
// JSON time, as KubeVirt writes it.
func Heartbeat(node metav1.Object) (time.Time, error) {
	text := node.GetAnnotations()[v1.VirtHandlerHeartbeat]
	beat, err := time.Parse(time.RFC3339, strings.Trim(text, `"`))
	if err != nil {
		return time.Time{}, fmt.Errorf("annotation %s is not a time: %w", v1.VirtHandlerHeartbeat, err)
	}
	return beat, nil
}

// Late reports whether a heartbeat is older than those of a virt-handler that runs.
func Late(beat, now time.Time) bool { return now.Sub(beat) > late }
