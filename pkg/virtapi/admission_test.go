package virtapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/surface"
)

var hooks = &admission{defaults: func() surface.Defaults {
	return surface.Defaults{NewUUID: func() string { return "5d307ca9-b3ef-428c-8861-06e72d69f223" }}
}, referents: stored{}, holders: noMACs(), definition: someNetworks, instance: func(
	_ context.Context, _, name string,
) (*v1.VirtualMachineInstance, error) {
	vmi := &v1.VirtualMachineInstance{}
	switch name {
	case "vm":
		vmi.Status.Phase = v1.Running
	case "over":
		vmi.Status.Phase = v1.Succeeded
	case "pinned":
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
			Type: v1.VirtualMachineInstanceIsMigratable, Status: "False",
			Reason: v1.VirtualMachineInstanceReasonDisksNotMigratable, Message: "disk a stays",
		}}
	default:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return vmi, nil
}}

const goodMachine = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm, namespace: default}
spec:
  runStrategy: Always
  template:
    spec:
      domain:
        memory: {guest: 1Gi}
        devices: {disks: [{name: root, disk: {bus: virtio}}]}
      tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 9007199254740993}]
      volumes: [{name: root, containerDisk: {image: x}}]
`

const goodInstance = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: vm, namespace: default, finalizers: [example.com/mine]}
spec:
  domain:
    resources: {requests: {memory: 1Gi}}
    devices: {disks: [{name: root}]}
  volumes: [{name: root, containerDisk: {image: x}}]
`

