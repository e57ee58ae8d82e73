//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/tests/instance"
)

const userData = `#cloud-config
hostname: harbour
user: root
password: pilot
chpasswd: { expire: false }
ssh_pwauth: true
write_files:
- path: /www/from-cloud-init
  content: |
    written by cloud-init
  permissions: '0644'
runcmd:
- [sh, -c, "echo ran > /www/from-runcmd"]
`

// A VM made with virtctl boots to its login prompt in a namespace that enforces Pod Security `restricted`, has what
// cloud-init told it, and is reached on the pod's address and through a Service. It is in the cluster's DNS, and
// panics.
func TestBootToLogin(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	manifest := c.virtctl(t, nil, "-n", ns, "create", "vm", "--name", "boot", "--memory", "128Mi",
		"--volume-containerdisk", "src:"+instance.TinyDisk(), "--run-strategy", "Always", "-o", "json")
	vm := &v1.VirtualMachine{}
	if err := json.Unmarshal([]byte(manifest), vm); err != nil {
		t.Fatalf("virtctl create vm -o json: %v\n%s", err, manifest)
	}
	vm.Namespace = ns
	withUserData(userData)(vm)
	if v4, _ := c.families(t); !v4 { // without network data it asks for an IPv4 address only
		withNetworkData(c.eth0(t))(vm)
	}
	vm.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "boot"}
	// in DNS; the guest calls itself as cloud-init says
	vm.Spec.Template.Spec.Hostname, vm.Spec.Template.Spec.Subdomain = "pier", "docks"
	_, err := c.Kube.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "docks"},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "boot"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	vm.Spec.Template.Spec.Domain.Devices.PanicDevices = []v1.PanicDevice{{Model: ptr(v1.Pvpanic)}}
	g := c.create(t, vm)

	g.waitPhase(t, bootTime, v1.Running)
	g.waitLogin(t)
	g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusRunning)

	con := g.openConsole(t, "")
	con.login(t, "root", "pilot")
	if got := con.run(t, "hostname"); got != "harbour" {
		t.Errorf("hostname is %q, want harbour", got)
	}
	if got := con.run(t, "ls /sys/block | tr '\\n' ' '"); !strings.Contains(got, "sda ") {
		t.Errorf("disks are %q, want that which nobody chose a bus for on sata", got)
	}

	vmi := g.vmi(t)
	if len(vmi.Status.Interfaces) != 1 || vmi.Status.Interfaces[0].IP == "" {
		t.Fatalf("status.interfaces is %+v, want one with an IP", vmi.Status.Interfaces)
	}
	pod := g.pod(t)
	if vmi.Status.Interfaces[0].IP != pod.Status.PodIP {
		t.Errorf("status.interfaces[0].ipAddress is %s, the pod's is %s", vmi.Status.Interfaces[0].IP, pod.Status.PodIP)
	}
	if vmi.Status.NodeName != pod.Spec.NodeName {
		t.Errorf("status.nodeName is %q, the pod is on %q", vmi.Status.NodeName, pod.Spec.NodeName)
	}

	direct := &http.Client{Timeout: 5 * time.Second}
	for path, want := range map[string]string{"/from-cloud-init": "written by cloud-init", "/from-runcmd": "ran"} {
		eventually(t, 30*time.Second, "guest's web server on the pod IP", func() string {
			body, err := get(t.Context(), direct, "http://"+net.JoinHostPort(pod.Status.PodIP, "80")+path)
			if err != nil {
				return err.Error()
			}
			if strings.TrimSpace(body) != want {
				return fmt.Sprintf("%s is %q, want %q", path, body, want)
			}
			return ""
		})
	}

	service, err := c.Kube.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "boot"},
			Ports:    []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(80)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// It looks for names in the headless Service's domain, where its own is, and then where its pod would.
	for name, address := range map[string]string{
		"pier": pod.Status.PodIP, "pier.docks." + ns + ".svc.cluster.local": pod.Status.PodIP,
		"web": service.Spec.ClusterIP,
	} {
		eventually(t, 60*time.Second, "the guest finds "+name, func() string {
			if got := con.run(t, "ping -c1 -W1 "+name+" 2>&1 | head -1"); !strings.Contains(got, "("+address+")") {
				return fmt.Sprintf("%q, want %s", got, address)
			}
			return ""
		})
	}
	for _, p := range c.componentPods(t, "virt-handler") {
		fromNode := c.clientInNode(t, p)
		eventually(t, 30*time.Second, "guest's web server through the Service on "+p.Spec.NodeName, func() string {
			body, err := get(t.Context(), fromNode,
				"http://"+net.JoinHostPort(service.Spec.ClusterIP, "8080")+"/from-runcmd")
			if err != nil {
				return err.Error()
			}
			if strings.TrimSpace(body) != "ran" {
				return fmt.Sprintf("body is %q", body)
			}
			return ""
		})
	}

	for _, want := range []v1.VirtualMachineInstanceConditionType{
		v1.VirtualMachineInstanceReady, v1.VirtualMachineInstanceAgentConnected,
	} {
		eventually(t, 60*time.Second, "condition "+string(want), func() string {
			for _, condition := range g.vmi(t).Status.Conditions {
				if condition.Type == want && condition.Status == corev1.ConditionTrue {
					return ""
				}
			}
			return fmt.Sprintf("conditions are %+v", g.vmi(t).Status.Conditions)
		})
	}
	for _, condition := range []string{"running", "ready", "agent", "ip"} {
		c.virtctl(t, nil, "-n", ns, "wait", "boot", "--for="+condition, "--timeout", "60s")
	}
	if list := c.virtctl(t, nil, "-n", ns, "list"); !strings.Contains(list, "boot") ||
		!strings.Contains(list, "Running") {
		t.Errorf("virtctl list:\n%s", list)
	}

	first := g.vmi(t)
	con.send(t, "echo c >/proc/sysrq-trigger\r")
	eventually(t, bootTime, "the guest panics, and another is started", func() string {
		if vmi := g.vmi(t); vmi == nil || vmi.UID == first.UID || vmi.Status.Phase != v1.Running {
			return fmt.Sprintf("%+v", vmi)
		}
		return ""
	})
	g.waitStatus(t, 30*time.Second, v1.VirtualMachineStatusRunning)
	eventually(t, 30*time.Second, "an event says that the guest panicked", func() string {
		list, err := g.Kube.CoreV1().Events(ns).List(t.Context(),
			metav1.ListOptions{FieldSelector: "reason=GuestPanicked"})
		if err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.InvolvedObject.UID == first.UID && e.Type == corev1.EventTypeWarning {
				return ""
			}
		}
		return "none"
	})
}

