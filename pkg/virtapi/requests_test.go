package virtapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
)

func noNode(w http.ResponseWriter, r *http.Request) {
	http.Error(w, "not expected: "+r.URL.Path, http.StatusInternalServerError)
}

// pairOf is a VM and the instance that it owns.
func pairOf(strategy v1.VirtualMachineRunStrategy, vmi *v1.VirtualMachineInstance) map[string]any {
	vm := machine(strategy)
	vm.UID, vm.ResourceVersion = "v", "7"
	objects := map[string]any{"virtualmachines/vm": vm}
	if vmi != nil {
		vmi.ResourceVersion = "8"
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
		vmi.Status.NodeName = testNode
		objects["virtualmachineinstances/vm"] = vmi
	}
	return objects
}

func TestLifecycleRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		objects          map[string]any
		verb, body       string
		code             int
		message          string
		want             []string
		meanwhileChanged int
	}{
		"start": {
			objects: pairOf(v1.RunStrategyHalted, nil), verb: "start", code: 202,
			want: []string{
				`PATCH virtualmachines/vm {"metadata":{"resourceVersion":"7"},"spec":{"runStrategy":"Always"}}`,
			},
		},
		"start, legacy": {
			objects: pairOf("false", nil), verb: "start", body: "{}", code: 202,
			want: []string{`PATCH virtualmachines/vm {"metadata":{"resourceVersion":"7"},"spec":{"running":true}}`},
		},
		"start of a changing VM": {
			objects: pairOf(v1.RunStrategyHalted, nil), verb: "start", code: 202, meanwhileChanged: 2,
			want: []string{
				`PATCH virtualmachines/vm {"metadata":{"resourceVersion":"7"},"spec":{"runStrategy":"Always"}}`,
			},
		},
		"start of a VM that never rests": {
			objects: pairOf(v1.RunStrategyHalted, nil), verb: "start", code: 409, meanwhileChanged: 99,
			message: "Operation cannot be fulfilled",
		},
		"dry run": {
			objects: pairOf(v1.RunStrategyManual, nil), verb: "start", body: `{"dryRun":["All"]}`, code: 202,
			want: []string{
				`PATCH virtualmachines/vm/status {"metadata":{"resourceVersion":"7"},"status":{"stateChangeRequests":[{"action":"Start"}]}} dryRun=All`,
			},
		},
		"half a dry run": {
			objects: pairOf(v1.RunStrategyManual, nil), verb: "start", body: `{"dryRun":["Some"]}`, code: 400,
			message: `dryRun: \"Some\" is not supported`,
		},
		"running": {
			objects: pairOf(v1.RunStrategyAlways, instance(v1.Running)), verb: "start", code: 409,
			message: "VirtualMachine default/vm: VM is already running",
		},
		"no VM": {
			objects: map[string]any{}, verb: "start", code: 404,
			message: `virtualmachines.kubevirt.io \"vm\" not found`,
		},
		"bad body": {
			objects: pairOf(v1.RunStrategyHalted, nil), verb: "start", body: "{", code: 400,
			message: "cannot read the request's body",
		},
		"huge body": {
			objects: pairOf(v1.RunStrategyHalted, nil), verb: "start",
			body: `{"x":"` + strings.Repeat("x", maxBody) + `"}`, code: 413, message: "limit is",
		},
		"stop with grace": {
			objects: pairOf(v1.RunStrategyAlways, instance(v1.Running)), verb: "stop", body: `{"gracePeriod":0}`,
			code: 202,
			want: []string{
				`PATCH virtualmachineinstances/vm {"metadata":{"resourceVersion":"8"},"spec":{"terminationGracePeriodSeconds":0}}`,
				`PATCH virtualmachines/vm {"metadata":{"resourceVersion":"7"},"spec":{"runStrategy":"Halted"}}`,
			},
		},
		"stop another's instance": {
			objects: map[string]any{
				"virtualmachines/vm":         machine(v1.RunStrategyManual),
				"virtualmachineinstances/vm": instance(v1.Running),
			},
			verb: "stop", code: 409, message: "VM is not running",
		},
		"restart": {
			objects: pairOf(v1.RunStrategyAlways, instance(v1.Running)), verb: "restart",
			body: `{"kind":"RestartOptions"}`, code: 202,
			want: []string{
				`PATCH virtualmachines/vm/status {"metadata":{"resourceVersion":"7"},"status":{"stateChangeRequests":[{"action":"Stop","uid":"u"},{"action":"Start"}]}}`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, tc.objects, noNode)
			c.conflicts = tc.meanwhileChanged
			code, body := c.do(http.MethodPut, "virtualmachines/vm/"+tc.verb, tc.body)
			if code != tc.code || !strings.Contains(body, tc.message) {
				t.Errorf("%d %s", code, body)
			}
			if got := strings.Join(c.written(), "\n"); got != strings.Join(tc.want, "\n") {
				t.Errorf("got  %s\nwant %s", got, strings.Join(tc.want, "\n"))
			}
			if code == 202 && body != "" {
				t.Errorf("body %q", body)
			}
		})
	}
}

