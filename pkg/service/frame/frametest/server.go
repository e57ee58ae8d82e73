// Package frametest tests what a reconciler's Apply writes: in which order, and what it still writes after a write that
// the API server has refused.
package frametest

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Server is an API server that has objects, and notes writes without doing them.
type Server struct {
	client.Client
	// Writes are what was asked for, such as "create Pod demo" and "patch status of Pod demo".
	Writes []string
	// Answer returns the answer to a write, of which it gets the number, from 0 on, and the text. Nil does all.
	Answer func(n int, write string) error
	// Note, if there is one, returns what a test wants to know of an object; it is added to the write.
	Note func(client.Object) string

	mu sync.Mutex
}

// New makes a server of Kubernetes' kinds and those that kinds add.
func New(t testing.TB, kinds []func(*runtime.Scheme) error, objects ...client.Object) *Server {
	t.Helper()
	known := runtime.NewScheme()
	err := scheme.AddToScheme(known)
	for _, add := range kinds {
		err = errors.Join(err, add(known))
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{}
	s.Client = fake.NewClientBuilder().WithScheme(known).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			return s.write("create", object)
		},
		Delete: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.DeleteOption) error {
			return s.write("delete", object)
		},
		Patch: func(
			_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption,
		) error {
			return s.write("patch", object)
		},
		SubResourceCreate: func(
			_ context.Context, _ client.Client, sub string, object, _ client.Object,
			_ ...client.SubResourceCreateOption,
		) error {
			return s.write("create "+sub+" of", object)
		},
		SubResourcePatch: func(
			_ context.Context, _ client.Client, sub string, object client.Object, _ client.Patch,
			_ ...client.SubResourcePatchOption,
		) error {
			return s.write("patch "+sub+" of", object)
		},
	}).Build()
	return s
}

func (s *Server) write(verb string, object client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := object.GetName()
	if name == "" {
		name = object.GetGenerateName() + "…"
	}
	write := verb + " " + reflect.TypeOf(object).Elem().Name() + " " + name
	if s.Note != nil {
		if note := s.Note(object); note != "" {
			write += " (" + note + ")"
		}
	}
	s.Writes = append(s.Writes, write)
	if s.Answer == nil {
		return nil
	}
	return s.Answer(len(s.Writes)-1, write)
}

// Refuse makes the server answer one write, by its number from 0 on, with an error; with a negative number, none.
func (s *Server) Refuse(refuse int, err error) {
	s.Answer = func(n int, _ string) error {
		if n == refuse {
			return err
		}
		return nil
	}
}

// Story returns what apply writes, a line for each write, with what it still writes if that one is refused. apply gets
// the number of the write to refuse, -1 for none, and returns its writes.
func Story(t testing.TB, apply func(refuse int) []string) string {
	t.Helper()
	var out strings.Builder
	all := apply(-1)
	for i, write := range all {
		refused := apply(i)
		if len(refused) <= i || strings.Join(refused[:i+1], "\n") != strings.Join(all[:i+1], "\n") {
			t.Errorf("the writes differ before any is refused: %q and %q", all, refused)
			continue
		}
		out.WriteString("  " + write)
		if after := refused[i+1:]; len(after) > 0 {
			out.WriteString(", and if it is refused " + strings.Join(after, ", "))
		}
		out.WriteString("\n")
	}
	return out.String()
}
