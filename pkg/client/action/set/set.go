// Package set changes one thing of a VirtualMachine: its size, its run strategy, what it refers to. A Change edits the
// decoded object; Run has package diff judge the edit, and stores it unless others changed the VM at the same time.
package set

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/diff"
)

// Change edits a VirtualMachine, decoded JSON.
type Change func(vm *unstructured.Unstructured) error

// Mode says how much is done.
type Mode int

// The modes.
const (
	// Store changes the VM.
	Store Mode = iota
	// Ask has the server try the change.
	Ask
	// Local asks the server nothing but to read.
	Local
)

// Result is the result of a change.
type Result struct {
	// Verdict has the fields that were changed, and when each takes effect; none when the VM was so already.
	Verdict *diff.Object
	// VM is the object as it is stored, or as it would be.
	VM runtime.Object
}

// ValueError is a value that makes no sense for the VM as it is.
type ValueError struct{ text string }

func (e *ValueError) Error() string { return e.text }

// maxTries is how often a change is made anew when others change the VM at the same time.
const maxTries = 5

// Run makes a change.
func Run(ctx context.Context, api diff.EditAPI, namespace, name string, change Change, mode Mode) (*Result, error) {
	for tries := 1; ; tries++ {
		out, err := once(ctx, api, namespace, name, change, mode)
		var changed *diff.ChangedError
		if tries == maxTries || !errors.As(err, &changed) {
			return out, err
		}
	}
}

func once(
	ctx context.Context, api diff.EditAPI, namespace, name string, change Change, mode Mode,
) (*Result, error) {
	live, err := api.Raw(ctx, client.VMs, namespace, name)
	if err != nil {
		return nil, err
	}
	after := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(live)}
	if err := change(after); err != nil {
		return nil, fmt.Errorf("VM %s/%s: %w", namespace, name, err)
	}
	edit := diff.Edit{Before: live}
	if edit.After, err = plain(after.Object); err != nil {
		return nil, err
	}
	verdict, then, err := diff.Try(ctx, api, edit, mode != Local)
	if err != nil {
		return nil, err
	}
	out := &Result{Verdict: verdict, VM: &unstructured.Unstructured{Object: then}}
	if mode == Store && len(verdict.Changes) > 0 {
		out.VM, err = diff.Store(ctx, api, edit)
	}
	return out, err
}

// plain returns a copy of an object in which numbers are as JSON's decoder makes them.
func plain(object map[string]any) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode the VM: %w", err)
	}
	var out map[string]any
	return out, json.Unmarshal(data, &out)
}
