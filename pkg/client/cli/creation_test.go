package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// server is what a Kind's functions are answered, and what they were asked.
type server struct {
	sendErr, waitErr error
	unseen           bool
	asked            []string
}

func (s *server) kind() Kind[*corev1.ConfigMap] {
	return Kind[*corev1.ConfigMap]{
		Name: "map", Resource: "configmap",
		Create: func(
			_ context.Context, _ *client.Client, m *corev1.ConfigMap, dryRun bool,
		) (*corev1.ConfigMap, error) {
			s.asked = append(s.asked, fmt.Sprintf("create %s/%s %v", m.Namespace, m.Name, dryRun))
			if s.sendErr != nil {
				return nil, s.sendErr
			}
			return m, nil
		},
		Wait: func(
			_ context.Context, _ *client.Client, namespace, name string, report func(string),
		) (*corev1.ConfigMap, error) {
			s.asked = append(s.asked, "wait "+namespace+"/"+name)
			report("Pending")
			if s.unseen {
				return nil, s.waitErr
			}
			last := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			last.Data = map[string]string{"phase": "done"}
			return last, s.waitErr
		},
	}
}

// TestFollow has what a command that creates an object says and asks for, by its flags and the server's answers.
func TestFollow(t *testing.T) {
	interrupted, broken := fmt.Errorf("watch: %w", context.Canceled), errors.New("broken")
	const (
		create, wait = "create ns/m false", "wait ns/m"
		goesOn       = "interrupted: map m was created, and goes on; " +
			"`kubectl virt why map/m -n ns` says how far it is\n"
	)
	for name, test := range map[string]struct {
		flags       []string
		server      server
		out, errOut string
		asked       []string
		err         error
	}{
		"none":           {nil, server{}, "configmap/m created\n", "", []string{create}, nil},
		"client dry run": {[]string{"--dry-run=client"}, server{}, "configmap/m created (dry run)\n", "", nil, nil},
		"server dry run": {
			[]string{"--dry-run"},
			server{},
			"configmap/m created (server dry run)\n", "",
			[]string{"create ns/m true"},
			nil,
		},
		"wait": {[]string{"--wait"}, server{}, "configmap/m created\nm is done\n", "", []string{create, wait}, nil},
		"wait, one that says nothing": {
			[]string{"--wait"}, server{unseen: true}, "configmap/m created\n", "", []string{create, wait}, nil,
		},
		"output": {[]string{"-o", "name"}, server{}, "configmap/m\n", "", []string{create}, nil},
		"wait with output": {
			[]string{"--wait", "-o", "jsonpath={.kind} {.data.phase}"},
			server{},
			"ConfigMap done", "",
			[]string{create, wait},
			nil,
		},
		"refused": {[]string{"--wait"}, server{sendErr: broken}, "", "", []string{create}, broken},
		"interrupted while it is sent": {
			nil,
			server{sendErr: interrupted},
			"", "interrupted: map ns/m may have been created\n",
			[]string{create},
			context.Canceled,
		},
		"a dry run that is interrupted": {
			[]string{"--dry-run"}, server{sendErr: interrupted}, "", "", []string{"create ns/m true"}, context.Canceled,
		},
		"interrupted while it waits": {
			[]string{"--wait"},
			server{waitErr: interrupted, unseen: true},
			"configmap/m created\n", goesOn,
			[]string{create, wait},
			context.Canceled,
		},
		"failed": {
			[]string{"--wait", "-o", "name"}, server{waitErr: broken}, "", "", []string{create, wait}, broken,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			o := NewCreation(NewFactory("kubectl virt", &IOStreams{Out: &out, ErrOut: &errOut},
				func(string) string { return "" }))
			cmd := &cobra.Command{Use: "x"}
			o.AddFlags(cmd, "it is done", time.Minute)
			if err := errors.Join(cmd.ParseFlags(test.flags), o.Validate()); err != nil {
				t.Fatal(err)
			}
			kind, object := test.server.kind(), &corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"},
			}
			sent, err := kind.Send(t.Context(), nil, &o, object)
			if err == nil {
				err = kind.Follow(t.Context(), nil, &o, sent, func(m *corev1.ConfigMap) string {
					if m.Data == nil {
						return ""
					}
					return m.Name + " is " + m.Data["phase"]
				})
			}
			o.Factory.IO.Flush()
			if !errors.Is(err, test.err) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if out.String() != test.out || errOut.String() != test.errOut {
				t.Errorf("said %q and %q, want %q and %q", out.String(), errOut.String(), test.out, test.errOut)
			}
			if got, want := fmt.Sprint(test.server.asked), fmt.Sprint(test.asked); got != want {
				t.Errorf("asked %s, want %s", got, want)
			}
		})
	}
}

// TestAwaitFailed returns the object as it was seen last with the error, for those who print several.
func TestAwaitFailed(t *testing.T) {
	s := server{waitErr: errors.New("broken")}
	o := NewCreation(NewFactory("virtctl", &IOStreams{}, func(string) string { return "" }))
	o.Wait = true
	last, err := s.kind().Await(t.Context(), nil, &o, &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
	})
	if err == nil || last.Kind != "ConfigMap" || last.Data["phase"] != "done" {
		t.Errorf("%+v, %v", last, err)
	}
}

// TestManifest prints YAML unless another format is given, a template also without -o.
func TestManifest(t *testing.T) {
	object := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "m"},
	}
	for flag, want := range map[string]string{
		"":                              "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n",
		"--output=name":                 "configmap/m\n",
		"--template={{.metadata.name}}": "m",
	} {
		o, cmd, out := NewOutput(), &cobra.Command{Use: "x"}, &bytes.Buffer{}
		o.AddFlags(cmd)
		var flags []string
		if flag != "" {
			flags = append(flags, flag)
		}
		if err := cmd.ParseFlags(flags); err != nil {
			t.Fatal(err)
		}
		if err := o.Manifest(object, out); err != nil || out.String() != want {
			t.Errorf("%q: %q, %v, want %q", flag, out.String(), err, want)
		}
	}
}
