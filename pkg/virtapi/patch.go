package virtapi

import (
	"encoding/json"
	"fmt"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// patched answers with the JSON patch from raw to what defaulting made of it. Only what defaulting changed
// between before and after is merged into raw, so that the user's object keeps its form.
func patched(raw []byte, before, after any) (*admissionv1.AdmissionResponse, error) {
	trees := make([]map[string]any, 3)
	for i, object := range []any{json.RawMessage(raw), before, after} {
		data, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encode the object: %w", err)
		}
		if err := utiljson.Unmarshal(data, &trees[i]); err != nil {
			return nil, fmt.Errorf("decode the object: %w", err)
		}
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	var patch []operation
	add := func(path string, user, before, after any, exists bool) {
		if reflect.DeepEqual(before, after) {
			return
		}
		op := "add"
		if exists {
			op = "replace"
		}
		patch = append(patch, operation{op, path, merge(user, before, after)})
	}
	spec, hasSpec := trees[0]["spec"]
	if exact, fractions := quantities(spec, trees[1]["spec"]); fractions {
		patch = append(patch, operation{"replace", "/spec", merge(exact, trees[1]["spec"], trees[2]["spec"])})
	} else {
		add("/spec", spec, trees[1]["spec"], trees[2]["spec"], hasSpec)
	}
	finalizers := func(tree map[string]any) (any, bool) {
		meta, _ := tree["metadata"].(map[string]any)
		value, ok := meta["finalizers"]
		return value, ok
	}
	user, has := finalizers(trees[0])
	was, _ := finalizers(trees[1])
	is, _ := finalizers(trees[2])
	add("/metadata/finalizers", user, was, is, has)
	if len(patch) == 0 {
		return allowed(), nil
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: body, PatchType: &kind}, nil
}

// quantities returns user with each quantity that is written as a fraction, such as cpu: 0.5, as the string that it was
// read as, and whether there are such. The API server takes fractions in pods, KubeVirt in VMs; the schema of a custom
// resource has integers and strings only.
func quantities(user, read any) (any, bool) {
	fractions := false
	switch user := user.(type) {
	case float64:
		if text, ok := read.(string); ok {
			return text, true
		}
	case map[string]any:
		was, _ := read.(map[string]any)
		out := make(map[string]any, len(user))
		for key, value := range user {
			exact, changed := quantities(value, was[key])
			out[key], fractions = exact, fractions || changed
		}
		return out, fractions
	case []any:
		was, _ := read.([]any)
		if len(was) != len(user) {
			return user, false
		}
		out := make([]any, len(user))
		for i, value := range user {
			exact, changed := quantities(value, was[i])
			out[i], fractions = exact, fractions || changed
		}
		return out, fractions
	}
	return user, false
}

// merge brings the difference between before and after into user.
func merge(user, before, after any) any {
	if reflect.DeepEqual(before, after) {
		return user
	}
	switch after := after.(type) {
	case map[string]any:
		was, _ := before.(map[string]any)
		out := map[string]any{}
		if own, ok := user.(map[string]any); ok {
			for key, value := range own {
				out[key] = value
			}
		}
		for key := range was {
			if _, stays := after[key]; !stays {
				delete(out, key)
			}
		}
		for key, value := range after {
			if old, ok := was[key]; ok && reflect.DeepEqual(old, value) {
				continue
			}
			out[key] = merge(out[key], was[key], value)
		}
		return out
	case []any:
		was, _ := before.([]any)
		own, _ := user.([]any)
		if len(was) != len(after) || len(own) != len(after) {
			return after
		}
		out := make([]any, len(after))
		for i := range after {
			out[i] = merge(own[i], was[i], after[i])
		}
		return out
	default:
		return after
	}
}
