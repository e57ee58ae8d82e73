package script

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/report/nwfilter"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// resourceSecrets are Secrets of the core API, which the fake keeps beside the machines.
const resourceSecrets = "secrets"

// agentRoutes are what a guest agent answers, and what `virtctl credentials` asks for.
func (c *cluster) agentRoutes(mux *http.ServeMux) {
	const vmi = "GET /apis/subresources.kubevirt.io/v1/namespaces/{ns}/virtualmachineinstances/{name}/"
	mux.HandleFunc(vmi+"guestosinfo", c.withAgent(func() any {
		return v1.VirtualMachineInstanceGuestAgentInfo{
			TypeMeta:  metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstanceGuestAgentInfo"},
			GAVersion: "10.0.2", Hostname: "demo",
			OS: v1.VirtualMachineInstanceGuestOSInfo{ID: "tiny", PrettyName: "a <tiny> guest"}, Timezone: "UTC, 0",
		}
	}))
	mux.HandleFunc(vmi+"userlist", c.withAgent(func() any {
		return v1.VirtualMachineInstanceGuestOSUserList{
			TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstanceGuestOSUserList"},
			Items:    []v1.VirtualMachineInstanceGuestOSUser{{UserName: "root", LoginTime: 1767323045.5}},
		}
	}))
	mux.HandleFunc(vmi+"filesystemlist", c.withAgent(func() any {
		return v1.VirtualMachineInstanceFileSystemList{
			TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstanceFileSystemList"},
			Items: []v1.VirtualMachineInstanceFileSystem{
				{DiskName: "vda1", MountPoint: "/", FileSystemType: "ext4", UsedBytes: 1, TotalBytes: 2},
			},
		}
	}))
	mux.HandleFunc(vmi+"firewall", c.withAgent(func() any {
		return nwfilter.Filter{Interfaces: []nwfilter.Interface{
			{Name: "default", Binding: "masquerade", Unguarded: "the guest is behind the pod's own address"},
			{
				Name: "red", Binding: "bridge", MAC: "02:00:00:00:00:01", IPv4: true, Addresses: []string{"192.0.2.7"},
				Dropped: []nwfilter.Dropped{{Kind: "mac"}, {Kind: "ip", Frames: 3}},
				Policies: []nwfilter.Policy{
					{Name: "web", Passed: []nwfilter.Counted{{Direction: "ingress", Frames: 7}}},
				},
				Denied: []nwfilter.Counted{{Direction: "ingress", Frames: 2}},
			},
		}}
	}))
	mux.HandleFunc(vmi+"exec", c.exec)
	mux.HandleFunc(vmi+"copyfile", c.copyFile)
	const secrets = "/api/v1/namespaces/{ns}/secrets"
	mux.HandleFunc("GET "+secrets+"/{name}", c.getSecret)
	mux.HandleFunc("POST "+secrets, c.createSecret)
	mux.HandleFunc("PATCH "+secrets+"/{name}", c.patchSecret)
	mux.HandleFunc("PATCH /apis/kubevirt.io/v1/namespaces/{ns}/virtualmachines/{name}", c.mergeVM)
}

// agentOf finds the instance whose agent is asked; it answers the request when there is none.
func (c *cluster) agentOf(w http.ResponseWriter, r *http.Request) bool {
	c.mu.Lock()
	o := c.objects[resourceVMIs][r.PathValue("ns")+"/"+r.PathValue("name")]
	c.mu.Unlock()
	vmi, ok := o.(*v1.VirtualMachineInstance)
	if !ok {
		refuse(w, apierrors.NewNotFound(group(resourceVMIs), r.PathValue("name")))
		return false
	}
	for _, condition := range vmi.Status.Conditions {
		if condition.Type == v1.VirtualMachineInstanceAgentConnected && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	refuse(w, apierrors.NewConflict(group(resourceVMIs), vmi.Name, io.ErrNoProgress))
	return false
}

func (c *cluster) withAgent(reply func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if c.agentOf(w, r) {
			answer(w, http.StatusOK, reply())
		}
	}
}

