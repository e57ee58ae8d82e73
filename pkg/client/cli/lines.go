package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// FormatLines prints JSON without line ends, an object a line: of a list its objects, one after the other. What a
// command follows is printed as it comes.
const FormatLines = "jsonl"

// printLine writes one object in one piece, so that a reader never sees a part of a line.
func printLine(obj runtime.Object, w io.Writer) error {
	if obj.GetObjectKind().GroupVersionKind().Empty() {
		return fmt.Errorf("%T has no apiVersion and no kind", obj)
	}
	line, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// isList reports whether obj is a list of objects, rather than an object with items of its own such as a TopReport.
func isList(obj runtime.Object) bool {
	items, err := meta.GetItemsPtr(obj)
	if err != nil {
		return false
	}
	item := reflect.TypeOf(items).Elem().Elem()
	if item.Kind() != reflect.Pointer && item.Kind() != reflect.Interface {
		item = reflect.PointerTo(item)
	}
	return item == reflect.TypeFor[*runtime.RawExtension]() || item.Implements(reflect.TypeFor[runtime.Object]())
}
