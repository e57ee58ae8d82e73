package list

import (
	"cmp"
	"slices"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/action/sortby"
)

// Columns are those that rows can be sorted by: words in their order, amounts the greatest first, as in `top`.
var Columns = []sortby.Column[Row]{
	{Name: "name", Compare: func(a, b Row) int { return strings.Compare(a.Name, b.Name) }},
	{Name: "namespace", Compare: func(a, b Row) int { return strings.Compare(a.Namespace, b.Namespace) }},
	{Name: "status", Compare: func(a, b Row) int { return strings.Compare(a.Status, b.Status) }},
	{Name: "ready", Compare: func(a, b Row) int { return strings.Compare(Ready(a.Ready), Ready(b.Ready)) }},
	{Name: "node", Compare: func(a, b Row) int { return strings.Compare(a.Node, b.Node) }},
	{Name: "ip", Compare: func(a, b Row) int { return slices.Compare(a.IPs, b.IPs) }},
	{Name: "age", Compare: func(a, b Row) int { return sortby.Oldest(a.Created, b.Created) }},
	{Name: "cpu", Compare: func(a, b Row) int { return cmp.Compare(b.CPUs, a.CPUs) }},
	{Name: "memory", Compare: func(a, b Row) int { return b.Memory.Cmp(a.Memory) }},
	{Name: "run-strategy", Compare: func(a, b Row) int { return strings.Compare(a.RunStrategy, b.RunStrategy) }},
	{Name: "guest-os", Compare: func(a, b Row) int { return strings.Compare(a.GuestOS, b.GuestOS) }},
}

// SortBy reads a key of --sort-by: one of Columns, or a JSONPath into the objects.
func SortBy(key string) (sortby.Sorter[Row], error) {
	return sortby.Parse(key, Columns, func(r Row) any { return r.Object })
}
