package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// parse reads one package of reports and returns docs/output.md's part of it.
func parse(t *testing.T, code string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{
		"pkg/client/action/x", "pkg/report/progress", "pkg/report/stats", "pkg/report/nwfilter",
	} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "pkg/client/action/x/x.go"),
		[]byte("package x\n"+code), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := reports(dir)
	if err != nil {
		return "", err
	}
	page, err := withReports([]byte("before\n"+beginReports+"old\n"+endReports+"after\n"), all)
	return string(page), err
}

func TestReports(t *testing.T) {
	got, err := parse(t, `
// Report is what x prints.
type Report struct {
	metav1.TypeMeta
	// Metadata names the machine.
	metav1.ObjectMeta `+"`json:\"metadata\"`"+`
	// First and Second are parts.
	First  []Part          `+"`json:\"first\"`"+`
	Second map[string]Part `+"`json:\"second,omitempty\"`"+`
	Base
	hidden int
}
// Part is a part.
type Part struct {
	// State is on or off.
	State State `+"`json:\"state\"`"+`
}
// State is a word.
type State string
// Base is in it.
type Base struct {
	// Size of it, bytes. Size counts.
	Size *int64 `+"`json:\"size\"`"+`
	// Data is raw, a|b.
	Data []byte `+"`json:\"data\"`"+`
}
const kind = "Thing"
func New() *Report { return &Report{TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: kind}} }
`)
	if err != nil {
		t.Fatal(err)
	}
	want := "before\n" + beginReports + `
### Thing

What x prints.

| key | type | |
| --- | --- | --- |
| ` + "`metadata`" + ` | ObjectMeta | names the machine. |
| ` + "`first`" + ` | []object | ` + "`first` and `second`" + ` are parts. |
| ` + "`first[].state`" + ` | string | ` + "`state`" + ` is on or off. |
| ` + "`second`" + ` | map of object, optional | ` + "`first` and `second`" + ` are parts. The keys are those of ` +
		"`first[]`" + `. |
| ` + "`size`" + ` | integer | ` + "`size`" + ` of it, bytes. Size counts. |
| ` + "`data`" + ` | base64 | ` + "`data`" + ` is raw, a\|b. |

` + endReports + "after\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReportsAreDocumented(t *testing.T) {
	_, err := parse(t, `
type Report struct {
	metav1.TypeMeta
	Bare int `+"`json:\"bare\"`"+`
	// Tagless is so.
	Tagless int
}
func New() *Report { return &Report{TypeMeta: metav1.TypeMeta{APIVersion: "cli.virtkit.io/v1", Kind: "Thing"}} }
// Lost is made by nobody.
type Lost struct {
	metav1.TypeMeta
}
`)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"x.Report: no doc comment", "Bare has no doc comment", "Tagless has no json tag",
		`x.Report: its APIVersion is "cli.virtkit.io/v1"`,
		"x.Lost: no constructor says its Kind",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if _, err := withReports([]byte("no markers"), nil); err == nil {
		t.Error("a page without markers is accepted")
	}
}
