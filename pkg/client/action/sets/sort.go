package sets

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/client/action/sortby"
)

// Columns are those that sets can be sorted by: words in their order, numbers the greatest first.
var Columns = []sortby.Column[unstructured.Unstructured]{
	{Name: "name", Compare: by(func(a, b Row) int { return strings.Compare(a.Name, b.Name) })},
	{Name: "namespace", Compare: by(func(a, b Row) int { return strings.Compare(a.Namespace, b.Namespace) })},
	{Name: "desired", Compare: by(func(a, b Row) int { return cmp.Compare(b.Desired, a.Desired) })},
	{Name: "current", Compare: by(func(a, b Row) int { return cmp.Compare(b.Current, a.Current) })},
	{Name: "ready", Compare: by(func(a, b Row) int { return cmp.Compare(b.Ready, a.Ready) })},
	{Name: "age", Compare: by(func(a, b Row) int { return sortby.Oldest(a.Created, b.Created) })},
	{Name: "note", Compare: by(func(a, b Row) int { return strings.Compare(a.Note, b.Note) })},
}

func by(compare func(a, b Row) int) func(a, b unstructured.Unstructured) int {
	return func(a, b unstructured.Unstructured) int { return compare(RowOf(&a), RowOf(&b)) }
}

// SortBy reads a key of --sort-by: one of Columns, or a JSONPath into the sets.
func SortBy(key string) (sortby.Sorter[unstructured.Unstructured], error) {
	return sortby.Parse(key, Columns, func(set unstructured.Unstructured) any { return set.Object })
}
