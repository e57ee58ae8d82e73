package exposecmd

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

const group = "/apis/kubevirt.io/v1/namespaces/team-a/"

// server has VM and VMI demo, whose interface lists port 80, and replica sets; it takes Services.
type server struct {
	*clienttest.API
	t    *testing.T
	made []corev1.Service
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{API: clienttest.New(t), t: t}
	spec := v1.VirtualMachineInstanceSpec{
		Domain: v1.DomainSpec{Devices: v1.Devices{Interfaces: []v1.Interface{
			{Name: "default", Ports: []v1.Port{{Name: "http", Port: 80, Protocol: "TCP"}}},
		}}},
		Networks: []v1.Network{*v1.DefaultPodNetwork()},
	}
	meta := metav1.ObjectMeta{Namespace: "team-a", Name: "demo"}
	template := &v1.VirtualMachineInstanceTemplateSpec{Spec: spec}
	s.Put(group+"virtualmachines/demo", &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: meta, Spec: v1.VirtualMachineSpec{Template: template},
	})
	s.Put(group+"virtualmachineinstances/demo", &v1.VirtualMachineInstance{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachineInstance"},
		ObjectMeta: meta, Spec: spec,
	})
	for name, selector := range map[string]*metav1.LabelSelector{
		"web":  {MatchLabels: map[string]string{"app": "web"}},
		"none": {},
		"odd": {
			MatchLabels:      map[string]string{"app": "web"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}},
		},
	} {
		s.Put(group+"virtualmachineinstancereplicasets/"+name, &v1.VirtualMachineInstanceReplicaSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachineInstanceReplicaSet"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name},
			Spec:       v1.VirtualMachineInstanceReplicaSetSpec{Selector: selector, Template: template},
		})
	}
	s.Put("/api/v1/namespaces/team-a/services", http.HandlerFunc(s.services))
	return s
}

func (s *server) services(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	var service corev1.Service
	if err := json.Unmarshal(body, &service); err != nil {
		s.t.Error(err)
	}
	s.made = append(s.made, service)
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(body); err != nil {
		s.t.Error(err)
	}
}

// run runs `virtctl expose` in a context whose namespace is team-a.
func run(t *testing.T, kubeconfig, line string) (string, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	streams := &cli.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
	f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
	cmd := NewCmdExpose(f)
	f.Flags.AddFlags(cmd.PersistentFlags())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(strings.Fields(line), "--kubeconfig", kubeconfig))
	err := cmd.ExecuteContext(t.Context())
	f.IO.Flush()
	if errOut.Len() > 0 {
		t.Errorf("expose %s: stderr %q", line, errOut.String())
	}
	return out.String(), err
}

// TestUsage has what no cluster is asked for: the kubeconfig is not there.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"vm --name=web":                             "the name of the vm is missing",
		"vmi/ --name=web":                           "the name of the vmi is missing",
		"demo --name=web":                           `"demo": say what it is: vm demo, vmi demo or vmirs demo`,
		"pod demo --name=web":                       `"pod" is not one of vm, vmi, vmirs`,
		"vm demo":                                   "--name is missing; it names the Service",
		"vm demo --name=web --port=0":               "--port: 0 is not a port from 1 to 65535",
		"vm demo --name=web --port=65536":           "--port: 65536 is not a port from 1 to 65535",
		"vm demo --name=Web --port=80":              `--name: "Web" is no name of a Service: `,
		"vm demo --name=web --port=80 --type=Extra": `--type: "Extra" is not one of ClusterIP, NodePort, LoadBalancer`,
		"vm demo --name=web --port=80 --node-port=30000": "--node-port: goes with --type NodePort or " +
			"LoadBalancer only",
		"vm demo --name=web --port=80 --ip-family=IPv5": `--ip-family: "IPv5" is not one of IPv4, IPv6, `,
		"vm demo --name=web --port=80 --ip-family-policy=None": `--ip-family-policy: "None" is not one of ` +
			"SingleStack, ",
		"vm demo --name=web --target-port=80":             "--port: is missing; ",
		"vm demo --name=web --port=80 --target-port=web_": `--target-port: "web_" is no port: `,
	} {
		_, err := run(t, "absent", line)
		if err == nil || !strings.Contains(err.Error(), want) || cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("expose %s: %v, exit code %d", line, err, cli.ExitCode(err))
		}
	}
}

