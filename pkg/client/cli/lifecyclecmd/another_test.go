package lifecyclecmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// TestSelectionSparesAnother: a VM that was made anew under its name while the question was open is not the one that a
// selector has found.
func TestSelectionSparesAnother(t *testing.T) {
	const path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
	for _, make := range []func(*cli.Factory) *cobra.Command{NewCmdDelete, NewCmdStop, NewCmdRestart} {
		api := clienttest.New(t)
		vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "found"}}
		always := v1.RunStrategyAlways
		vm.Spec.RunStrategy = &always
		vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&vm, v1.VirtualMachineGroupVersionKind)},
		}}
		vmi.Status.Phase = v1.Running
		api.Put(path, &v1.VirtualMachineList{Items: []v1.VirtualMachine{vm}})
		api.Put("/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances",
			&v1.VirtualMachineInstanceList{Items: []v1.VirtualMachineInstance{vmi}})
		vm.UID = "anew"
		var deleted []string
		api.Put(path+"/web", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			var answer any = vm
			if r.Method == http.MethodDelete {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				deleted = append(deleted, string(body))
				conflict := apierrors.NewConflict(v1.Resource(client.VMs), "web", errors.New("Precondition failed"))
				w.WriteHeader(http.StatusConflict)
				answer = conflict.Status()
			}
			if err := json.NewEncoder(w).Encode(answer); err != nil {
				t.Error(err)
			}
		}))
		streams, state := cli.NoStreams(), t.TempDir()
		streams.ErrOut = &bytes.Buffer{}
		f := cli.NewFactory("virtctl", streams,
			func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] })
		cmd := make(f)
		f.Flags.AddFlags(cmd.PersistentFlags())
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{"-l", "app=web", "--yes", "--kubeconfig", api.Kubeconfig("default")})
		err := cmd.ExecuteContext(t.Context())
		const spared = "another of its name stays as it is"
		if cli.ExitCode(err) != cli.ExitNotFound || !strings.Contains(err.Error(), spared) {
			t.Errorf("%s: %v", cmd.Name(), err)
		}
		want := 0
		if cmd.Name() == "delete" {
			want = 1
		}
		if len(deleted) != want || slices.ContainsFunc(deleted, func(body string) bool {
			return !strings.Contains(body, `"preconditions":{"uid":"found"}`)
		}) {
			t.Errorf("%s: deleted by %q", cmd.Name(), deleted)
		}
		for _, r := range api.Asked("") {
			if r.Method == http.MethodPut {
				t.Errorf("%s: asked %s", cmd.Name(), r.URL.Path)
			}
		}
	}
}

// TestUndoSparesAnotherInstance: the instance of a VM that was started anew while the undo of its pause was under way
// is not the one that was paused.
func TestUndoSparesAnotherInstance(t *testing.T) {
	const vms, vmis = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines",
		"/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
	api := clienttest.New(t)
	always := v1.RunStrategyAlways
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "vm"}}
	vm.Spec.RunStrategy = &always
	api.Put(vms+"/web", vm)
	vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "paused"}}
	vmi.Status.Phase = v1.Running
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue},
	}
	api.Put(vmis+"/web", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(vmi); err != nil {
			t.Error(err)
		}
		vmi.UID = "anew" // from the second look on
	}))
	streams, state := cli.NoStreams(), t.TempDir()
	f := cli.NewFactory("virtctl", streams,
		func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] })
	cmd := NewCmdUndo(f)
	f.Flags.AddFlags(cmd.PersistentFlags())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	file, err := journalOf(f)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--kubeconfig", api.Kubeconfig("default")}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	config, err := f.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	err = file.Append(journal.Entry{
		Time: time.Unix(1e9, 0), Server: config.Host, Verb: lifecycle.Pause,
		Machines: []journal.Machine{{Namespace: "default", Name: "web", InstanceUID: "paused"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	if cli.ExitCode(err) != cli.ExitNotFound || !strings.Contains(err.Error(), "another of its name stays as it is") {
		t.Errorf("%v", err)
	}
	for _, r := range api.Asked("") {
		if r.Method == http.MethodPut {
			t.Errorf("asked %s", r.URL.Path)
		}
	}
}
