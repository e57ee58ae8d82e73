package set

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// None is the text for a disk or interface that is to have no limits.
const None = "none"

// QoS are rate limits, each as NAME=LIMITS or NAME=none: those of the disk or interface are these then, and no others.
type QoS struct {
	Disks, Interfaces []string
	// None takes all limits away first.
	None bool
}

var templateAnnotations = []string{"spec", "template", "metadata", "annotations"}

// SetQoS changes the rate limits of disks and interfaces.
func SetQoS(q QoS) (Change, error) {
	limits := map[string]string{}
	for _, of := range []struct {
		flag, prefix string
		texts        []string
		parse        func(string) (fmt.Stringer, error)
	}{
		{"--disk", qos.DiskPrefix, q.Disks, func(text string) (fmt.Stringer, error) { return qos.ParseDisk(text) }},
		{
			"--interface", qos.InterfacePrefix, q.Interfaces,
			func(text string) (fmt.Stringer, error) { return qos.ParseInterface(text) },
		},
	} {
		for _, text := range of.texts {
			name, value, ok := strings.Cut(text, "=")
			if !ok || name == "" {
				return nil, fmt.Errorf("%s: %q is no NAME=LIMITS", of.flag, text)
			}
			if _, twice := limits[of.prefix+name]; twice {
				return nil, fmt.Errorf("%s: %q is named twice; give its limits in one", of.flag, name)
			}
			limits[of.prefix+name] = ""
			if strings.EqualFold(value, None) {
				continue
			}
			parsed, err := of.parse(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", of.flag, name, err)
			}
			limits[of.prefix+name] = parsed.String()
		}
	}
	if len(limits) == 0 && !q.None {
		return nil, errors.New("say --disk or --interface NAME=LIMITS, or --none")
	}
	return func(vm *unstructured.Unstructured) error { return limit(vm, limits, q.None) }, nil
}

// limit writes limits into a VM's template, "" for none; all says that the others go.
func limit(vm *unstructured.Unstructured, limits map[string]string, all bool) error {
	have, _, err := unstructured.NestedStringMap(vm.Object, templateAnnotations...)
	if err != nil {
		return fmt.Errorf("spec.template.metadata.annotations: %w", err)
	}
	after := map[string]string{}
	maps.Copy(after, have)
	if all {
		maps.DeleteFunc(after, func(key, _ string) bool { return qos.Is(key) })
	}
	for key, text := range limits {
		if text == "" {
			delete(after, key)
			continue
		}
		after[key] = same(have[key], text)
	}
	switch {
	case maps.Equal(have, after):
		return nil
	case len(after) == 0:
		unstructured.RemoveNestedField(vm.Object, templateAnnotations...)
		return nil
	}
	return unstructured.SetNestedStringMap(vm.Object, after, templateAnnotations...)
}

// same returns the text that is there if it says the same as the new one.
func same(have, text string) string {
	if d, err := qos.ParseDisk(have); err == nil && d.String() == text {
		return have
	}
	if i, err := qos.ParseInterface(have); err == nil && i.String() == text {
		return have
	}
	return text
}
