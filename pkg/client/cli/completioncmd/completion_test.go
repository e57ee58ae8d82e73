package completioncmd

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/why/gather"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

func named(names ...string) metav1.PartialObjectMetadataList {
	var list metav1.PartialObjectMetadataList
	for _, name := range names {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return list
}

// cluster is an API server with something of each kind, and a command whose words are completed.
func cluster(t *testing.T) (*clienttest.API, *cli.Factory, *cobra.Command) {
	t.Helper()
	api := clienttest.New(t)
	const (
		vms           = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
		vmis          = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
		instancetypes = "/apis/instancetype.kubevirt.io/v1beta1/"
		snapshots     = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/"
	)
	plugged := v1.Volume{Name: "plugged", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true},
	}}
	web := v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: v1.VirtualMachineStatus{PrintableStatus: "Running"},
	}
	idle := v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "idle"}, Status: v1.VirtualMachineStatus{PrintableStatus: "Stopped"},
	}
	idle.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	idle.Spec.Template.Spec.Volumes = []v1.Volume{{Name: "root"}, plugged}
	instance := v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running},
	}
	api.Put("/api/v1/namespaces/default/pods", named("client", "web"))
	api.Put("/api/v1/namespaces/shop/pods", named("till", "client"))
	api.Put(vms, v1.VirtualMachineList{Items: []v1.VirtualMachine{web, idle}})
	api.Put(vms+"/idle", idle)
	api.Put(vmis, v1.VirtualMachineInstanceList{Items: []v1.VirtualMachineInstance{instance}})
	api.Put(vmis+"/web", instance)
	api.Put("/api/v1/nodes", named("node1", "node2"))
	api.Put("/api/v1/namespaces", named("default", "shop"))
	api.Put(instancetypes+"virtualmachineclusterinstancetypes", named("u1.small"))
	api.Put(instancetypes+"namespaces/default/virtualmachineinstancetypes", named("own"))
	api.Put(snapshots+"virtualmachinesnapshots", named("before", "after"))
	api.Put(snapshots+"virtualmachinerestores", named("undo"))
	api.Put("/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools", named("db"))
	api.Put("/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets", named("cattle"))
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	f.Flags.Kubeconfig = api.Kubeconfig("default")
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	return api, f, cmd
}

// Names of the cluster are completed, with their kinds where a word may be of several, and none that is on the line.
func TestNames(t *testing.T) {
	_, f, cmd := cluster(t)
	for name, test := range map[string]struct {
		complete cobra.CompletionFunc
		args     []string
		word     string
		want     []string
	}{
		"VMs":                    {VMs(f, -1), nil, "", []string{"web\tRunning", "idle\tStopped"}},
		"VMs by a prefix":        {VMs(f, -1), nil, "i", []string{"idle\tStopped"}},
		"VMs not given yet":      {VMs(f, -1), []string{"web"}, "", []string{"idle\tStopped"}},
		"no more than one":       {VMs(f, 1), []string{"web"}, "", nil},
		"VMIs":                   {VMIs(f, -1), nil, "", []string{"web\tRunning"}},
		"machines":               {Machines(f, VMs), nil, "i", []string{"idle\tStopped"}},
		"machines after a kind":  {Machines(f, VMs), []string{"vmi"}, "", []string{"web\tRunning"}},
		"machines with a kind":   {Machines(f, VMs), nil, "vm/i", []string{"vm/idle\tStopped"}},
		"machines not given yet": {Machines(f, VMs), []string{"vm/idle"}, "vm/", []string{"vm/web\tRunning"}},
		"of no kind":             {Machines(f, VMs), nil, "pod/", nil},
		"labels of nodes": {
			NodeLabels(f), nil, "", []string{"kubernetes.io/hostname=node1", "kubernetes.io/hostname=node2"},
		},
		"a label of a node": {
			NodeLabels(f), nil, "kubernetes.io/hostname=node2", []string{"kubernetes.io/hostname=node2"},
		},
		"another label":  {NodeLabels(f), nil, "zone=", nil},
		"namespaces":     {Namespaces(f), []string{"shop"}, "s", []string{"shop"}},
		"instance types": {Instancetypes(f), nil, "", []string{"u1.small", "virtualmachineinstancetype/own"}},
		"snapshots":      {Operations(f, gather.Snapshot), nil, "b", []string{"before"}},
		"restores": {
			Prefixed("restore/", Operations(f, gather.Restore)), nil, "restore/", []string{"restore/undo"},
		},
		"restores that are given": {
			Prefixed("restore/", Operations(f, gather.Restore)), []string{"restore/undo"}, "restore/", nil,
		},
		"sets":                         {Sets(f, -1), nil, "", []string{"vmpool/db", "vmirs/cattle"}},
		"pods":                         {Pods(f), []string{"web"}, "", []string{"client", "web"}},
		"pods by a prefix":             {Pods(f), nil, "c", []string{"client"}},
		"pods of a namespace":          {Pods(f), nil, "shop/t", []string{"shop/till"}},
		"volumes without a machine":    {Hotplugged(f), nil, "", nil},
		"volumes of an instance":       {Hotplugged(f), []string{"web"}, "", nil},
		"volumes of a stopped machine": {Hotplugged(f), []string{"idle"}, "", []string{"plugged"}},
	} {
		got, directive := test.complete(cmd, test.args, test.word)
		if !slices.Equal(got, test.want) || directive != cobra.ShellCompDirectiveNoFileComp {
			t.Errorf("%s: %q, directive %d; want %q", name, got, directive, test.want)
		}
	}
}

// A server that refuses or does not answer disturbs nobody's line, and is asked for no longer than the time limit.
func TestFailures(t *testing.T) {
	api, f, cmd := cluster(t)
	api.Put("/apis/kubevirt.io/v1/namespaces/default/virtualmachines", clienttest.Forbidden("virtualmachines"))
	api.Put("/api/v1/namespaces", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // until the client gives up
	}))
	for name, complete := range map[string]cobra.CompletionFunc{
		"refused": VMs(f, -1), "no answer": Namespaces(f),
	} {
		if got, directive := complete(cmd, nil, ""); got != nil || directive != cobra.ShellCompDirectiveError {
			t.Errorf("%s: %q, directive %d", name, got, directive)
		}
	}
}

func TestWrite(t *testing.T) {
	root := &cobra.Command{Use: "virtctl"}
	for _, shell := range Shells {
		var out bytes.Buffer
		if err := Write(root, shell, &out); err != nil || !strings.Contains(out.String(), "__complete") {
			t.Errorf("%s: %v, a script of %d bytes", shell, err, out.Len())
		}
	}
	var out bytes.Buffer
	if err := Write(root, "csh", &out); err == nil || out.Len() > 0 {
		t.Errorf("csh: %v, %q", err, &out)
	}
}
