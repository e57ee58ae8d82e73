package sizing

import (
	"fmt"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestRealtime(t *testing.T) {
	for mask, want := range map[string]string{
		"":                     "[true true true true]",
		"0-3,^1":               "[true false true true]",
		"^1, 0-3":              "[true false true true]",
		"0,2,3":                "[true false true true]",
		"2-3":                  "[false false true true]",
		"4":                    "there is no vCPU 4",
		"0-4":                  "there is no vCPU 4",
		"3-1":                  `"3-1" is neither`,
		"^0-1":                 `"^0-1" is neither`,
		"-1":                   `"" is not the number`,
		"0-":                   `"" is not the number`,
		"one":                  `"one" is not the number`,
		"0,,1":                 `"" is not the number`,
		"^0":                   "no vCPU is left",
		"99999999999999999999": "is not the number",
	} {
		spec := &v1.DomainSpec{CPU: &v1.CPU{Sockets: 2, Cores: 2, Threads: 1, Realtime: &v1.Realtime{Mask: mask}}}
		real, err := Realtime(spec)
		got := fmt.Sprint(real)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", mask, got, want)
		}
	}
	if real, err := Realtime(&v1.DomainSpec{CPU: &v1.CPU{}}); real != nil || err != nil {
		t.Errorf("without realtime: %v, %v", real, err)
	}
}
