package installcmd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	action "github.com/virtkit/virtkit/pkg/client/action/install"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

func factory(t *testing.T) (*cli.Factory, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	f := cli.NewFactory("virtctl", &cli.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: &bytes.Buffer{}},
		os.Getenv)
	return f, out
}

func TestInstallFlags(t *testing.T) {
	for _, test := range []struct {
		args  string
		want  func(*Options)
		usage string
	}{
		{args: "", want: func(*Options) {}},
		{
			args: "--image-registry r.example.com/x --image-tag v1 --image-pull-policy Always --kubelet-dir " +
				"/k --pod-annotation a=b --pod-annotation c=[\"d\",e=f]",
			want: func(o *Options) {
				o.Settings = action.Settings{
					Registry: "r.example.com/x", Tag: "v1", PullPolicy: "Always", KubeletDir: "/k",
					PodAnnotations: map[string]string{"a": "b", "c": `["d",e=f]`},
				}
			},
		},
		{args: "--dry-run=server --wait=false", want: func(o *Options) { o.DryRun, o.Wait = cli.DryRunServer, false }},
		{args: "--instancetypes", want: func(o *Options) { o.Instancetypes = true }},
		{args: "--instancetypes --wait=false", usage: "--instancetypes needs --wait"},
		{args: "--image-pull-policy Sometimes", usage: "--image-pull-policy"},
		{args: "--monitoring never", want: func(o *Options) { o.Monitoring = "never" }},
		{args: "--monitoring sometimes", usage: "--monitoring"},
		{args: "--image-tag=", usage: "--image-tag"},
		{args: "--kubelet-dir var/lib", usage: "--kubelet-dir"},
		{args: "--pod-annotation a", usage: "--pod-annotation"},
		{args: "-o zip", usage: "zip"},
		{args: "virtkit", usage: "no arguments"},
	} {
		f, _ := factory(t)
		var got *Options
		cmd := NewCmdInstall(f, func(_ context.Context, o *Options) error { got = o; return nil })
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(strings.Fields(test.args))
		err := cmd.Execute()
		var usage *cli.UsageError
		if test.usage != "" {
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), test.usage) {
				t.Errorf("install %s: %v, want a usage error about %q", test.args, err, test.usage)
			}
			continue
		}
		if err != nil {
			t.Errorf("install %s: %v", test.args, err)
			continue
		}
		want := &Options{
			Settings: action.Settings{Tag: "dev"}, Monitoring: "auto", DryRun: cli.DryRunNone, Wait: true,
			Timeout: got.Timeout,
		}
		test.want(want)
		got.Factory, got.Output = nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("install %s (-want +got):\n%s", test.args, diff)
		}
	}
}

// A dry run on the client's side needs no cluster, and its output is what kubectl would apply.
func TestInstallDryRunClient(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	f, out := factory(t)
	cmd := NewCmdInstall(f, nil)
	cmd.SetArgs([]string{"--dry-run=client", "--image-tag", "v9"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(out.String(), "\n---\n")
	objects, err := action.Objects(action.Settings{Tag: "v9"})
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) != len(objects) {
		t.Fatalf("%d documents, want %d", len(documents), len(objects))
	}
	for k, o := range objects {
		if !strings.Contains(documents[k]+"\n", "\n  name: "+o.GetName()+"\n") ||
			strings.Contains(documents[k], "---\n") {
			t.Errorf("document %d is not %s", k, action.Name(o))
		}
	}
	if n := strings.Count(out.String(), "image: ghcr.io/virtkit/virt-server:v9"); n != 4 {
		t.Errorf("%d containers have the image asked for, want 4", n)
	}
}

func TestInstallOutputName(t *testing.T) {
	f, out := factory(t)
	cmd := NewCmdInstall(f, nil)
	cmd.SetArgs([]string{"--dry-run=client", "-o", "name"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"customresourcedefinition.apiextensions.k8s.io/virtualmachines.kubevirt.io\n", "namespace/kubevirt\n",
		"deployment.apps/virt-api\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// With --monitoring=always a dry run shows what the Prometheus operator is told, too.
func TestInstallDryRunMonitoring(t *testing.T) {
	f, out := factory(t)
	cmd := NewCmdInstall(f, nil)
	cmd.SetArgs([]string{"--dry-run=client", "--monitoring", "always", "-o", "name"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"servicemonitor.monitoring.coreos.com/prometheus-kubevirt-rules\n",
		"prometheusrule.monitoring.coreos.com/prometheus-kubevirt-rules\n", "configmap/kubevirt-dashboard\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestSummary(t *testing.T) {
	o := &Options{Settings: action.Settings{Tag: "v1"}, Wait: true}
	results := []action.Result{{Change: action.Created}, {Change: action.Unchanged}, {Change: action.Unchanged}}
	if got, want := o.summary(results), "virtkit v1 is ready in namespace "+
		"kubevirt: 1 created, 2 unchanged"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestInstallInstancetypes(t *testing.T) {
	f, out := factory(t)
	cmd := NewCmdInstall(f, nil)
	cmd.SetArgs([]string{"--dry-run=client", "--instancetypes", "-o", "name"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"deployment.apps/virt-api\n",
		"virtualmachineclusterinstancetype.instancetype.kubevirt.io/u1.medium\n",
		"virtualmachineclusterpreference.instancetype.kubevirt.io/windows.11.virtio\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}