// UEFI firmware finds the same disk; cloud-init finds a config drive, with a Secret's user data and keys.
func TestBootUEFI(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	const publicKey = "ssh-ed25519 AAAA harbour"
	for name, data := range map[string]map[string]string{"init": {"userData": userData}, "keys": {"pilot": publicKey}} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
		if _, err := c.Kube.CoreV1().Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	g := c.create(t, newVM(ns, "uefi", v1.RunStrategyAlways, withUserData(""), func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Volumes[1].VolumeSource = v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{
			UserDataSecretRef: &corev1.LocalObjectReference{Name: "init"},
			NetworkData:       `{"links": [], "networks": [], "services": []}`,
		}}
		spec.AccessCredentials = []v1.AccessCredential{{SSHPublicKey: &v1.SSHPublicKeyAccessCredential{
			Source: v1.SSHPublicKeyAccessCredentialSource{Secret: &v1.AccessCredentialSecretSource{SecretName: "keys"}},
			PropagationMethod: v1.SSHPublicKeyAccessCredentialPropagationMethod{
				ConfigDrive: &v1.ConfigDriveSSHPublicKeyAccessCredentialPropagation{},
			},
		}}}
		spec.Domain.Firmware = &v1.Firmware{Bootloader: &v1.Bootloader{EFI: &v1.EFI{SecureBoot: ptr(false)}}}
		spec.Domain.CPU = &v1.CPU{Cores: 2}
		spec.Domain.Memory.Guest = ptr(resource.MustParse("256Mi")) // the firmware needs room to unpack the kernel
	}))
	g.waitLogin(t)
	con := g.openConsole(t, "")
	con.login(t, "root", "pilot")
	for command, want := range map[string]string{
		"hostname":                       "harbour",
		"cat /root/.ssh/authorized_keys": publicKey,
		"ls /run/seed/openstack/latest | tr '\\n' ' '": "meta_data.json network_data.json user_data",
	} {
		if got := con.run(t, command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	if got := con.run(t, "test -d /sys/firmware/efi && echo uefi"); got != "uefi" {
		t.Errorf("guest did not boot by UEFI: %q", got)
	}
	if got := con.run(t, "nproc"); got != "2" {
		t.Errorf("guest has %s CPUs, want 2", got)
	}
}

// Secrets, base64 and network data reach the guest; only the listed ports are forwarded to it.
func TestCloudInitFromSecretAndPorts(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	_, err := c.Kube.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "init"},
		StringData: map[string]string{"userdata": userData},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g := c.create(t, newVM(ns, "secret", v1.RunStrategyAlways, withUserData(""), func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Volumes[1].CloudInitNoCloud = &v1.CloudInitNoCloudSource{
			UserDataSecretRef: &corev1.LocalObjectReference{Name: "init"},
			NetworkData:       "version: 2\nethernets: {" + c.eth0(t) + "}\n",
		}
		spec.Domain.Devices.Interfaces[0].Ports = []v1.Port{{Name: "web", Port: 80}}
	}))
	g.waitLogin(t)
	con := g.openConsole(t, "")
	con.login(t, "root", "pilot")
	con.run(t, "httpd -p 81 -h /www")
	address := g.pod(t).Status.PodIP
	direct := &http.Client{Timeout: 3 * time.Second}
	eventually(t, 30*time.Second, "port 80", func() string {
		if _, err := get(t.Context(), direct, "http://"+net.JoinHostPort(address, "80")+"/from-runcmd"); err != nil {
			return err.Error()
		}
		return ""
	})
	if _, err := get(t.Context(), direct, "http://"+net.JoinHostPort(address, "81")+"/from-runcmd"); err == nil {
		t.Error("port 81 is reachable though only 80 is listed")
	}
}
