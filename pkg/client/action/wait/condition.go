// Package wait waits until a virtual machine is in a state: it watches the VirtualMachine and its instance and
// asks a Condition after each change. Login additionally reads the guest's console.
package wait

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/jsonpath"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// State has the objects of one virtual machine. Either may be nil.
type State struct {
	VM  *v1.VirtualMachine
	VMI *v1.VirtualMachineInstance

	// ending is the UID of an instance that was asked to end, which the objects may not show any more, or not yet.
	ending types.UID
}

// Condition is something to wait for.
type Condition struct {
	// Name says it in a sentence: "to be running".
	Name string
	// Met reports whether it holds.
	Met func(State) (bool, error)
	// Gone is whether a machine that does not exist may be waited for.
	Gone bool
}

// LoginName is the --for of a login prompt, which Parse does not know since it needs the console.
const LoginName = "login"

// Names returns the conditions that Parse understands, and LoginName.
func Names() []string {
	return []string{"running", "stopped", "ready", "agent", "ip", LoginName, "deleted", "condition=", "jsonpath="}
}

// Parse reads what follows --for=: running, stopped, ready, agent, ip, deleted, condition=TYPE[=STATUS] or
// jsonpath=EXPRESSION[=VALUE]. Conditions of the instance are found when the VirtualMachine has none of
// that type; onVMI is of the instance alone: jsonpath is evaluated on it, and its end is waited for.
func Parse(text string, onVMI bool) (Condition, error) {
	kind, argument, hasArgument := strings.Cut(text, "=")
	switch {
	case kind == "condition" && argument != "":
		return conditionOf(argument), nil
	case kind == "jsonpath" && argument != "":
		return jsonPath(argument, onVMI)
	case hasArgument:
		return Condition{}, fmt.Errorf("%q is not one of %s", text, strings.Join(Names(), ", "))
	}
	switch strings.ToLower(kind) {
	case "running":
		return Running(), nil
	case "stopped":
		return Stopped(), nil
	case "ready":
		c := conditionOf(string(v1.VirtualMachineReady))
		c.Name = "to be ready"
		return c, nil
	case "agent":
		c := conditionOf(string(v1.VirtualMachineInstanceAgentConnected))
		c.Name = "for its guest agent"
		return c, nil
	case "ip":
		return Condition{
			Name: "to have an IP address",
			Met:  func(s State) (bool, error) { return s.guest() != nil && len(addresses(s.VMI)) > 0, nil },
		}, nil
	case "delete", "deleted":
		return Condition{
			Name: "to be deleted", Gone: true,
			Met: func(s State) (bool, error) { return (onVMI || s.VM == nil) && s.VMI == nil, nil },
		}, nil
	}
	return Condition{}, fmt.Errorf("%q is not one of %s", text, strings.Join(Names(), ", "))
}

// Running holds when the guest runs and is not about to be stopped.
func Running() Condition {
	return Condition{Name: "to be running", Met: func(s State) (bool, error) {
		return s.guest() != nil && s.VMI.Status.Phase == v1.Running && !pending(s.VM), nil
	}}
}

// RunningAfter holds when another instance than the one with uid runs.
func RunningAfter(uid string) Condition {
	running := Running()
	return Condition{Name: "to be running again", Met: func(s State) (bool, error) {
		if s.VMI == nil || string(s.VMI.UID) == uid {
			return false, nil
		}
		return running.Met(s)
	}}
}

// Stopped holds when no guest runs and none is about to.
func Stopped() Condition {
	return Condition{Name: "to be stopped", Gone: false, Met: func(s State) (bool, error) {
		if s.VM == nil {
			return !life.Alive(s.VMI), nil
		}
		current := s.VM.Status.ObservedGeneration == 0 || s.VM.Status.ObservedGeneration >= s.VM.Generation
		return current && !pending(s.VM) && s.VM.Status.PrintableStatus == v1.VirtualMachineStatusStopped, nil
	}}
}

