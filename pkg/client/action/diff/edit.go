package diff

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// EditAPI has the methods of a client that edits call.
type EditAPI interface {
	API
	Patch(ctx context.Context, resource, namespace, name string, kind types.PatchType, patch []byte, dryRun bool,
		into runtime.Object) error
}

// Edit is an object as its editor saw it first and left it.
type Edit struct{ Before, After map[string]any }

// head checks that it is still the same object, of a kind that is compared.
func (e Edit) head() (Object, error) {
	before, err := headOf(e.Before, "")
	if err != nil {
		return before, err
	}
	after, err := headOf(e.After, "")
	if err != nil {
		return before, err
	}
	switch {
	case before.Kind != after.Kind || before.Namespace != after.Namespace || before.Name != after.Name:
		return before, fmt.Errorf("kind, metadata.namespace and metadata.name cannot be changed: this is %s %s/%s",
			before.Kind, before.Namespace, before.Name)
	case resources[before.Kind] == "":
		return before, fmt.Errorf("kind %s cannot be edited here", before.Kind)
	case e.Before["apiVersion"] != e.After["apiVersion"]:
		return before, fmt.Errorf("apiVersion cannot be changed: it is %v", e.Before["apiVersion"])
	}
	return before, nil
}

// patch returns the merge patch of what was edited.
func (e Edit) patch(resourceVersion string) ([]byte, error) {
	patch := threeWay(e.Before, e.After, e.Before)
	delete(patch, "status") // the server keeps it
	if resourceVersion != "" {
		metadata, _ := patch["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["resourceVersion"] = resourceVersion
		patch["metadata"] = metadata
	}
	return json.Marshal(patch)
}

// ChangedError is an object of which others have changed, meanwhile, what a user decides.
type ChangedError struct{ Kind, Namespace, Name string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s %s/%s was changed by others since it was opened; edit it again", e.Kind, e.Namespace, e.Name)
}

// Verdict asks the server for the edited object in a dry run, and returns when each field takes effect.
func Verdict(ctx context.Context, api API, e Edit) (*Object, error) {
	verdict, _, err := Try(ctx, api, e, true)
	return verdict, err
}

// Try returns when each edited field takes effect, and the object as it would be. With ask, the server says so in a dry
// run, so that defaults and webhooks count; else the object is taken as the edit has it.
func Try(ctx context.Context, api API, e Edit, ask bool) (*Object, map[string]any, error) {
	head, err := e.head()
	if err != nil {
		return nil, nil, err
	}
	live, err := unchanged(ctx, api, e, head)
	if err != nil {
		return nil, nil, err
	}
	then := e.After
	if ask {
		patch, err := e.patch("")
		if err != nil {
			return nil, nil, err
		}
		then, err = api.TryPatch(ctx, resources[head.Kind], head.Namespace, head.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: "virtctl"})
		if err != nil {
			return nil, nil, err
		}
	}
	head.Exists = true
	return &head, then, judge(ctx, api, &head, live, then)
}

// unchanged reads the object, and fails when others have changed of it what a user decides: their change would be lost.
func unchanged(ctx context.Context, api API, e Edit, head Object) (map[string]any, error) {
	live, err := api.Raw(ctx, resources[head.Kind], head.Namespace, head.Name)
	if err != nil {
		return nil, err
	}
	if was := uidOf(e.Before); was != "" && uidOf(live) != was || !reflect.DeepEqual(visible(live), visible(e.Before)) {
		return nil, &ChangedError{head.Kind, head.Namespace, head.Name}
	}
	return live, nil
}

// uidOf returns an object's UID, empty where a text of it has none.
func uidOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	uid, _ := metadata["uid"].(string)
	return uid
}

// Apply stores what was edited, unless others have changed the object meanwhile.
func Apply(ctx context.Context, api EditAPI, e Edit) error {
	_, err := Store(ctx, api, e)
	return err
}

// maxConflicts is how often Store tries again when the server has written the object's status meanwhile.
const maxConflicts = 5

// Store does what Apply does, and returns the object as it is stored.
func Store(ctx context.Context, api EditAPI, e Edit) (runtime.Object, error) {
	head, err := e.head()
	if err != nil {
		return nil, err
	}
	for tries := 0; ; tries++ {
		live, err := unchanged(ctx, api, e, head)
		if err != nil {
			return nil, err
		}
		metadata, _ := live["metadata"].(map[string]any)
		version, _ := metadata["resourceVersion"].(string)
		patch, err := e.patch(version)
		if err != nil {
			return nil, err
		}
		var into runtime.Object = &v1.VirtualMachine{}
		if head.Kind == v1.VirtualMachineInstanceGroupVersionKind.Kind {
			into = &v1.VirtualMachineInstance{}
		}
		err = api.Patch(ctx, resources[head.Kind], head.Namespace, head.Name, types.MergePatchType, patch, false, into)
		if !apierrors.IsConflict(err) || tries == maxConflicts {
			return into, err
		}
	}
}

// ReadEdit reads what an editor was given and what it left.
func ReadEdit(before, after string) (Edit, error) {
	was, err := single(before)
	if err != nil {
		return Edit{}, err
	}
	is, err := single(after)
	return Edit{Before: was, After: is}, err
}

func single(text string) (map[string]any, error) {
	objects, err := Read(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("there are %d objects; one was to be edited", len(objects))
	}
	return objects[0], nil
}