func toJSON(t testing.TB, text string) []byte {
	t.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ask posts an AdmissionReview as the API server does.
func ask(t *testing.T, path, user, object, old string) *admissionv1.AdmissionResponse {
	t.Helper()
	request := &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Namespace: "default",
		Kind:     metav1.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "X"},
		UserInfo: authenticationv1.UserInfo{Username: user},
		Object:   runtime.RawExtension{Raw: toJSON(t, object)},
	}
	if old != "" {
		request.Operation = admissionv1.Update
		request.OldObject.Raw = toJSON(t, old)
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	review(hooks.paths()[path])(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Response == nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	if out.APIVersion != "admission.k8s.io/v1" || out.Kind != "AdmissionReview" || out.Response.UID != "1" {
		t.Errorf("review %s %s, uid %q", out.APIVersion, out.Kind, out.Response.UID)
	}
	return out.Response
}

func TestMutate(t *testing.T) {
	for name, tc := range map[string]struct{ path, object, old, want string }{
		"machine": {
			"/mutate/virtualmachines", goodMachine, "",
			`[{"op":"replace","path":"/spec","value":{"runStrategy":"Always","template":{"spec":{"architecture":"amd64","domain":{"devices":{"disks":[{"disk":{"bus":"virtio"},"name":"root"}]},"firmware":{"uuid":"5d307ca9-b3ef-428c-8861-06e72d69f223"},"machine":{"type":"q35"},"memory":{"guest":"1Gi"}},"tolerations":[{"effect":"NoExecute","key":"a","operator":"Exists","tolerationSeconds":9007199254740993}],"volumes":[{"containerDisk":{"image":"x"},"name":"root"}]}}}}]`,
		},
		"machine, only its labels change": {
			"/mutate/virtualmachines", strings.Replace(goodMachine, "name: vm,", "name: vm, labels: {a: b},", 1),
			goodMachine, ``,
		},
		"machine that cannot be read": {"/mutate/virtualmachines", `{spec: {runStrategy: 7}}`, "", ``},
		"instance that cannot be read": {
			"/mutate/virtualmachineinstances", `{spec: {domain: {memory: {guest: lots}}}}`, "", ``,
		},
		"instance": {
			"/mutate/virtualmachineinstances", goodInstance, "",
			`[{"op":"replace","path":"/spec","value":{"architecture":"amd64","domain":{"cpu":{"cores":1,"sockets":1,"threads":1},"devices":{"disks":[{"disk":{"bus":"sata"},"name":"root"}],"interfaces":[{"masquerade":{},"model":"virtio","name":"default"}]},"features":{"acpi":{"enabled":true}},"firmware":{"uuid":"5d307ca9-b3ef-428c-8861-06e72d69f223"},"machine":{"type":"q35"},"memory":{"guest":"1Gi"},"resources":{"requests":{"memory":"1Gi"}}},"networks":[{"name":"default","pod":{}}],"terminationGracePeriodSeconds":30,"volumes":[{"containerDisk":{"image":"x"},"name":"root"}]}},{"op":"replace","path":"/metadata/finalizers","value":["example.com/mine","kubevirt.io/foregroundDeleteVirtualMachine"]}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, tc.path, "jane", tc.object, tc.old)
			if !got.Allowed || string(got.Patch) != tc.want {
				t.Errorf("allowed %v, patch\n%s\nwant\n%s", got.Allowed, got.Patch, tc.want)
			}
			if (got.PatchType != nil) != (tc.want != "") {
				t.Errorf("patch type %v", got.PatchType)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	machine := strings.Replace(goodMachine, "runStrategy: Always", "running: true", 1)
	got := ask(t, "/validate/virtualmachines", "jane", machine, "")
	if want := []string{"spec.running is deprecated; use spec.runStrategy"}; !got.Allowed ||
		!slices.Equal(got.Warnings, want) {
		t.Errorf("%+v", got)
	}
}

// poolOf is a pool of VMs with a spec.
func poolOf(spec string) string {
	return `{metadata: {name: p}, spec: {selector: {matchLabels: {a: b}}, virtualMachineTemplate: {metadata: {labels: {a: b}}, spec: {` + spec + `}}}}`
}

func TestValidate(t *testing.T) {
	const migrations = "/validate/virtualmachineinstancemigrations"
	const controller = "system:serviceaccount:kubevirt:virt-controller"
	defaulted := strings.Replace(goodInstance, "name: root}", "name: root, disk: {bus: virtio}}", 1)
	defaulted = strings.Replace(defaulted, "domain:\n", "domain:\n    memory: {guest: 1Gi}\n", 1)
	for name, tc := range map[string]struct{ path, user, object, old, want string }{
		"machine": {"/validate/virtualmachines", "jane", goodMachine, "", ``},
		"bad machine": {
			"/validate/virtualmachines", "jane", strings.Replace(goodMachine, "Always", "Often", 1), "",
			`spec.runStrategy: "Often" is not supported; use Always`,
		},
		"machine made bad": {
			"/validate/virtualmachines", "jane", strings.Replace(goodMachine, "Always", "Often", 1), goodMachine,
			`spec.runStrategy: "Often"`,
		},
		"unsupported": {
			"/validate/virtualmachines", "jane",
			strings.Replace(goodMachine, "memory: {guest: 1Gi}",
				"memory: {guest: 1Gi}\n        launchSecurity: {tdx: {}}", 1),
			"", `spec.template.spec.domain.launchSecurity.tdx: not supported by virtkit`,
		},
		"instance": {"/validate/virtualmachineinstances", "jane", defaulted, "", ``},
		"instance, reserved label": {
			"/validate/virtualmachineinstances", "jane",
			strings.Replace(defaulted, "name: vm,", "name: vm, labels: {kubevirt.io/nodeName: x},", 1), "",
			`metadata.labels[kubevirt.io/nodeName]: is set by virtkit itself`,
		},
		"instance by the controller": {
			"/validate/virtualmachineinstances", controller,
			strings.Replace(defaulted, "name: vm,", "name: vm, labels: {kubevirt.io/nodeName: x},", 1), defaulted, ``,
		},
		"instance changed": {
			"/validate/virtualmachineinstances", "jane", strings.Replace(defaulted, "1Gi", "2Gi", 1), defaulted,
			`spec: cannot be changed while the instance exists`,
		},
		"instance placed": {
			"/validate/virtualmachineinstances", controller,
			strings.Replace(defaulted, "domain:\n", "nodeSelector: {a: b}\n  domain:\n", 1), defaulted, ``,
		},
		"instance placed by others": {
			"/validate/virtualmachineinstances", "jane",
			strings.Replace(defaulted, "domain:\n", "nodeSelector: {a: b}\n  domain:\n", 1), defaulted,
			`spec: cannot be changed while the instance exists`,
		},
		"KubeVirt": {
			"/validate/kubevirts", "jane",
			`{metadata: {name: kubevirt, namespace: kubevirt}, spec: {configuration: {machineType: x}}}`, "",
			`spec.configuration.machineType: "x" is not supported`,
		},
		"migration": {
			migrations, "jane", `{metadata: {name: m}, spec: {vmiName: vm, addedNodeSelector: {a: b}}}`, "", ``,
		},
		"migration of nothing": {migrations, "jane", `{metadata: {name: m}, spec: {}}`, "", `spec.vmiName: is not set`},
		"migration of none": {
			migrations, "jane", `{metadata: {name: m, namespace: default}, spec: {vmiName: none}}`, "",
			`spec.vmiName: there is no VirtualMachineInstance "none" in namespace default`,
		},
		"migration by a component": {migrations, controller, `{metadata: {name: m}, spec: {vmiName: none}}`, "", ``},
		"migration after the end": {
			migrations, "jane", `{metadata: {name: m}, spec: {vmiName: over}}`, "",
			`spec.vmiName: Cannot migrate VMI in finalized state`,
		},
		"migration of what stays": {
			migrations, "jane", `{metadata: {name: m}, spec: {vmiName: pinned}}`, "",
			`spec.vmiName: Cannot migrate VMI, Reason: DisksNotLiveMigratable, Message: disk a stays`,
		},
		"migration elsewhere": {
			migrations, "jane",
			`{metadata: {name: m}, spec: {vmiName: vm, sendTo: {migrationID: x, connectURL: there}}}`, "",
			`spec.sendTo: not supported by virtkit`,
		},
		"migration, bad selector": {
			migrations, "jane", `{metadata: {name: m}, spec: {vmiName: vm, addedNodeSelector: {a: "b c"}}}`, "",
			`spec.addedNodeSelector`,
		},
		"migration changed": {
			migrations, "jane", `{metadata: {name: m}, spec: {vmiName: other}}`,
			`{metadata: {name: m}, spec: {vmiName: vm}}`, `spec: cannot be changed`,
		},
		"migration renamed": {
			migrations, "jane", `{metadata: {name: m}, spec: {vmiName: vm}}`,
			`{metadata: {name: m, labels: {kubevirt.io/vmi-name: vm}}, spec: {vmiName: vm}}`,
			`metadata.labels[kubevirt.io/vmi-name]: cannot be changed`,
		},
		"replica set": {
			"/validate/virtualmachineinstancereplicasets", "jane",
			`{metadata: {name: s}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {domain: {memory: {guest: 1Gi}, devices: {}}}}}}`,
			"", ``,
		},
		"replica set of others": {
			"/validate/virtualmachineinstancereplicasets", "jane",
			`{metadata: {name: s}, spec: {selector: {matchLabels: {a: c}}, template: {metadata: {labels: {a: b}}, spec: {domain: {memory: {guest: 1Gi}, devices: {}}}}}}`,
			"", `spec.selector: "a=c" does not match`,
		},
		"pool": {
			"/validate/virtualmachinepools", "jane",
			poolOf(`runStrategy: Always, template: {spec: {domain: {memory: {guest: 1Gi}, devices: {}}}}`), "", ``,
		},
		"pool that makes no VMs": {
			"/validate/virtualmachinepools", "jane",
			poolOf(`template: {spec: {domain: {memory: {guest: 1Gi}, devices: {}}}}`), "",
			`spec.virtualMachineTemplate.spec.runStrategy: is not set; use Always, RerunOnFailure, Manual, Halted or Once`,
		},
		"pool without a template": {
			"/validate/virtualmachinepools", "jane", poolOf(`runStrategy: Always`), "",
			`spec.virtualMachineTemplate.spec.template: is not set`,
		},
		"pool of no instance type": {
			"/validate/virtualmachinepools", "jane",
			poolOf(`runStrategy: Always, instancetype: {name: none}, template: {spec: {domain: {devices: {}}}}`), "",
			``,
		},
		"pool of no such kind": {
			"/validate/virtualmachinepools", "jane",
			poolOf(
				`runStrategy: Always, instancetype: {name: none, kind: x}, template: {spec: {domain: {devices: {}}}}`),
			"", `spec.virtualMachineTemplate.spec.instancetype.kind`,
		},
		"pool labelled": {
			"/validate/virtualmachinepools", "jane", poolOf(`template: {spec: {}}`), poolOf(`template: {spec: {}}`), ``,
		},
		"not readable": {
			"/validate/virtualmachines", "jane", `{spec: {runStrategy: 7}}`, "",
			`the X cannot be read: json: cannot unmarshal number`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, tc.path, tc.user, tc.object, tc.old)
			if tc.want == "" {
				if !got.Allowed {
					t.Errorf("denied: %s", got.Result.Message)
				}
				return
			}
			if got.Allowed || !strings.HasPrefix(got.Result.Message, tc.want) {
				t.Fatalf("allowed %v: %+v", got.Allowed, got.Result)
			}
			if got.Result.Code == 422 &&
				(len(got.Result.Details.Causes) != 1 || got.Result.Details.Kind != "X" ||
					got.Result.Details.Causes[0].Field == "") {
				t.Errorf("causes %+v", got.Result.Details)
			}
		})
	}
}

func TestReviewRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		body   io.Reader
		want   int
	}{
		"GET":     {http.MethodGet, nil, 405},
		"no JSON": {http.MethodPost, strings.NewReader("x"), 400},
		"no request": {
			http.MethodPost, strings.NewReader(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`), 400,
		},
		"old": {
			http.MethodPost,
			strings.NewReader(
				`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"1"}}`),
			400,
		},
		"too large": {http.MethodPost, io.LimitReader(spaces{}, maxReview+10), 400},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			review(hooks.validateMachine)(w, httptest.NewRequest(tc.method, "/validate/virtualmachines", tc.body))
			if w.Code != tc.want || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A quantity that is written as a fraction is one to the API server, too, whose schema takes integers and strings.
