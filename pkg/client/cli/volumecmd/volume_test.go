package volumecmd

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
)

const group = "/apis/kubevirt.io/v1/namespaces/team-a/"

// volumes are those of a spec, hotpluggable.
func volumes(names ...string) v1.VirtualMachineInstanceSpec {
	spec := v1.VirtualMachineInstanceSpec{}
	for _, name := range names {
		source := &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true}
		source.ClaimName = name
		spec.Volumes = append(spec.Volumes, v1.Volume{
			Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source},
		})
	}
	return spec
}

func vm(names ...string) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "demo"},
		Spec: v1.VirtualMachineSpec{
			Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: volumes(names...)},
		},
	}
}

func vmi(names ...string) *v1.VirtualMachineInstance {
	return &v1.VirtualMachineInstance{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachineInstance"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "demo"}, Spec: volumes(names...),
	}
}

// TestWhoseVolume has whether a request is of the VM or of its instance, by what the user may read of either.
func TestWhoseVolume(t *testing.T) {
	const ofVM, ofVMI, neither = "virtualmachines", "virtualmachineinstances", ""
	for name, test := range map[string]struct {
		vm, vmi any
		target  string
		remove  bool
		want    string
		code    int
	}{
		"add":                           {vm: vm(), vmi: vmi(), want: ofVM},
		"add, stopped":                  {vm: vm(), want: ofVM},
		"add, an instance of its own":   {vmi: vmi(), want: ofVMI},
		"add, nothing there":            {want: neither, code: cli.ExitNotFound},
		"add, may not look at it":       {vm: clienttest.Forbidden("virtualmachines"), want: ofVM},
		"add, of the instance":          {vm: vm(), vmi: vmi(), target: "vmi/demo", want: ofVMI},
		"add, may not look at either":   {vmi: clienttest.Forbidden("virtualmachineinstances"), want: ofVMI},
		"remove the VM's":               {vm: vm("data"), vmi: vmi("data"), remove: true, want: ofVM},
		"remove the instance's":         {vm: vm(), vmi: vmi("data"), remove: true, want: ofVMI},
		"remove nobody's":               {vm: vm(), vmi: vmi("other"), remove: true, want: ofVM},
		"remove of one that is stopped": {vm: vm(), remove: true, want: ofVM},
		"remove, may not look at the instance": {
			vm: vm(), vmi: clienttest.Forbidden("virtualmachineinstances"), remove: true, want: ofVM,
		},
	} {
		api := clienttest.New(t)
		for at, object := range map[string]any{ofVM: test.vm, ofVMI: test.vmi} {
			if object != nil {
				api.Put(group+at+"/demo", object)
			}
		}
		verb, create := "addvolume", NewCmdAddVolume
		if test.remove {
			verb, create = "removevolume", NewCmdRemoveVolume
		}
		api.Put("/api/v1/namespaces/team-a/persistentvolumeclaims/data", &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Name: "data"},
		})
		accepted := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
		})
		for _, of := range []string{ofVM, ofVMI} {
			api.Put("/apis/subresources.kubevirt.io/v1/namespaces/team-a/"+of+"/demo/"+verb, accepted)
		}
		if test.target == "" {
			test.target = "demo"
		}
		_, _, err := clitest.Command{New: create, Kubeconfig: api.Kubeconfig("team-a")}.Run(t, test.target,
			"--volume-name=data")
		got := neither
		for _, r := range api.Asked("/" + verb) {
			got += strings.Split(r.URL.Path, "/")[6]
		}
		if got != test.want || cli.ExitCode(err) != test.code {
			t.Errorf("%s: asked %q, %v", name, got, err)
		}
	}
}

// Of a request that the server refuses nothing is said but its error; a dry run asks for nothing that lasts.
func TestRefused(t *testing.T) {
	api := clienttest.New(t)
	api.Put(group+"virtualmachines/demo", vm())
	const at = "/apis/subresources.kubevirt.io/v1/namespaces/team-a/virtualmachines/demo/"
	api.Put(at+"removevolume", clienttest.Forbidden("virtualmachines/removevolume"))
	remove := clitest.Command{New: NewCmdRemoveVolume, Kubeconfig: api.Kubeconfig("team-a")}
	out, errOut, err := remove.Run(t, "demo", "--volume-name=data")
	if cli.ExitCode(err) != cli.ExitNotAllowed || out != "" || errOut != "" {
		t.Errorf("%q, %q, %v", out, errOut, err)
	}
	out, _, err = remove.Run(t, "demo", "--volume-name=data", "--dry-run=client")
	if asked := api.Asked("/removevolume"); err != nil || len(asked) != 1 ||
		out != "Successfully submitted remove volume request to VM demo for volume data (dry run)\n" {
		t.Errorf("%q, %v, asked %d times", out, err, len(asked))
	}
}

// TestUsage has what the two commands do not share, and what no cluster is asked for.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"add demo --volume-name=data --disk-type=lun --bus=virtio":  "--bus: virtio has disks only",
		"add demo --volume-name=data --cache=unsafe":                `--cache: "unsafe" is not one of `,
		"add demo --volume-name=data --wait --dry-run":              "--wait",
		"remove demo --volume-name=data --wait --dry-run=client":    "--wait",
		"remove demo --volume-name=../x":                            `--volume-name: "../x" is not a name`,
		"remove demo --volume-name=data -o colour":                  `unknown output format "colour"`,
		"remove demo --volume-name=data --bus=scsi":                 "unknown flag: --bus",
		"add vm/a/b/c --volume-name=data":                           `"vm/a/b/c"`,
		"remove demo --volume-name=data --wait --timeout=yesterday": "--timeout",
	} {
		word, rest, _ := strings.Cut(line, " ")
		create := NewCmdAddVolume
		if word == "remove" {
			create = NewCmdRemoveVolume
		}
		_, _, err := clitest.Command{New: create}.Run(t, strings.Fields(rest)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
