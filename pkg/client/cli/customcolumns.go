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

// PrintObj prints a row for obj, or for each item when it is a list.
func (c *customColumns) PrintObj(obj runtime.Object, w io.Writer) error {
	items := []runtime.Object{obj}
	if meta.IsListType(obj) {
		var err error
		if items, err = meta.ExtractList(obj); err != nil {
			return err
		}
	}
	table := NewTable(w)
	if !c.bare {
		table.Row(c.headers...)
	}
	for _, item := range items {
		row, err := c.row(item)
		if err != nil {
			return err
		}
		table.Row(row...)
	}
	return table.Flush()
}

func (c *customColumns) row(item runtime.Object) ([]string, error) {
	value, err := tree(item)
	if err != nil {
		return nil, err
	}
	row := make([]string, len(c.paths))
	for i, path := range c.paths {
		results, err := path.FindResults(value)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.headers[i], err)
		}
		row[i] = cell(results)
	}
	return row, nil
}

func cell(results [][]reflect.Value) string {
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
		return "<none>"
	}
	return strings.Join(values, ",")
}
