// Package sortby orders the rows of a list as --sort-by asks: by a column of the table, or by a field of the objects,
// which a JSONPath names as for kubectl.
package sortby

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/util/jsonpath"
)

// Column is one that rows can be sorted by.
type Column[T any] struct {
	Name    string
	Compare func(a, b T) int
}

// Names returns the names of columns, in their order.
func Names[T any](columns []Column[T]) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = c.Name
	}
	return out
}

// Sorter sorts rows in place; equal ones keep their order. The error says that no row has the field.
type Sorter[T any] func(rows []T) error

// Parse reads a key: the name of a column in any case, where a blank is a dash, or a JSONPath that begins with "." or
// "{". object is what the path is looked up in.
func Parse[T any](key string, columns []Column[T], object func(T) any) (Sorter[T], error) {
	if strings.HasPrefix(key, ".") || strings.HasPrefix(key, "{") {
		return byPath(key, object)
	}
	name := strings.ReplaceAll(strings.ToLower(key), " ", "-")
	for _, c := range columns {
		if c.Name == name {
			return func(rows []T) error {
				slices.SortStableFunc(rows, c.Compare)
				return nil
			}, nil
		}
	}
	return nil, fmt.Errorf("%q is not one of %s, nor a JSONPath such as .metadata.name", key,
		strings.Join(Names(columns), ", "))
}

func byPath[T any](key string, object func(T) any) (Sorter[T], error) {
	path := jsonpath.New("sort-by").AllowMissingKeys(true)
	text := key
	if !strings.HasPrefix(key, "{") {
		text = "{" + key + "}"
	}
	if err := path.Parse(text); err != nil {
		return nil, fmt.Errorf("%q is no JSONPath: %w", key, err)
	}
	return func(rows []T) error {
		type keyed struct {
			row   T
			value any
		}
		found, all := false, make([]keyed, len(rows))
		for i, row := range rows {
			value, err := field(path, object(row))
			if err != nil {
				return fmt.Errorf("sort by %s: %w", key, err)
			}
			all[i], found = keyed{row, value}, found || value != nil
		}
		if !found && len(rows) > 0 {
			return fmt.Errorf("sort by %s: none of the objects has that field", key)
		}
		slices.SortStableFunc(all, func(a, b keyed) int { return compare(a.value, b.value) })
		for i := range all {
			rows[i] = all[i].row
		}
		return nil
	}, nil
}

// field returns the first value that a path finds, nil where there is none.
func field(path *jsonpath.JSONPath, object any) (any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return nil, err
	}
	results, err := path.FindResults(value)
	if err != nil {
		return nil, err
	}
	for _, group := range results {
		for _, v := range group {
			if v.IsValid() && v.CanInterface() {
				return v.Interface(), nil
			}
		}
	}
	return nil, nil
}

// compare orders two values of JSON: what is absent first, numbers and quantities by how much they are, all else as
// text. Times in RFC 3339 are in order as text.
func compare(a, b any) int {
	if a == nil || b == nil {
		return absentFirst(a == nil, b == nil)
	}
	if x, ok := amount(a); ok {
		if y, ok := amount(b); ok {
			return x.Cmp(y)
		}
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

// absentFirst compares two things of which at least one is absent.
func absentFirst(a, b bool) int {
	switch {
	case a && b:
		return 0
	case a:
		return -1
	}
	return 1
}

// Oldest compares the times at which two things were made, the oldest first and what is not known last.
func Oldest(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return -absentFirst(a.IsZero(), b.IsZero())
	}
	return a.Compare(b)
}

func amount(value any) (resource.Quantity, bool) {
	switch value.(type) {
	case float64, string:
		q, err := resource.ParseQuantity(fmt.Sprint(value))
		return q, err == nil
	}
	return resource.Quantity{}, false
}
