package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Kind is the kind of a report as JSON.
const Kind = "BenchmarkReport"

// Report is one run.
type Report struct {
	Kind string    `json:"kind"`
	At   time.Time `json:"at"`
	// Commit is the version that was measured, Machine what it ran on, Rounds the samples a row.
	Commit  string `json:"commit"`
	Machine string `json:"machine"`
	Rounds  int    `json:"rounds"`
	Rows    []Row  `json:"rows"`
}

// JSON writes the report for programs, and for Compare.
func (r *Report) JSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Read reads what JSON has written.
func Read(in io.Reader) (*Report, error) {
	var r Report
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return nil, err
	}
	if r.Kind != Kind {
		return nil, fmt.Errorf("it is a %q, not a %s: write it with -o json", r.Kind, Kind)
	}
	return &r, nil
}

// Table writes the report for people.
func (r *Report) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEASURE\tVALUE\tANCHOR\tRATIO\tGOAL\tREACHED")
	for _, row := range r.Rows {
		fmt.Fprintln(w, strings.Join(row.cells("-"), "\t"))
	}
	return w.Flush()
}

// cells are a row's, with nothing where there is none.
func (r Row) cells(nothing string) []string {
	anchor, ratio := nothing, nothing
	if r.Anchor > 0 {
		anchor = fmt.Sprintf("%s %s (%s)", number(r.Anchor), r.Unit, r.Versus)
	}
	if r.Ratio > 0 {
		ratio = fmt.Sprintf("%.2f×", r.Ratio)
	}
	goal, reached := r.Goal, "no"
	switch {
	case goal == "":
		goal, reached = nothing, nothing
	case r.Reached:
		reached = "yes"
	}
	return []string{r.What, number(r.Value) + " " + r.Unit, anchor, ratio, goal, reached}
}

// number has three digits, and no exponent.
func number(v float64) string {
	text := fmt.Sprintf("%.3g", v)
	if strings.ContainsRune(text, 'e') {
		text = fmt.Sprintf("%.0f", v)
	}
	return text
}

// KubeVirt's figures are those of KubeVirt 1.9 on a prototype of virt-local with the same guest, emulated, from a run
// of its own, by the name of the row.
var kubeVirt = map[string]string{
	"create-running": "6.8×", "ten-at-once": "7.7×", "ten-at-once-p95": "11×", "create-login": "anchor + 4.0 s",
	"delete": "3.1 s", "vmi-writes-own": "30", "vmi-writes-all": "62", "idle-writes": "3.8", "idle-rss": "1.33 GiB",
	"pod-pss": "98 MiB", "pod-request": "288 MiB", "install": "76 s", "install-writes": "856",
	"console-socket": "1.85×", "port-forward-connect": "anchor + 12 ms", "port-forward-throughput": "0.49×",
	"virtctl-version": "11–20 ms", "virtctl-rss": "37 MB", "migration-idle-wall": "2.9 s", "migration-idle-gap": "1.7×",
}

// Markdown writes the report as a part of a page.
func (r *Report) Markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"Commit %s, %s, %d rounds, on %s.\n\n",
		r.Commit,
		r.At.UTC().Format("2 January 2006"),
		r.Rounds,
		r.Machine,
	)
	b.WriteString("| measure | virtkit | anchor, same run | ratio | goal | reached | KubeVirt |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, row := range r.Rows {
		for _, cell := range append(row.cells(""), kubeVirt[row.Name]) {
			b.WriteString("| " + strings.TrimLeft(cell+" ", " "))
		}
		b.WriteString("|\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// The lines of a page between which Markdown's part is.
const (
	begins = "<!-- bench: begin -->"
	ends   = "<!-- bench: end -->"
)

// Into returns a page with the report in place of the one that it has.
func (r *Report) Into(page string) (string, error) {
	head, rest, begun := strings.Cut(page, begins+"\n")
	_, tail, ended := strings.Cut(rest, ends+"\n")
	if !begun || !ended {
		return "", fmt.Errorf("the page has no lines %q and %q", begins, ends)
	}
	var b strings.Builder
	if err := r.Markdown(&b); err != nil {
		return "", err
	}
	return head + begins + "\n\n" + b.String() + "\n" + ends + "\n" + tail, nil
}
