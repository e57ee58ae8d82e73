package filter

import "testing"

func TestMatch(t *testing.T) {
	set := map[string]string{"app": "web", "tier": "front"}
	for _, c := range []struct {
		filter, text string
		want         bool
	}{
		{"", "anything", true},
		{"!", "anything", true},
		{"web", "prod/Web-1 Running", true},
		{"pw1", "prod/web-1", false}, // letters in their order are asked for
		{"~pw1", "prod/web-1", true},
		{"~1w", "prod/web-1", false},
		{"!~pw1", "prod/web-1", false},
		{"web prod", "prod/web-1", true},
		{"nc-a", "other-namespace/cobra-a", false},
		{"!web", "prod/web-1", false},
		{"!web", "prod/db", true},
		{"prod web", "prod/web-1", true},
		{`^prod/w`, "prod/web-1", true},
		{`^web`, "prod/web-1", false},
		{`running|paused`, "prod/web Paused", true},
		{`! ^prod`, "test/web", true},
		{"-l app=web", "", true},
		{"-l app=web,tier!=front", "", false},
		{"!-l app=db", "", true},
		{"-lima", "lima-l-i-m-a -lima", true},
	} {
		f, err := Parse(c.filter)
		if err != nil {
			t.Errorf("%q: %v", c.filter, err)
			continue
		}
		if got := f.Match(c.text, set); got != c.want {
			t.Errorf("%q matches %q: %t", c.filter, c.text, got)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, text := range []string{"web(", "-l app=web=db", "!["} {
		if f, err := Parse(text); err == nil {
			t.Errorf("%q is taken as %+v", text, f)
		}
	}
}
