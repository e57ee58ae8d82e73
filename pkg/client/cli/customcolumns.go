package cli

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

// customColumns prints `HEADER:.json.path,…` as kubectl does; a field that is absent prints <none>.
type customColumns struct {
	headers []string
	paths   []*jsonpath.JSONPath
	bare    bool // without the headers
	// table is the one that what follows is added to, out what it is written to: where objects come one after the
	// other they are rows of one table.
	table *Table
	out   io.Writer
}

// newCustomColumns reads spec, which for custom-columns-file is a line of headers and one of paths.
func newCustomColumns(format, spec string, bare bool) (*customColumns, error) {
	if format == "custom-columns-file" {
		var err error
		if spec, err = fromFile(spec); err != nil {
			return nil, err
		}
	}
	c := &customColumns{bare: bare}
	for _, column := range strings.Split(spec, ",") {
		header, path, ok := strings.Cut(column, ":")
		if !ok || header == "" || path == "" {
			return nil, UsageErrorf("custom-columns: %q is not HEADER:.json.path", column)
		}
		p := jsonpath.New(header).AllowMissingKeys(true)
		if err := p.Parse(relaxed(path)); err != nil {
			return nil, UsageErrorf("custom-columns: %s: %s", column, err)
		}
		c.headers = append(c.headers, header)
		c.paths = append(c.paths, p)
	}
	return c, nil
}

// fromFile joins the two lines of a columns file into HEADER:path,….
func fromFile(text string) (string, error) {
	lines := strings.SplitN(strings.TrimSpace(text), "\n", 2)
	headers := strings.Fields(lines[0])
	var paths []string
	if len(lines) == 2 {
		paths = strings.Fields(lines[1])
	}
	if len(headers) == 0 || len(headers) != len(paths) {
		return "", UsageErrorf("custom-columns-file: needs a line of headers and a line with as many paths, got %d "+
			"and %d", len(headers), len(paths))
	}
	columns := make([]string, len(headers))
	for i := range headers {
		columns[i] = headers[i] + ":" + paths[i]
	}
	return strings.Join(columns, ","), nil
}

// Rows is a report of many things of a kind. RowLists are the keys of its JSON that have them.
type Rows interface{ RowLists() []string }

// PrintObj prints a row for obj, or for each item when it is a list or a report of many things. The headers are above
// the first.
func (c *customColumns) PrintObj(obj runtime.Object, w io.Writer) error {
	items, err := c.items(obj)
	if err != nil {
		return err
	}
	if c.table == nil || c.out != w {
		c.table, c.out = NewGrowingTable(w), w
		if !c.bare {
			c.table.Row(c.headers...)
		}
	}
	for _, item := range items {
		row, _, err := c.row(item)
		if err != nil {
			return err
		}
		c.table.Row(row...)
	}
	return c.table.Flush()
}

// items returns the values that get a row each. For a report these are the things in it, unless the report itself has
// more of the columns, such as .items[*].name.
func (c *customColumns) items(obj runtime.Object) ([]any, error) {
	objects := []runtime.Object{obj}
	if isList(obj) {
		var err error
		if objects, err = meta.ExtractList(obj); err != nil {
			return nil, err
		}
	}
	items := make([]any, len(objects))
	for i, object := range objects {
		item, err := tree(object)
		if err != nil {
			return nil, err
		}
		items[i] = item
	}
	report, ok := obj.(Rows)
	if !ok {
		return items, nil
	}
	var rows []any
	for _, key := range report.RowLists() {
		list, _ := items[0].(map[string]any)[key].([]any) // absent where it is empty
		rows = append(rows, list...)
	}
	inRows, err := c.foundIn(rows)
	if err != nil {
		return nil, err
	}
	inReport, err := c.foundIn(items)
	if err != nil || inReport > inRows {
		return items, err
	}
	return rows, nil
}

// foundIn returns how many of the columns an item has, the most of all items.
func (c *customColumns) foundIn(items []any) (most int, err error) {
	for _, item := range items {
		_, found, err := c.row(item)
		if err != nil {
			return 0, err
		}
		most = max(most, found)
	}
	return most, nil
}

// row returns the columns of a JSON value, and how many of them were found there.
func (c *customColumns) row(item any) (row []string, found int, err error) {
	row = make([]string, len(c.paths))
	for i, path := range c.paths {
		results, err := path.FindResults(item)
		if err != nil {
			return nil, 0, fmt.Errorf("column %s: %w", c.headers[i], err)
		}
		text, has := cell(results)
		if row[i] = text; has {
			found++
		}
	}
	return row, found, nil
}

// cell returns what a path found, and whether it found anything.
func cell(results [][]reflect.Value) (text string, found bool) {
	var values []string
	for _, group := range results {
		for _, v := range group {
			if v.Kind() == reflect.Interface {
				v = v.Elem()
			}
			if v.IsValid() {
				values = append(values, fmt.Sprint(v.Interface()))
			}
		}
	}
	if len(values) == 0 {
		return "<none>", false
	}
	return strings.Join(values, ","), true
}