func TestEvacuateCancel(t *testing.T) {
	leaving := func() map[string]any {
		vmi := instance(v1.Running)
		vmi.Status.EvacuationNodeName = testNode
		return pairOf(v1.RunStrategyAlways, vmi)
	}
	const patch = `PATCH virtualmachineinstances/vm/status {"metadata":{"resourceVersion":"8"},"status":{"evacuationNodeName":null}}`
	for name, tc := range map[string]struct {
		objects              map[string]any
		resource, body, want string
		code, changed        int
	}{
		"VM": {leaving(), "virtualmachines", "", patch, 202, 0},
		"instance": {
			leaving(), "virtualmachineinstances", `{"evacuationNodeName":"` + testNode + `"}`, patch, 202, 1,
		},
		"other node":   {leaving(), "virtualmachines", `{"evacuationNodeName":"other"}`, "", 202, 0},
		"dry run":      {leaving(), "virtualmachines", `{"dryRun":["All"]}`, patch + " dryRun=All", 202, 0},
		"not leaving":  {pairOf(v1.RunStrategyAlways, instance(v1.Running)), "virtualmachines", "", "", 202, 0},
		"no instance":  {pairOf(v1.RunStrategyHalted, nil), "virtualmachines", "", "", 404, 0},
		"bad dry run":  {leaving(), "virtualmachines", `{"dryRun":["Some"]}`, "", 400, 0},
		"always meets": {leaving(), "virtualmachines", "", "", 409, 99},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, tc.objects, noNode)
			c.conflicts = tc.changed
			code, body := c.do(http.MethodPut, tc.resource+"/vm/evacuate/cancel", tc.body)
			if code != tc.code {
				t.Errorf("%d %s", code, body)
			}
			if got := strings.Join(c.written(), "\n"); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Labels are anybody's to write who may make pods; only those that the status records are the instance's.
func TestForceRestart(t *testing.T) {
	running := instance(v1.Running)
	running.Status.ActivePods = map[types.UID]string{"mine": testNode}
	c := newCluster(t, pairOf(v1.RunStrategyAlways, running), noNode)
	for _, name := range []string{"mine", "other"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{v1.CreatedByLabel: "u"},
		}}
		if _, err := c.core.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	code, body := c.do(http.MethodGet, "virtualmachineinstances/vm/objectgraph", "")
	if code != 200 || !strings.Contains(body, `"mine"`) || strings.Contains(body, `"other"`) {
		t.Errorf("the graph: %d %s", code, body)
	}
	if code, body := c.do(http.MethodPut, "virtualmachines/vm/restart", `{"gracePeriodSeconds":0}`); code != 202 {
		t.Fatalf("%d %s", code, body)
	}
	pods, err := c.core.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 || pods.Items[0].Name != "other" {
		t.Errorf("pods left: %v, %v", pods.Items, err)
	}
}

