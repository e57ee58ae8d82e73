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
		{"  web  ", "prod/web-1", true},
		{"web !prod", "test/web", true},
		{"web !prod", "prod/web", false},
		{"!prod web", "test/web", true},
		{"!prod web", "test/db", false},
		{"!prod !test", "dev/web", true},
		{"!prod !test", "test/web", false},
		{"web !", "prod/web", true}, // a word is still to be typed
		{"! web prod", "prod/web", false},
		{"! web prod", "prod/db", true},
		{"! web !prod", "test/web", false},
		{"! web !prod", "prod/web", true},
		{`"not ready"`, "web Running not ready", true},
		{`"not ready"`, "web ready, not paused", false},
		{`"not ready`, "web Running Not Ready", true},
		{`web !"not ready"`, "web not ready", false},
		{`web !"not ready"`, "web ready", true},
		{`"a.b"`, "axb", false},
		{`""`, "anything", true},
		{`web-\d !prod`, "test/web-1", true},
		{`web-\d !prod`, "prod/web-1", false},
		{`web !^prod`, "prod/web", false},
		{`web !^prod`, "test/web on-prod", true},
		{`web !~pd`, "prod/web", false},
		{`^prod .*ready$`, "prod web ready", true},
		{`^prod .*ready$`, "prod ready web", false},
		{`^prod/w`, "prod/web-1", true},
		{`^web`, "prod/web-1", false},
		{`^web`, "prod\nweb-1\nRunning", true},
		{`1$`, "prod\nweb-1\nRunning", true},
		{`^web$`, "prod\nweb-1\nRunning", false},
		{`! ^web`, "prod\nweb-1\nRunning", false},
		{`^eb`, "prod\nweb-1\nRunning", false},
		{`prod.*running$`, "prod\nweb-1\nRunning", true}, // from one column to another
		{`"prod web-1"`, "prod\nweb-1\nRunning", true},
		{`~pwr`, "prod\nweb-1\nRunning", true},
		{`running|paused`, "prod/web Paused", true},
		{`! ^prod`, "test/web", true},
		{"-l app in (web, db)", "", true},
		{"-l app=web, !tier", "", false},
		{"! -l app=web", "", false},
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
	for _, text := range []string{"web(", "-l app=web=db", "![", "web !["} {
		if f, err := Parse(text); err == nil {
			t.Errorf("%q is taken as %+v", text, f)
		}
	}
}

// TestErrorsSayWhatWasTyped has no flags of ours in them.
func TestErrorsSayWhatWasTyped(t *testing.T) {
	if _, err := Parse("web("); err == nil || err.Error() != "not a regular expression: missing closing ): `web(`" {
		t.Error(err)
	}
}

func TestStringIsWithoutTheSpacesAround(t *testing.T) {
	f, err := Parse("  web  !prod ")
	if err != nil || f.String() != "web  !prod" {
		t.Errorf("%q, %v", f, err)
	}
	for _, text := range []string{"", " ", "!", "! ", `"`, "~"} {
		if f, err := Parse(text); err != nil || f.Empty() != (text != "~") {
			t.Errorf("%q is %+v, %v", text, f, err)
		}
	}
}
