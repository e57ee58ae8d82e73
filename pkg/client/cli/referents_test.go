package cli

import "testing"

func TestMeant(t *testing.T) {
	f := &Factory{Program: "virtctl"}
	u1 := []string{"u1.small", "u1.large", "u1.2xlarge", "m1.large", "cx1.medium", "virtualmachineinstancetype/own"}
	for _, c := range []struct {
		name string
		all  []string
		want string
	}{
		{"u1.lrage", u1, "; did you mean u1.large, m1.large?"},
		{"u1", u1, "; did you mean u1.small, u1.large, u1.2xlarge?"},
		{"owm", u1, "; did you mean virtualmachineinstancetype/own?"},
		{"tremendous", u1, "; there are cx1.medium, m1.large, u1.2xlarge, u1.large, u1.small and 1 more"},
		{"x", nil, "; there are none, and `virtctl install --instancetypes` brings the common ones"},
	} {
		if got := f.meant(c.name, append([]string(nil), c.all...)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