func TestSteer(t *testing.T) {
	stopped := instance(v1.Running)
	stopped.Status.Conditions = []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstancePaused, Status: "True"},
	}
	probed, deaf := instance(v1.Running), instance(v1.Running)
	probed.Spec.LivenessProbe = &v1.Probe{}
	deaf.Spec.Domain.Features = &v1.Features{ACPI: v1.FeatureState{Enabled: new(false)}}
	agent := deaf.DeepCopy()
	agent.Status.Conditions = []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstanceAgentConnected, Status: "True"},
	}
	lost := pairOf(v1.RunStrategyAlways, instance(v1.Running))
	lost["virtualmachineinstances/vm"].(*v1.VirtualMachineInstance).Status.NodeName = "node2"
	running := func() map[string]any { return pairOf(v1.RunStrategyAlways, instance(v1.Running)) }
	for name, tc := range map[string]struct {
		objects    map[string]any
		verb, body string
		code       int
		message    string
		asked      bool
	}{
		"pause":          {running(), "pause", "", 202, "", true},
		"pause, dry run": {running(), "pause", `{"dryRun":["All"]}`, 202, "", false},
		"pause twice": {
			pairOf(v1.RunStrategyAlways, stopped.DeepCopy()), "pause", "", 409, "VMI is already paused", false,
		},
		"unpause":         {pairOf(v1.RunStrategyAlways, stopped.DeepCopy()), "unpause", "", 202, "", true},
		"unpause running": {running(), "unpause", "", 409, "VMI is not paused", false},
		"pause, probed": {
			pairOf(v1.RunStrategyAlways, probed), "pause", "", 403,
			"Pausing VMIs with LivenessProbe is currently not supported", false,
		},
		"softreboot, deaf": {
			pairOf(v1.RunStrategyAlways, deaf), "softreboot", "", 409,
			"VMI neither have the agent connected nor the ACPI feature enabled", false,
		},
		"softreboot agent": {pairOf(v1.RunStrategyAlways, agent), "softreboot", "", 202, "", true},
		"reset":            {running(), "reset", "", 202, "", true},
		"softreboot":       {running(), "softreboot", "", 202, "", true},
		"softreboot sleep": {
			pairOf(v1.RunStrategyAlways, stopped.DeepCopy()), "softreboot", "", 409, "VMI is paused", false,
		},
		"freeze": {running(), "freeze", "", 202, "", true},
		// the status lags
		"freeze, unpaused": {pairOf(v1.RunStrategyAlways, stopped.DeepCopy()), "freeze", "", 202, "", true},
		"freeze none": {
			pairOf(v1.RunStrategyAlways, instance(v1.Scheduling)), "freeze", "", 409,
			"is not running: phase Scheduling", false,
		},
		"unfreeze": {running(), "unfreeze", "", 202, "", true},
		"not running": {
			pairOf(v1.RunStrategyAlways, instance(v1.Scheduling)), "pause", "", 409,
			"VirtualMachineInstance default/vm is not running: phase Scheduling", false,
		},
		"no phase yet": {
			pairOf(v1.RunStrategyAlways, instance("")), "pause", "", 409, "is not running: phase Pending", false,
		},
		"no instance": {map[string]any{}, "pause", "", 404, "not found", false},
		"no handler":  {lost, "pause", "", 503, "no virt-handler runs on node node2", false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			c := newCluster(t, tc.objects, func(w http.ResponseWriter, r *http.Request) {
				asked = r.Method == http.MethodPut &&
					r.URL.Path == "/v1/namespaces/default/virtualmachineinstances/vm/"+tc.verb
				w.WriteHeader(http.StatusAccepted)
			})
			code, body := c.do(http.MethodPut, "virtualmachineinstances/vm/"+tc.verb, tc.body)
			if code != tc.code || !strings.Contains(body, tc.message) || asked != tc.asked {
				t.Errorf("%d %s, asked %v", code, body, asked)
			}
		})
	}
	t.Run("the handler's refusal", func(t *testing.T) {
		c := newCluster(t, running(), func(w http.ResponseWriter, _ *http.Request) {
			stream.WriteStatus(w, metav1.Status{
				Status: metav1.StatusFailure, Code: 409, Reason: metav1.StatusReasonConflict,
				Message: "the guest is shutting down",
			})
		})
		if code, body := c.do(http.MethodPut, "virtualmachineinstances/vm/pause", ""); code != 409 ||
			!strings.Contains(body, "the guest is shutting down") {
			t.Errorf("%d %s", code, body)
		}
	})
}