// pending reports whether a start, stop or restart has been requested and not yet begun.
func pending(vm *v1.VirtualMachine) bool {
	return vm != nil && len(vm.Status.StateChangeRequests) > 0
}

func addresses(vmi *v1.VirtualMachineInstance) []string {
	var out []string
	for _, i := range vmi.Status.Interfaces {
		if i.IP != "" {
			out = append(out, i.IP)
		}
	}
	return out
}

// conditionOf reads TYPE[=STATUS]; the status is True when it is not given. Both are compared as kubectl does,
// without regard to case.
func conditionOf(text string) Condition {
	kind, status, ok := strings.Cut(text, "=")
	if !ok || status == "" {
		status = string(corev1.ConditionTrue)
	}
	return Condition{Name: fmt.Sprintf("for condition %s=%s", kind, status), Met: func(s State) (bool, error) {
		have, found := conditionStatus(s, kind)
		return found && strings.EqualFold(have, status) && s.shown(kind, status), nil
	}}
}

func conditionStatus(s State, kind string) (string, bool) {
	if s.VM != nil {
		for _, c := range s.VM.Status.Conditions {
			if s.VMI != nil && conditions.Mirrored(c.Type) {
				continue // it may still be that of the last instance
			}
			if strings.EqualFold(string(c.Type), kind) {
				return string(c.Status), true
			}
		}
	}
	if s.VMI != nil {
		for _, c := range s.VMI.Status.Conditions {
			if strings.EqualFold(string(c.Type), kind) {
				return string(c.Status), true
			}
		}
	}
	return "", false
}

// jsonPath reads EXPRESSION[=VALUE], as kubectl wait does: without a value, the field only has to exist.
func jsonPath(text string, onVMI bool) (Condition, error) {
	expression, want, hasWant := cutValue(text)
	if !strings.HasPrefix(expression, "{") {
		expression = "{." + strings.TrimPrefix(expression, ".") + "}"
	}
	path := jsonpath.New("for").AllowMissingKeys(true)
	if err := path.Parse(expression); err != nil {
		return Condition{}, fmt.Errorf("jsonpath %s: %w", expression, err)
	}
	name := "for " + expression
	if hasWant {
		name += " to be " + want
	}
	return Condition{Name: name, Met: func(s State) (bool, error) {
		var object any
		switch {
		case !onVMI && s.VM != nil:
			object = s.VM
		case s.VMI != nil:
			object = s.VMI
		default:
			return false, nil
		}
		have, found, err := evaluate(path, object)
		if err != nil {
			return false, fmt.Errorf("jsonpath %s: %w", expression, err)
		}
		return found && (!hasWant || have == want), nil
	}}, nil
}

// cutValue splits `{.a}=value` after the expression's brace, since an expression may have = in a filter.
func cutValue(text string) (expression, value string, hasValue bool) {
	text = strings.Trim(text, "'")
	if end := strings.LastIndex(text, "}"); strings.HasPrefix(text, "{") && end >= 0 {
		rest, ok := strings.CutPrefix(text[end+1:], "=")
		return text[:end+1], strings.Trim(rest, `'"`), ok
	}
	expression, value, hasValue = strings.Cut(text, "=")
	return expression, strings.Trim(value, `'"`), hasValue
}

func evaluate(path *jsonpath.JSONPath, object any) (string, bool, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return "", false, err
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return "", false, err
	}
	results, err := path.FindResults(value)
	if err != nil {
		return "", false, err
	}
	if len(results) == 0 || len(results[0]) == 0 {
		return "", false, nil
	}
	if len(results) > 1 || len(results[0]) > 1 {
		return "", false, fmt.Errorf("matches more than one value")
	}
	v := results[0][0]
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if !v.IsValid() {
		return "", false, nil
	}
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		text, err := json.Marshal(v.Interface())
		return string(text), true, err
	}
	return fmt.Sprint(v.Interface()), true, nil
}
