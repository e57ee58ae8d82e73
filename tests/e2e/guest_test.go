//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/guests"
)

// bootTime bounds create → login, with several guests booting at once on two cores.
const bootTime = 90 * time.Second

// patience is how many times longer than a busy machine takes the tests wait before they give up. How fast virtkit is
// make bench says; here a wait ends as soon as what it is for is there.
const patience = 3

// guest is one VM under test.
type guest struct {
	*cluster
	ns, name string
}

// The VM under test, and what tests add to it.
var (
	newVM        = guests.NewVM
	withUserData = guests.WithUserData
	withClaim    = guests.WithClaim
)

// create makes the VM; the namespace's end takes it away.
func (c *cluster) create(t *testing.T, vm *v1.VirtualMachine) *guest {
	t.Helper()
	if err := c.Client.Create(t.Context(), vm); err != nil {
		t.Fatalf("create vm %s: %v", vm.Name, err)
	}
	return &guest{cluster: c, ns: vm.Namespace, name: vm.Name}
}

func (g *guest) key() client.ObjectKey { return client.ObjectKey{Namespace: g.ns, Name: g.name} }

func (g *guest) vm(t *testing.T) *v1.VirtualMachine {
	t.Helper()
	vm := &v1.VirtualMachine{}
	if err := g.Client.Get(t.Context(), g.key(), vm); err != nil {
		t.Fatalf("get vm %s: %v", g.name, err)
	}
	return vm
}

// vmi returns nil when there is none.
func (g *guest) vmi(t *testing.T) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	switch err := g.Client.Get(t.Context(), g.key(), vmi); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		t.Fatalf("get vmi %s: %v", g.name, err)
	}
	return vmi
}

// pods returns the launcher pods of the VM that are not being deleted.
func (g *guest) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	pods, err := g.Kube.CoreV1().Pods(g.ns).List(t.Context(),
		metav1.ListOptions{LabelSelector: "kubevirt.io=virt-launcher"})
	if err != nil {
		t.Fatal(err)
	}
	var mine []corev1.Pod
	for _, pod := range pods.Items {
		if pod.Annotations[v1.DomainAnnotation] == g.name && pod.DeletionTimestamp == nil {
			mine = append(mine, pod)
		}
	}
	return mine
}

func (g *guest) pod(t *testing.T) corev1.Pod {
	t.Helper()
	pods := g.pods(t)
	if len(pods) != 1 {
		t.Fatalf("vm %s has %d launcher pods, want 1", g.name, len(pods))
	}
	return pods[0]
}

// eventually waits until the condition gives "", and else fails with what it said last. What comes from elsewhere and
// may be empty is given with instead.
func eventually(t *testing.T, within time.Duration, what string, condition func() string) {
	t.Helper()
	deadline := time.Now().Add(patience * within)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		last := condition()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %s", what, patience*within, last)
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s: %v: %s", what, t.Context().Err(), last)
		}
	}
}

// instead is what a condition of eventually gives while it has said, which may be nothing, and not what is waited for.
func instead(said string) string { return fmt.Sprintf("it says %q", said) }

func (g *guest) waitPhase(t *testing.T, within time.Duration, phases ...v1.VirtualMachineInstancePhase,
) *v1.VirtualMachineInstance {
	t.Helper()
	var vmi *v1.VirtualMachineInstance
	eventually(t, within, fmt.Sprintf("vmi %s in phase %v", g.name, phases), func() string {
		if vmi = g.vmi(t); vmi == nil {
			return "there is no vmi"
		}
		for _, phase := range phases {
			if vmi.Status.Phase == phase {
				return ""
			}
		}
		return fmt.Sprintf("phase is %q", vmi.Status.Phase)
	})
	return vmi
}

func (g *guest) waitStatus(t *testing.T, within time.Duration, statuses ...v1.VirtualMachinePrintableStatus) {
	t.Helper()
	eventually(t, within, fmt.Sprintf("vm %s shows %v", g.name, statuses), func() string {
		got := g.vm(t).Status.PrintableStatus
		for _, s := range statuses {
			if got == s {
				return ""
			}
		}
		return fmt.Sprintf("it shows %q", got)
	})
}

