package widget

import (
	"slices"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/filter"
)

// A filter leaves the rows above and below one that matches, but none that has a word which must not be in it.
func TestFilterOfRowsBelowOthers(t *testing.T) {
	type row struct{ name, above string }
	rows := []row{{"daily", ""}, {"back", "daily"}, {"keep", "daily"}, {"weekly", ""}}
	for text, want := range map[string][]string{
		"":            {"daily", "back", "keep", "weekly"},
		"daily":       {"daily", "back", "keep"},
		"back":        {"daily", "back"},
		"!back":       {"daily", "keep", "weekly"},
		"daily !back": {"daily", "keep"},
		"!daily":      {"back", "keep", "weekly"},
		"! back":      {"daily", "keep", "weekly"},
	} {
		parsed, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		table := Table[row]{
			Columns: []Column[row]{{Title: "NAME", Cell: func(r row, _ time.Time) Cell { return Cell{Text: r.name} }}},
			Key:     func(r row) store.Key { return store.Key{Name: r.name} },
			Parent:  func(r row) (store.Key, bool) { return store.Key{Name: r.above}, r.above != "" },
			Now:     time.Now,
		}
		table.SetRows(rows)
		table.SetFilter(parsed)
		var got []string
		for _, r := range table.rows {
			got = append(got, r.name)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q leaves %v, want %v", text, got, want)
		}
	}
}