// TestExpose has what becomes of the words: which guests the Service selects, and its ports.
func TestExpose(t *testing.T) {
	const one = "vmi.kubevirt.io/id=demo"
	for line, want := range map[string]struct{ selector, said string }{
		"vm demo --name=web":             {one, "Service web successfully created for vm demo\n"},
		"VMs demo --name=web":            {one, "Service web successfully created for vms demo\n"},
		"virtualmachine/demo --name=web": {one, "Service web successfully created for virtualmachine demo\n"},
		"vmi demo --name=web":            {one, "Service web successfully created for vmi demo\n"},
		"vmirs web --name=web":           {"app=web", "Service web successfully created for vmirs web\n"},
		"vmirs/web --name=web --dry-run": {
			"app=web", "Service web successfully created for vmirs web (server dry run)\n",
		},
		"vm demo --name=web --port=80 -o name": {one, "service/web\n"},
	} {
		s := newServer(t)
		out, err := run(t, s.Kubeconfig("team-a"), line)
		if err != nil || out != want.said || len(s.made) != 1 {
			t.Errorf("expose %s: %q, %v, made %v", line, out, err, s.made)
			continue
		}
		made := s.made[0]
		if got := metav1.FormatLabelSelector(metav1.SetAsLabelSelector(made.Spec.Selector)); got != want.selector ||
			made.Name != "web" || made.Namespace != "team-a" || len(made.Spec.Ports) != 1 ||
			made.Spec.Ports[0].Port != 80 || made.Spec.Type != corev1.ServiceTypeClusterIP {
			t.Errorf("expose %s: %q, %+v", line, got, made)
		}
		dry := s.Asked("/services")[0].URL.Query().Get("dryRun")
		if (dry == "All") != strings.Contains(line, "--dry-run") {
			t.Errorf("expose %s: dryRun %q", line, dry)
		}
	}
}

// With --dry-run=client the Service is shown, and nothing is sent.
func TestDryRunClient(t *testing.T) {
	s := newServer(t)
	out, err := run(t, s.Kubeconfig("team-a"), "vm demo --name=web --port=443 --target-port=https --dry-run=client "+
		"-o jsonpath={.spec.ports[0].port},{.spec.ports[0].targetPort},{.metadata.creationTimestamp},{.status}")
	if err != nil || out != "443,https,," {
		t.Errorf("%q, %v", out, err)
	}
	if len(s.made) > 0 {
		t.Errorf("made %+v", s.made)
	}
}

// TestRefused has what the cluster's answer makes impossible, by exit code.
func TestRefused(t *testing.T) {
	s := newServer(t)
	s.Put("/api/v1/namespaces/team-a/services", clienttest.Forbidden("services"))
	for line, want := range map[string]struct {
		text string
		code int
	}{
		"vm ghost --name=web --port=80":   {"expose vm team-a/ghost: ", cli.ExitNotFound},
		"vmi ghost --name=web --port=80":  {"expose vmi team-a/ghost: ", cli.ExitNotFound},
		"vmirs ghost --name=web":          {"expose vmirs team-a/ghost: ", cli.ExitNotFound},
		"vmirs none --name=web --port=80": {"it has no labels to select by", cli.ExitFailure},
		"vmirs odd --name=web --port=80":  {"its selector has matchExpressions", cli.ExitFailure},
		"vm demo --name=web --port=80":    {"create Service team-a/web: ", cli.ExitNotAllowed},
	} {
		out, err := run(t, s.Kubeconfig("team-a"), line)
		if err == nil || !strings.Contains(err.Error(), want.text) || cli.ExitCode(err) != want.code || out != "" {
			t.Errorf("expose %s: %v, exit code %d, stdout %q", line, err, cli.ExitCode(err), out)
		}
	}
	if len(s.made) > 0 {
		t.Errorf("made %+v", s.made)
	}
}