func TestStreams(t *testing.T) {
	running := func() map[string]any { return pairOf(v1.RunStrategyAlways, instance(v1.Running)) }
	t.Run("both ways, with query and user", func(t *testing.T) {
		c := newCluster(t, running(), func(w http.ResponseWriter, r *http.Request) {
			conn, err := stream.Accept(w, r, stream.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, r.URL.RequestURI()+" ")
			io.Copy(conn, conn)
			conn.CloseWrite()
		})
		conn, err := c.dial("virtualmachineinstances/vm/console", url.Values{"join": {"true"}, "tail": {"5"}})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "hello")
		conn.CloseWrite()
		got, err := io.ReadAll(conn)
		if want := "/v1/namespaces/default/virtualmachineinstances/vm/console?join=true&tail=5 hello"; err != nil ||
			string(got) != want {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("the reason of the end", func(t *testing.T) {
		c := newCluster(t, running(), func(w http.ResponseWriter, r *http.Request) {
			conn, err := stream.Accept(w, r, stream.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			conn.CloseWithReason(stream.CodePolicy, "taken over")
		})
		conn, err := c.dial("virtualmachineinstances/vm/vnc", nil)
		if err != nil {
			t.Fatal(err)
		}
		var closed *stream.CloseError
		if _, err := io.ReadAll(conn); !errors.As(err, &closed) || closed.Code != stream.CodePolicy ||
			closed.Reason != "taken over" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("drained", func(t *testing.T) {
		c := newCluster(t, running(), func(w http.ResponseWriter, r *http.Request) {
			conn, err := stream.Accept(w, r, stream.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, "x")
			io.Copy(io.Discard, conn)
		})
		conn, err := c.dial("virtualmachineinstances/vm/console", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		drained := make(chan struct{})
		go func() { c.q.streams.drain(10 * time.Millisecond); close(drained) }()
		var closed *stream.CloseError
		if _, err := io.ReadAll(conn); !errors.As(err, &closed) || closed.Code != stream.CodeGoingAway {
			t.Errorf("got %v", err)
		}
		<-drained
		if _, err := c.dial("virtualmachineinstances/vm/console", nil); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a stream after the end: %v", err)
		}
	})

	without := instance(v1.Running)
	without.Spec.Domain.Devices.AutoattachSerialConsole, without.Spec.Domain.Devices.AutoattachGraphicsDevice =
		new(false), new(false)
	refused := func(w http.ResponseWriter, _ *http.Request) {
		stream.WriteStatus(w, metav1.Status{
			Status: metav1.StatusFailure, Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Message: "in use",
		})
	}
	for name, tc := range map[string]struct {
		objects map[string]any
		path    string
		check   func(error) bool
		message string
	}{
		"not running": {
			pairOf(v1.RunStrategyAlways, instance(v1.Succeeded)), "console", stream.NotRunning,
			"because phase is Succeeded instead of Running",
		},
		"no instance": {
			map[string]any{}, "console", apierrors.IsNotFound, `virtualmachineinstances.kubevirt.io "vm" not found`,
		},
		"failed": {
			pairOf(v1.RunStrategyAlways, instance(v1.Failed)), "console", apierrors.IsConflict,
			"VMI is in failed status",
		},
		"failed, vnc": {
			pairOf(v1.RunStrategyAlways, instance(v1.Failed)), "vnc", stream.NotRunning,
			"because phase is Failed instead of Running",
		},
		"no serial": {
			pairOf(v1.RunStrategyAlways, without.DeepCopy()), "console", apierrors.IsBadRequest,
			"No serial consoles are present",
		},
		"no graphics": {
			pairOf(v1.RunStrategyAlways, without.DeepCopy()), "vnc", apierrors.IsBadRequest,
			"No graphics devices are present",
		},
		"handler says": {running(), "vnc", apierrors.IsServiceUnavailable, "in use"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, tc.objects, refused)
			_, err := c.dial("virtualmachineinstances/vm/"+tc.path, nil)
			if !tc.check(err) || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("no websocket", func(t *testing.T) {
		c := newCluster(t, running(), noNode)
		if code, body := c.do(http.MethodGet, "virtualmachineinstances/vm/console", ""); code != 400 ||
			!strings.Contains(body, "ask for a websocket") {
			t.Errorf("%d %s", code, body)
		}
	})
}

func TestOtherEndpoints(t *testing.T) {
	c := newCluster(t, pairOf(v1.RunStrategyAlways, nil), noNode)
	for _, version := range []string{"v1", "v1alpha3"} {
		base := "/apis/subresources.kubevirt.io/" + version
		code, body := c.do(http.MethodGet, base+"/version", "")
		var info struct{ GitVersion, GoVersion string }
		if err := json.Unmarshal([]byte(body), &info); code != 200 || err != nil || info.GitVersion == "" ||
			info.GoVersion == "" {
			t.Errorf("version: %d %s", code, body)
		}
		code, body = c.do(http.MethodGet, base+"/guestfs", "")
		var image struct{ GsImage string }
		if err := json.Unmarshal([]byte(body), &image); code != 200 || err != nil ||
			image.GsImage != "example.com/libguestfs-tools:v1" {
			t.Errorf("guestfs: %d %s", code, body)
		}
		if code, body := c.do(http.MethodGet, base+"/healthz", ""); code != 200 ||
			!strings.Contains(body, `"connectivity": "ok"`) {
			t.Errorf("healthz: %d %s", code, body)
		}
		code, body = c.do(http.MethodGet, base+"/", "")
		var list metav1.APIResourceList
		if err := json.Unmarshal([]byte(body), &list); code != 200 || err != nil ||
			list.GroupVersion != "subresources.kubevirt.io/"+version ||
			len(list.APIResources) != distinct(c.q.endpoints()) {
			t.Errorf("discovery: %d %s", code, body)
		}
		code, body = c.do(http.MethodGet, base+"/namespaces/default/virtualmachines/vm/expand-spec", "")
		vm := &v1.VirtualMachine{}
		if err := json.Unmarshal([]byte(body), vm); code != 200 || err != nil || vm.Kind != "VirtualMachine" ||
			vm.Name != "vm" {
			t.Errorf("expand-spec: %d %s", code, body)
		}
		code, answered := c.do(http.MethodPut, base+"/namespaces/default/expand-vm-spec",
			`{"kind":"VirtualMachine","spec":{"template":{}}}`)
		if code != 200 || !strings.Contains(answered, `"kind": "VirtualMachine"`) {
			t.Errorf("expand-vm-spec: %d %s", code, answered)
		}
	}
	for body, want := range map[string]string{
		`{"kind":"Pod"}`:                      `Object is not a valid VirtualMachine: its kind is \"Pod\"`,
		`{"kind":"VirtualMachine","spec":{}}`: "Object is not a valid VirtualMachine: spec.template is not set",
		`{"kind":"VirtualMachine","spec":{"instancetype":{"name":"x"},"template":{}}}`:                                  `"message":"virtualmachineclusterinstancetypes.instancetype.kubevirt.io \"x\" not found"`,
		`{"kind":"VirtualMachine","spec":{"preference":{"name":"x","kind":"virtualmachinepreferences"},"template":{}}}`: `"message":"virtualmachinepreferences.instancetype.kubevirt.io \"x\" not found"`,
		`{"kind":"VirtualMachine","metadata":{"namespace":"madethisup"},"spec":{"template":{}}}`:                        `"message":"VM namespace must be empty or default"`,
	} {
		if code, answered := c.do(http.MethodPut, "expand-vm-spec", body); code != 400 ||
			!strings.Contains(answered, want) {
			t.Errorf("%s: %d %s", body, code, answered)
		}
	}
}

// distinct counts the endpoints that discovery tells apart.
func distinct(endpoints []endpoint) int {
	names := map[string]bool{}
	for _, e := range endpoints {
		names[e.name()] = true
	}
	return len(names)
}