func (g *guest) waitGone(t *testing.T, within time.Duration) {
	t.Helper()
	eventually(t, within, "vmi "+g.name+" and its pods gone", func() string {
		if vmi := g.vmi(t); vmi != nil {
			return fmt.Sprintf("vmi is there, phase %q, finalizers %v", vmi.Status.Phase, vmi.Finalizers)
		}
		pods, err := g.Kube.CoreV1().Pods(g.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, pod := range pods.Items {
			if pod.Annotations[v1.DomainAnnotation] == g.name {
				return "pod " + pod.Name + " is there, phase " + string(pod.Status.Phase)
			}
		}
		return ""
	})
}

// waitLogin waits for the login prompt as a user would, with virtctl. A boot that met QEMU's race is made once more.
func (g *guest) waitLogin(t *testing.T) {
	t.Helper()
	login := []string{"-n", g.ns, "wait", g.name, "--for=login", "--timeout", (patience * bootTime).String()}
	_, said, err := g.Virtctl(t.Context(), nil, login...)
	if err == nil {
		return
	}
	if !g.raced(t, said) {
		t.Fatalf("virtctl %s: %v\n%s", strings.Join(login, " "), err, said)
	}
	// The stop is refused for a guest that has aborted and is not started anew by itself; its VMI goes with the start.
	if _, said, err := g.Virtctl(t.Context(), nil, "-n", g.ns,
		"stop", g.name, "--force", "--grace-period", "0"); err != nil {
		t.Logf("stop after QEMU's race: %s", said)
	} else {
		g.waitGone(t, bootTime)
	}
	g.virtctl(t, nil, "-n", g.ns, "start", g.name)
	g.virtctl(t, nil, login...)
}

// console is an open serial console; the protocol is spoken here by hand, without virtkit's own client.
type console struct {
	ws   *websocket.Conn
	mu   sync.Mutex
	got  strings.Builder
	more chan struct{} // signalled when got grows
	done chan struct{} // closed when the stream has ended; err says how
	err  error
}

func (g *guest) openConsole(t *testing.T, query string) *console {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(g.Config)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(g.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	u.Scheme = "wss"
	u.Path = fmt.Sprintf("/apis/subresources.kubevirt.io/v1/namespaces/%s/virtualmachineinstances/%s/console", g.ns,
		g.name)
	u.RawQuery = query
	dialer := websocket.Dialer{
		TLSClientConfig: tlsConfig, Subprotocols: []string{"plain.kubevirt.io"}, HandshakeTimeout: 10 * time.Second,
	}
	ws, response, err := dialer.DialContext(t.Context(), u.String(), nil) //nolint:bodyclose // the websocket library has read and closed it
	if err != nil {
		body := ""
		if response != nil {
			b, _ := io.ReadAll(response.Body)
			body = string(b)
		}
		t.Fatalf("open console of %s: %v %s", g.name, err, body)
	}
	c := &console{ws: ws, more: make(chan struct{}, 1), done: make(chan struct{})}
	go c.read()
	t.Cleanup(func() { ws.Close(); <-c.done })
	return c
}

func (c *console) read() {
	defer close(c.done)
	for {
		kind, data, err := c.ws.ReadMessage()
		if err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
		if kind != websocket.BinaryMessage {
			continue
		}
		c.mu.Lock()
		c.got.Write(data)
		c.mu.Unlock()
		select {
		case c.more <- struct{}{}:
		default:
		}
	}
}

func (c *console) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got.String()
}

func (c *console) send(t *testing.T, text string) {
	t.Helper()
	if err := c.ws.WriteMessage(websocket.BinaryMessage, []byte(text)); err != nil {
		t.Fatalf("write to console: %v", err)
	}
}

// expect waits until the output matches.
func (c *console) expect(t *testing.T, within time.Duration, pattern string) string {
	t.Helper()
	return c.expectFrom(t, 0, within, pattern)
}

// expectFrom is expect for what came after the given number of bytes.
func (c *console) expectFrom(t *testing.T, from int, within time.Duration, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.NewTimer(patience * within)
	defer deadline.Stop()
	for {
		if m := re.FindString(c.output()[from:]); m != "" {
			return m
		}
		select {
		case <-c.more:
		case <-c.done:
			if m := re.FindString(c.output()[from:]); m != "" {
				return m
			}
			t.Fatalf("console ended (%v) before %q; output:\n%s", c.err, pattern, c.output())
		case <-deadline.C:
			t.Fatalf("console did not show %q within %v; output:\n%s", pattern, patience*within, c.output())
		}
	}
}

// login logs in on the console and leaves a shell prompt.
func (c *console) login(t *testing.T, user, password string) {
	t.Helper()
	from := len(c.output())
	c.send(t, "\r")
	c.expectFrom(t, from, bootTime, `login: $`)
	c.send(t, user+"\r")
	c.expectFrom(t, from, 20*time.Second, `[Pp]assword: $`)
	c.send(t, password+"\r")
	if !c.shows(from, 10*time.Second, shellPrompt) {
		// A guest of a busy emulator was seen to wait for a password that had been sent. Another key, as a person would
		// press it, shows what it was: input that the serial port kept goes in with it, and lost input does not.
		t.Log("the guest has not taken the password yet: Enter once more")
		c.send(t, "\r")
	}
	c.expectFrom(t, from, 20*time.Second, shellPrompt)
}

// shows waits for what matches in what came after the given number of bytes, and says whether it came.
func (c *console) shows(from int, within time.Duration, pattern string) bool {
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(patience * within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if re.MatchString(c.output()[from:]) {
			return true
		}
	}
	return false
}

// logOut ends the shell, so that the next one to open the console finds the guest waiting for a login.
func (c *console) logOut(t *testing.T) {
	t.Helper()
	from := len(c.output())
	c.send(t, "exit\r")
	c.expectFrom(t, from, 20*time.Second, `login: $`)
}

// shellPrompt ends what a shell that waits for input has printed; busybox asks for the cursor's place after it, and
// then the guest itself may write to its console.
const shellPrompt = `[#$] (\x1b\[6n)?(\r?\n?tiny: [^\n]*\n)*$`

// escapes are what a shell's line editor sends to the terminal.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// said are the lines that the guest itself writes to its console while a shell is there.
var said = regexp.MustCompile(`(?m)^tiny: [^\n]*\n`)

// run types a command and returns its output. The guest's shell joins the marks around it, so that the echo of the
// command, which the shell may break into lines, does not look like them.
func (c *console) run(t *testing.T, command string) string {
	t.Helper()
	from := len(c.output())
	c.send(t, "echo BEGIN'-'OF; "+command+"; echo END'-'OF\r")
	out := c.expectFrom(t, from, 30*time.Second, `(?s)BEGIN-OF\r?\n.*END-OF\r?\n`)
	out = strings.ReplaceAll(escapes.ReplaceAllString(out, ""), "\r", "")
	out = said.ReplaceAllString(out, "")
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(out, "BEGIN-OF\n"), "END-OF\n"))
}

// get fetches a page from the guest's web server.
func get(ctx context.Context, c *http.Client, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", address, response.Status)
	}
	return string(body), nil
}
