package expect

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Kind of a Transcript.
const Kind = "ExpectTranscript"

// Transcript is what happened when a script was run. It is what `virtctl expect -o json` prints.
type Transcript struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta has the name and the namespace of the machine.
	metav1.ObjectMeta `json:"metadata"`

	// Steps are the statements that were run, in that order.
	Steps []Step `json:"steps"`
	// ExitCode is what the script ended with: its exit statement's, 0 at its end, 8 after a wait that took too
	// long, else 1.
	ExitCode int `json:"exitCode"`
	// Error says why a script ended that has neither come to its end nor to an exit.
	Error string `json:"error,omitempty"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
}

// Step is one statement that was run.
type Step struct {
	// Line of the script, from 1.
	Line int `json:"line"`
	// Statement as it is written there.
	Statement string `json:"statement"`
	// At is when it began, in seconds after the start, and Seconds how long it took.
	At      float64 `json:"at"`
	Seconds float64 `json:"seconds"`
	// Sent is what was typed; *** for a secret.
	Sent string `json:"sent,omitempty"`
	// Output is what the guest wrote up to the end of the match. Of more than 64 KiB only the end is kept.
	Output string `json:"output,omitempty"`
	// Truncated is whether the beginning of Output was left out.
	Truncated bool `json:"truncated,omitempty"`
	// Match is what the pattern matched, and Groups the values of its groups by number or name.
	Match  string            `json:"match,omitempty"`
	Groups map[string]string `json:"groups,omitempty"`
	// Printed is the line that a print wrote.
	Printed string `json:"printed,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (t *Transcript) DeepCopyObject() runtime.Object {
	out := *t
	t.DeepCopyInto(&out.ObjectMeta)
	out.Steps = append([]Step(nil), t.Steps...)
	for i, step := range out.Steps {
		if step.Groups == nil {
			continue
		}
		groups := make(map[string]string, len(step.Groups))
		for k, v := range step.Groups {
			groups[k] = v
		}
		out.Steps[i].Groups = groups
	}
	return &out
}