func TestFractions(t *testing.T) {
	const resources = `resources: {requests: {cpu: 0.5, memory: 2222222.2}, limits: {cpu: 2, memory: "64Mi"}}`
	for path, object := range map[string]string{
		"/mutate/virtualmachines":         `{metadata: {name: vm}, spec: {runStrategy: Halted, template: {spec: {domain: {devices: {}, ` + resources + `}}}}}`,
		"/mutate/virtualmachineinstances": `{metadata: {name: vm}, spec: {domain: {devices: {}, ` + resources + `}}}`,
	} {
		response := reviewed(t, path, object)
		if !response.Allowed {
			t.Fatalf("%s: %+v", path, response.Result)
		}
		for _, want := range []string{`"cpu":"500m"`, `"memory":"2222222200m"`, `"cpu":2,`, `"memory":"64Mi"`} {
			if !strings.Contains(string(response.Patch), want) {
				t.Errorf("%s: no %s in %s", path, want, response.Patch)
			}
		}
	}
}

// An error that says nothing of the object is no verdict on it.
func TestUnanswered(t *testing.T) {
	kind := schema.GroupResource{Resource: "virtualmachines"}
	for name, tc := range map[string]struct {
		err  error
		code int32
	}{
		"refused":   {errSnapshotsOff, http.StatusBadRequest},
		"not there": {apierrors.NewNotFound(kind, "x"), http.StatusBadRequest},
		"in time":   {fmt.Errorf("read: %w", context.DeadlineExceeded), http.StatusInternalServerError},
		"cut off":   {fmt.Errorf("read: %w", context.Canceled), http.StatusInternalServerError},
		"away": {
			fmt.Errorf("read: %w", &url.Error{Op: "Get", Err: syscall.ECONNREFUSED}), http.StatusInternalServerError,
		},
		"busy":   {apierrors.NewTooManyRequests("later", 1), http.StatusInternalServerError},
		"server": {apierrors.NewServerTimeout(kind, "get", 1), http.StatusInternalServerError},
		"broken": {apierrors.NewInternalError(errors.New("etcd")), http.StatusInternalServerError},
	} {
		w := httptest.NewRecorder()
		review(func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return nil, tc.err
		})(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(reviewOf(t))))
		out := &admissionv1.AdmissionReview{}
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil || out.Response == nil ||
			out.Response.Allowed || out.Response.Result.Code != tc.code {
			t.Errorf("%s: %v, %s", name, err, w.Body)
		}
	}
}
