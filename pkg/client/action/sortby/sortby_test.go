package sortby

import (
	"strings"
	"testing"
)

type row map[string]any

var columns = []Column[row]{
	{"name", func(a, b row) int { return strings.Compare(a["name"].(string), b["name"].(string)) }},
	{"run-strategy", func(a, b row) int { return strings.Compare(a["strategy"].(string), b["strategy"].(string)) }},
}

func TestSort(t *testing.T) {
	for key, want := range map[string]string{
		"name": "a b c", "NAME": "a b c", "Run Strategy": "c a b", "run-strategy": "c a b",
		".name": "a b c", "{.name}": "a b c", ".strategy": "c a b",
		".memory":       "b c a", // absent, 512Mi, 1Gi
		".count":        "c a b", // 9 before 10
		".born":         "b a c",
		".list[0].at":   "a b c",
		"{.list[*].at}": "a b c",
	} {
		rows := []row{
			{"name": "a", "strategy": "Halted", "memory": "1Gi", "count": 9, "born": "2026-01-02T00:00:00Z"},
			{
				"name":     "b",
				"strategy": "Manual",
				"count":    10,
				"born":     "2026-01-01T00:00:00Z",
				"list":     []any{row{"at": 1}},
			},
			{
				"name":     "c",
				"strategy": "Always",
				"memory":   "512Mi",
				"count":    1,
				"born":     "2026-01-03T00:00:00Z",
				"list":     []any{row{"at": 2}},
			},
		}
		sorter, err := Parse(key, columns, func(r row) any { return r })
		if err == nil {
			err = sorter(rows)
		}
		var got []string
		for _, r := range rows {
			got = append(got, r["name"].(string))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v; want %s", key, got, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for key, want := range map[string]string{
		"colour":  `"colour" is not one of name, run-strategy, nor a JSONPath such as .metadata.name`,
		"":        `"" is not one of name, run-strategy, nor a JSONPath such as .metadata.name`,
		"{.a":     `"{.a" is no JSONPath: unclosed action`,
		".colour": "sort by .colour: none of the objects has that field",
	} {
		sorter, err := Parse(key, columns, func(r row) any { return r })
		if err == nil {
			err = sorter([]row{{"name": "a"}})
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", key, err, want)
		}
	}
	sorter, err := Parse(".colour", columns, func(r row) any { return r })
	if err == nil {
		err = sorter(nil)
	}
	if err != nil {
		t.Errorf("nothing to sort: %v", err)
	}
}
