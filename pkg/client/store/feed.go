package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// backoff is how long a lost connection is left alone before it is tried again. Its longest is what a user waits who
// has just plugged the cable in.
var backoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 8 * time.Second}

// Feed keeps the table current until ctx ends. row makes the row of an object; nil leaves the object out.
func Feed[O metav1.Object, R any](ctx context.Context, t *Table[R], name string, source Source, row func(O) *R) {
	t.follow(source.Pulse)
	f := &feed[O, R]{table: t, name: name, source: source, row: row, now: time.Now}
	silent := klog.Logger{} // what fails is in the table's state
	pause := backoff
	cache.NewReflectorWithOptions(&cache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch}, nil, f,
		cache.ReflectorOptions{Name: name, TypeDescription: name, Logger: &silent, Backoff: &pause}).
		RunWithContext(klog.NewContext(ctx, silent))
}

// feed is both ends of a reflector: it makes rows of what the server says, and keeps them.
type feed[O metav1.Object, R any] struct {
	table  *Table[R]
	name   string
	source Source
	row    func(O) *R
	now    func() time.Time
}

// item carries a row through the reflector, with as much of the object as that asks for.
type item[R any] struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	row *R
}

// DeepCopyObject returns the item: nothing changes it.
func (i *item[R]) DeepCopyObject() runtime.Object { return i }

func (i *item[R]) key() Key { return Key{Namespace: i.Namespace, Name: i.Name} }

func (f *feed[O, R]) convert(object runtime.Object) (runtime.Object, error) {
	o, ok := object.(O)
	if !ok {
		return nil, fmt.Errorf("the server sent a %T", object)
	}
	i := &item[R]{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(),
		ResourceVersion: o.GetResourceVersion(),
	}, row: f.row(o)}
	if o.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "" {
		i.Annotations = map[string]string{
			metav1.InitialEventsAnnotationKey: o.GetAnnotations()[metav1.InitialEventsAnnotationKey],
		}
	}
	return i, nil
}

// list lists a page as rows.
func (f *feed[O, R]) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	object, err := f.source.List(ctx, opts)
	if err != nil {
		return nil, f.failed(ctx, err)
	}
	f.answered()
	list, err := meta.ListAccessor(object)
	if err != nil {
		return nil, err
	}
	page := &internalversion.List{ListMeta: metav1.ListMeta{
		ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue(),
		RemainingItemCount: list.GetRemainingItemCount(),
	}}
	err = meta.EachListItem(object, func(o runtime.Object) error {
		i, err := f.convert(o)
		page.Items = append(page.Items, i)
		return err
	})
	return page, err
}

// unanswered is what client-go returns for a watch that the server did not answer in time: one that ends at once.
var unanswered = reflect.TypeOf(watch.NewEmptyWatch())

// watch follows changes as rows.
func (f *feed[O, R]) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := f.source.Watch(ctx, opts)
	if err != nil && opts.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
		return nil, err // the reflector lists instead
	}
	if err == nil && reflect.TypeOf(w) == unanswered {
		err = &url.Error{Op: "Get", URL: f.name, Err: context.DeadlineExceeded}
	}
	if err != nil {
		err = f.failed(ctx, err)
		if opts.SendInitialEvents != nil {
			// The reflector would wait for its next try without hearing of ctx if it knew the error. With one that it
			// does not know it lists, which fails too, and then waits until ctx ends.
			err = errors.New(err.Error())
		}
		return nil, err
	}
	f.answered()
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type == watch.Error { // client-go's too, of a connection that broke
			return e, true
		}
		f.source.Pulse.answered()
		o, err := f.convert(e.Object)
		if err != nil {
			return e, false
		}
		e.Object = o
		return e, true
	}), nil
}

// answered records that there is a connection.
func (f *feed[O, R]) answered() {
	f.source.Pulse.answered()
	f.table.connected()
}

// failed keeps in the state why there is no connection.
func (f *feed[O, R]) failed(ctx context.Context, err error) error {
	if isAnswer(err) {
		f.source.Pulse.answered()
	}
	if ctx.Err() == nil && !errors.Is(err, io.EOF) {
		f.table.Lost(f.now(), err)
	}
	return err
}

// Add implements cache.ReflectorStore, as Update, Delete, Replace and Resync do: a reflector calls them.
func (f *feed[O, R]) Add(o any) error { return f.Update(o) }

// Update keeps a row.
func (f *feed[O, R]) Update(o any) error {
	i := o.(*item[R])
	f.table.set(i.key(), i.row)
	return nil
}

// Delete forgets a row.
func (f *feed[O, R]) Delete(o any) error {
	f.table.set(o.(*item[R]).key(), nil)
	return nil
}

// Replace keeps these rows and no others.
func (f *feed[O, R]) Replace(items []any, _ string) error {
	rows := make(map[Key]*R, len(items))
	for _, o := range items {
		if i := o.(*item[R]); i.row != nil {
			rows[i.key()] = i.row
		}
	}
	f.table.replace(rows)
	return nil
}

// Resync does nothing: there is no queue behind the table.
func (f *feed[O, R]) Resync() error { return nil }