// exec is a guest with a few programs: cat, fail (exit code 3), crash (signal 9), big (1 MiB), hang.
func (c *cluster) exec(w http.ResponseWriter, r *http.Request) {
	if !c.agentOf(w, r) {
		return
	}
	conn, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		return
	}
	defer conn.Close()
	_, payload, err := exec.ReadFrame(conn)
	var request exec.Request
	if err != nil || json.Unmarshal(payload, &request) != nil {
		return
	}
	var input []byte
	for request.Stdin {
		_, data, err := exec.ReadFrame(conn)
		if err != nil {
			return
		}
		input = append(input, data...)
		request.Stdin = len(data) > 0
	}
	var result exec.Result
	switch request.Command[0] {
	case "cat":
		exec.WriteAll(conn, exec.ChannelStdout, input)
	case "echo":
		exec.WriteAll(conn, exec.ChannelStdout, []byte(strings.Join(request.Command[1:], " ")+"\n"))
	case "fail":
		exec.WriteAll(conn, exec.ChannelStdout, []byte("one\n"))
		exec.WriteAll(conn, exec.ChannelStderr, []byte("two\n"))
		result.ExitCode = 3
	case "crash":
		result.Signal = 9
	case "bytes":
		exec.WriteAll(conn, exec.ChannelStdout, []byte{0xff, 0})
	case "hang":
		var gone sync.WaitGroup
		gone.Go(func() { io.Copy(io.Discard, conn) })
		gone.Wait()
		return
	case "break":
		conn.CloseWithReason(stream.CodeGoingAway, "virt-handler is restarting; what ran in the guest is ended")
		return
	default:
		result.Failure = &metav1.Status{
			Reason: exec.ReasonNoProgram, Code: http.StatusUnprocessableEntity, Message: "No such file or directory",
		}
	}
	exec.WriteJSON(conn, exec.ChannelResult, result)
}

func (c *cluster) secret(w http.ResponseWriter, r *http.Request) *corev1.Secret {
	c.mu.Lock()
	defer c.mu.Unlock()
	secret, ok := c.objects[resourceSecrets][r.PathValue("ns")+"/"+r.PathValue("name")].(*corev1.Secret)
	if !ok {
		e := apierrors.NewNotFound(corev1.Resource(resourceSecrets), r.PathValue("name"))
		refuse(w, e)
		return nil
	}
	return secret.DeepCopy()
}

func (c *cluster) getSecret(w http.ResponseWriter, r *http.Request) {
	if secret := c.secret(w, r); secret != nil {
		answer(w, http.StatusOK, secret)
	}
}

// store keeps a Secret unless the request is a dry run, and notes what it has then.
func (c *cluster) store(w http.ResponseWriter, r *http.Request, secret *corev1.Secret) {
	if r.URL.Query().Get("dryRun") == "" {
		c.put1(resourceSecrets, secret)
		c.mu.Lock()
		var text []string
		for name, value := range secret.Data {
			if strings.HasPrefix(name, "ssh-key-") {
				name = "ssh-key-…"
			}
			text = append(text, name+"="+strings.ReplaceAll(strings.TrimSpace(string(value)), "\n", "|"))
		}
		name, _, made := strings.Cut(secret.Name, "-ssh-key-")
		if made {
			name += "-ssh-key-…"
		}
		c.changes = append(c.changes, r.Method+" secret "+name+" "+strings.Join(text, " "))
		c.mu.Unlock()
	}
	answer(w, http.StatusOK, secret)
}

func (c *cluster) createSecret(w http.ResponseWriter, r *http.Request) {
	secret := &corev1.Secret{}
	if err := json.NewDecoder(r.Body).Decode(secret); err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	c.store(w, r, secret)
}

func (c *cluster) patchSecret(w http.ResponseWriter, r *http.Request) {
	secret := c.secret(w, r)
	if secret == nil {
		return
	}
	var patch struct {
		Metadata metav1.ObjectMeta  `json:"metadata"`
		Data     map[string]*[]byte `json:"data"`
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	if patch.Metadata.ResourceVersion != secret.ResourceVersion {
		refuse(w, apierrors.NewConflict(corev1.Resource(resourceSecrets), secret.Name, io.ErrNoProgress))
		return
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for name, value := range patch.Data {
		if value == nil {
			delete(secret.Data, name)
		} else {
			secret.Data[name] = *value
		}
	}
	c.store(w, r, secret)
}

// mergeVM patches a VM. Of access credentials, which have a random name, it notes whose they are.
func (c *cluster) mergeVM(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !bytes.Contains(body, []byte(`"accessCredentials"`)) {
		r.SetPathValue("resource", resourceVMs)
		c.patch(w, r)
		return
	}
	c.mu.Lock()
	vm, ok := c.objects[resourceVMs][r.PathValue("ns")+"/"+r.PathValue("name")].(*v1.VirtualMachine)
	c.mu.Unlock()
	if !ok {
		refuse(w, apierrors.NewNotFound(group(resourceVMs), r.PathValue("name")))
		return
	}
	vm = vm.DeepCopy()
	// Of a merge patch what virtctl sends: lists are replaced.
	if err := json.NewDecoder(r.Body).Decode(vm); err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	if r.URL.Query().Get("dryRun") == "" {
		c.put1(resourceVMs, vm)
		added := vm.Spec.Template.Spec.AccessCredentials[len(vm.Spec.Template.Spec.AccessCredentials)-1]
		c.mu.Lock()
		c.changes = append(c.changes,
			fmt.Sprintf("PATCH vm %s keys of %v", vm.Name, added.SSHPublicKey.PropagationMethod.QemuGuestAgent.Users))
		c.mu.Unlock()
	}
	answer(w, http.StatusOK, vm)
}
