package list

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// types answers for instance types, by path, and counts the questions.
type types struct {
	there map[string]string
	asked map[string]int
}

func (a types) Read(_ context.Context, path string, _ url.Values, into any) error {
	a.asked[path]++
	text, ok := a.there[path]
	if !ok {
		return errors.New("forbidden")
	}
	return json.Unmarshal([]byte(text), into)
}

// A VM that does not run has the size that its instance type gives it, or none that is known: never a wrong one.
func TestSizes(t *testing.T) {
	vm := func(name string, matcher *v1.InstancetypeMatcher, cpu *v1.CPU) v1.VirtualMachine {
		out := v1.VirtualMachine{
			Spec: v1.VirtualMachineSpec{Instancetype: matcher, Template: &v1.VirtualMachineInstanceTemplateSpec{}},
		}
		out.Namespace, out.Name = "ns", name
		out.Spec.Template.Spec.Domain.CPU = cpu
		return out
	}
	cluster := &v1.InstancetypeMatcher{Name: "u1.small"}
	rows := Rows(VMs, []v1.VirtualMachine{
		vm("a", cluster, nil),
		vm("b", cluster, nil),
		vm("c", &v1.InstancetypeMatcher{Kind: "VirtualMachineInstancetype", Name: "mine"}, nil),
		vm("d", &v1.InstancetypeMatcher{Kind: "VirtualMachineClusterInstancetype", Name: "secret"}, nil),
		vm("e", nil, nil),
		vm("f", nil, &v1.CPU{Cores: 2}),
	}, nil)
	const group = "/apis/instancetype.kubevirt.io/v1beta1/"
	api := types{asked: map[string]int{}, there: map[string]string{
		group + "virtualmachineclusterinstancetypes/u1.small": `{"spec":{"cpu":{"guest":4},"memory":{"guest":"2Gi"}}}`,
		group +
			"namespaces/ns/virtualmachineinstancetypes/mine": `{"spec":{"cpu":{"guest":3},"memory":{"guest":"1Gi"}}}`,
	}}
	Sizes(t.Context(), api, rows)
	for i, want := range [][2]string{
		{"4", "2Gi"},
		{"4", "2Gi"},
		{"3", "1Gi"},
		{"<none>", "<none>"},
		{"1", "<none>"},
		{"2", "<none>"},
	} {
		cells := rows[i].Cells(time.Time{}, false, true)
		if got := [2]string(cells[6:8]); got != want {
			t.Errorf("%s: %q, want %q", rows[i].Name, got, want)
		}
	}
	if len(api.asked) != 3 || api.asked[group+"virtualmachineclusterinstancetypes/u1.small"] != 1 {
		t.Errorf("asked %v", api.asked)
	}
}
