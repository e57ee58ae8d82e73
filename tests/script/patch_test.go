package script

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patch merges a JSON merge patch into an object.
func (c *cluster) patch(w http.ResponseWriter, r *http.Request) {
	ns, resource, name := r.PathValue("ns"), r.PathValue("resource"), r.PathValue("name")
	found := c.find(resource, ns, name)
	if found == nil {
		refuse(w, apierrors.NewNotFound(group(resource), name))
		return
	}
	body, err := io.ReadAll(r.Body)
	var change map[string]any
	if err == nil {
		err = json.Unmarshal(body, &change)
	}
	var out metav1.Object
	if err == nil {
		out, err = merged(found, change)
	}
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	c.note(r, bytes.TrimSpace(body))
	if r.URL.Query().Get("dryRun") == "" {
		c.put1(resource, out)
	}
	answer(w, http.StatusOK, out)
}

func merged(object metav1.Object, change map[string]any) (metav1.Object, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var plain map[string]any
	if err := json.Unmarshal(data, &plain); err != nil {
		return nil, err
	}
	merge(plain, change)
	if data, err = json.Marshal(plain); err != nil {
		return nil, err
	}
	out := reflect.New(reflect.TypeOf(object).Elem()).Interface().(metav1.Object)
	return out, json.Unmarshal(data, out)
}

// merge is RFC 7386.
func merge(into, change map[string]any) {
	for key, value := range change {
		part, isMap := value.(map[string]any)
		have, hasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && hasMap:
			merge(have, part)
		case isMap:
			fresh := map[string]any{}
			merge(fresh, part)
			into[key] = fresh
		default:
			into[key] = value
		}
	}
}
