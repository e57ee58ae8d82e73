package names

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestShorten(t *testing.T) {
	for name, tc := range map[string]struct {
		name string
		most int
		want string // the beginning, where it ends with a hash
		hash bool
	}{
		"short":        {"demo", MaxLabel, "demo", false},
		"just":         {strings.Repeat("a", 63), MaxLabel, strings.Repeat("a", 63), false},
		"one too many": {strings.Repeat("a", 64), MaxLabel, strings.Repeat("a", 54) + "-", true},
		"cut at a dot": {
			strings.Repeat("a", 53) + "." + strings.Repeat("b", 199), MaxLabel, strings.Repeat("a", 53) + "-", true,
		},
		"as a file":     {strings.Repeat("a", 253), 200, strings.Repeat("a", 191) + "-", true},
		"nothing to do": {strings.Repeat("a", 200), 200, strings.Repeat("a", 200), false},
	} {
		t.Run(name, func(t *testing.T) {
			got := Shorten(tc.name, tc.most)
			if len(got) > tc.most || !strings.HasPrefix(got, tc.want) || (got != tc.want) != tc.hash {
				t.Errorf("%q", got)
			}
			if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
				t.Errorf("%q is no name of an object: %v", got, problems)
			}
			if problems := validation.IsValidLabelValue(got); tc.most == MaxLabel && len(problems) > 0 {
				t.Errorf("%q is no label: %v", got, problems)
			}
		})
	}
	begin := strings.Repeat("a", 100)
	if Shorten(begin+"1", MaxLabel) == Shorten(begin+"2", MaxLabel) {
		t.Error("two names are one")
	}
}

func TestLabelValue(t *testing.T) {
	for name, want := range map[string]string{
		"demo": "demo", strings.Repeat("a", 63): strings.Repeat("a", 63),
		strings.Repeat("a", 64): strings.Repeat("a", 54) + "-", strings.Repeat("a", 253): strings.Repeat("a", 54) + "-",
	} {
		got := LabelValue(name)
		if !strings.HasPrefix(got, want) || len(validation.IsValidLabelValue(got)) > 0 ||
			len(name) <= MaxLabel && got != name {
			t.Errorf("%s: %q", name, got)
		}
	}
	if LabelValue(strings.Repeat("a", 64)) == LabelValue(strings.Repeat("a", 65)) {
		t.Error("two names have one value")
	}
}

func TestHost(t *testing.T) {
	for vmi, want := range map[string]string{
		"demo": "demo", "demo.example": "demo", strings.Repeat("a", 253): strings.Repeat("a", 63),
		strings.Repeat("a", 62) + "-b": strings.Repeat("a", 62),
	} {
		if got := Host("", vmi); got != want || len(validation.IsDNS1123Label(got)) > 0 {
			t.Errorf("%s: %q", vmi, got)
		}
		if got := Host("given", vmi); got != "given" {
			t.Errorf("%s with a host name: %q", vmi, got)
		}
	}
}
