package cli

import (
	"maps"
	"testing"
)

// TestPairs leaves values as they are: what CSV gives a meaning has none in them.
func TestPairs(t *testing.T) {
	got, err := Pairs("param", []string{
		`A=a"`, `B="a,b"`, `C=-C "x y=z"`, "D=a=b,c", "E=", "F=1", "F= 2 ", "G=[x]\n\\",
	})
	want := map[string]string{
		"A": `a"`, "B": `"a,b"`, "C": `-C "x y=z"`, "D": "a=b,c", "E": "", "F": " 2 ", "G": "[x]\n\\",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if none, err := Pairs("param", nil); none != nil || err != nil {
		t.Errorf("%v, %v", none, err)
	}
	for _, wrong := range []string{"NAME", "=value", ""} {
		if got, err := Pairs("param", []string{wrong}); ExitCode(err) != ExitUsage {
			t.Errorf("%q: %v, %v", wrong, got, err)
		}
	}
}
