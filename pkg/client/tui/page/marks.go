package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// namedMost is how many machines a question names.
const namedMost = 10

// described names machines, with their namespaces.
func described(machines []*store.Machine) string {
	if len(machines) == 1 {
		return machines[0].Key().String()
	}
	var names []string
	for _, m := range machines[:min(len(machines), namedMost)] {
		names = append(names, m.Key().String())
	}
	text := fmt.Sprintf("%d machines: %s", len(machines), strings.Join(names, ", "))
	if more := len(machines) - namedMost; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Capital makes the first letter of a text, if there is one, a capital.
func Capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// sentence makes a sentence of a clause, which may have its mark already.
func sentence(s string) string {
	if strings.HasSuffix(s, "?") || strings.HasSuffix(s, ".") {
		return Capital(s)
	}
	return Capital(s) + "."
}

// leftOut returns a sentence about how many marked things a question leaves out, and why: whys has the reason of each,
// a clause such as "it is not running". It is empty when none is left out.
func leftOut(what string, whys []string) string {
	if len(whys) == 0 {
		return ""
	}
	var reasons []string
	count := map[string]int{}
	for _, why := range whys {
		why, _, _ = strings.Cut(why, "; ") // the rest is advice
		if !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
		count[why]++
	}
	said := fmt.Sprintf(" %d marked %ss are left out: ", len(whys), what)
	switch {
	case len(whys) == 1:
		return fmt.Sprintf(" 1 marked %s is left out: %s.", what, reasons[0])
	case len(reasons) == 1:
		return said + ofSeveral("they", "", reasons[0], len(whys)) + "."
	}
	var parts []string
	for _, why := range reasons {
		n := fmt.Sprint(count[why])
		parts = append(parts, ofSeveral(n, n+": ", why, count[why]))
	}
	return said + strings.Join(parts, ", ") + "."
}

// ofSeveral turns a clause about one thing into one about n things: "it is paused" of subject "they" becomes "they are
// paused". A clause that does not begin with "it" stays, after label.
func ofSeveral(subject, label, clause string, n int) string {
	rest, is := strings.CutPrefix(clause, "it ")
	if !is {
		return label + clause
	}
	if n > 1 {
		for one, many := range map[string]string{"is ": "are ", "has ": "have "} {
			if after, found := strings.CutPrefix(rest, one); found {
				rest = many + after
				break
			}
		}
	}
	return subject + " " + rest
}

// unseen returns a sentence about how many marked things a question leaves out because a filter hides them.
func unseen(what string, hidden int) string {
	switch hidden {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" 1 marked %s is left out: the filter hides it.", what)
	}
	return fmt.Sprintf(" %d marked %ss are left out: the filter hides them.", hidden, what)
}
