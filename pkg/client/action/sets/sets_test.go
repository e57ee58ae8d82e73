package sets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// server has objects by path and notes what is asked of it.
type server struct {
	objects map[string]string
	asked   []string
	// merge, where it is set, answers a patch.
	merge func() error
}

func (s *server) Read(_ context.Context, path string, query url.Values, into any) error {
	s.asked = append(s.asked, "GET "+path+"?"+query.Encode())
	text, ok := s.objects[path]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, path)
	}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func (s *server) MergeObject(_ context.Context, group, namespace, resource, name, subresource string, patch []byte,
	dryRun bool,
) (*unstructured.Unstructured, error) {
	s.asked = append(s.asked,
		fmt.Sprintf("PATCH %s %s %s/%s/%s %s %t", group, namespace, resource, name, subresource, patch, dryRun))
	if s.merge != nil {
		return nil, s.merge()
	}
	return &unstructured.Unstructured{}, nil
}

const (
	poolPath = "/apis/pool.kubevirt.io/v1beta1/namespaces/ns/virtualmachinepools"
	rss      = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstancereplicasets"
	three    = "{apiVersion: pool.kubevirt.io/v1beta1, kind: VirtualMachinePool, metadata: {name: db, namespace: ns, " +
		"resourceVersion: '7'}, spec: {replicas: 3}, status: {replicas: 3, readyReplicas: 2}}"
)

func TestScale(t *testing.T) {
	two, four := int32(3), int32(4)
	for name, tc := range map[string]struct {
		current *int32
		dryRun  bool
		want    string
		err     string
	}{
		"any":                {nil, false, `{"spec":{"replicas":5}} false`, ""},
		"dry run":            {nil, true, `{"spec":{"replicas":5}} true`, ""},
		"what it must be":    {&two, false, `{"metadata":{"resourceVersion":"7"},"spec":{"replicas":5}} false`, ""},
		"what it is not any": {&four, false, "", "vmpool ns/db: it asks for 3 replicas and not 4"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{objects: map[string]string{poolPath + "/db": three}}
			before, err := Scale(t.Context(), s,
				Request{Kind: Pool, Namespace: "ns", Name: "db", Replicas: 5, Current: tc.current, DryRun: tc.dryRun})
			if tc.err != "" {
				var conflict *ConflictError
				if err == nil || err.Error() != tc.err || !errors.As(err, &conflict) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || before.Desired != 3 {
				t.Fatalf("%+v, %v", before, err)
			}
			if want := "PATCH /apis/pool.kubevirt.io/v1beta1 ns virtualmachinepools/db/scale " +
				tc.want; s.asked[1] != want {
				t.Errorf("got  %s\nwant %s", s.asked[1], want)
			}
		})
	}
}

// TestScaleOfASetThatIsWritten scales a set with --current-replicas while its controller writes its status.
func TestScaleOfASetThatIsWritten(t *testing.T) {
	current := int32(3)
	conflict := apierrors.NewConflict(schema.GroupResource{}, "db", errors.New("modified"))
	for name, tc := range map[string]struct {
		then string // the set as it is found after the first conflict
		want string
	}{
		"status": {strings.Replace(three, "'7'", "'8'", 1), ""},
		"another": {
			strings.Replace(three, "replicas: 3}, status", "replicas: 4}, status", 1),
			"vmpool ns/db: it asks for 4 replicas and not 3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{objects: map[string]string{poolPath + "/db": three}}
			s.merge = func() error {
				s.merge = nil
				s.objects[poolPath+"/db"] = tc.then
				return conflict
			}
			_, err := Scale(t.Context(), s,
				Request{Kind: Pool, Namespace: "ns", Name: "db", Replicas: 5, Current: &current})
			if tc.want != "" {
				if err == nil || err.Error() != tc.want {
					t.Error(err)
				}
				return
			}
			last := s.asked[len(s.asked)-1]
			if err != nil || !strings.Contains(last, `{"metadata":{"resourceVersion":"8"},"spec":{"replicas":5}}`) {
				t.Errorf("%v: %s", err, last)
			}
		})
	}
}

func TestFind(t *testing.T) {
	both := &server{objects: map[string]string{poolPath + "/db": three, rss + "/db": three, rss + "/web": three}}
	for name, want := range map[string]string{
		"web":  "vmirs",
		"db":   "ns/db is a pool and a replica set; say vmpool/db or vmirs/db",
		"none": `pool or replica set "none" not found in namespace "ns"`,
	} {
		kind, err := Find(t.Context(), both, "ns", name)
		got := kind.Short
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if _, err := Find(t.Context(), both, "ns", "none"); !errors.Is(err, action.ErrNotFound) {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	s := &server{objects: map[string]string{
		"/apis/kubevirt.io/v1/virtualmachineinstancereplicasets": `{kind: List, apiVersion: v1, items: [
			{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstanceReplicaSet, metadata: {name: b, namespace: x}, status: {conditions: [{type: ReplicaPaused, status: "True"},
			  {type: ReplicaFailure, status: "True", reason: FailedCreate, message: quota}, {type: Other, status: "True"}]}},
			{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstanceReplicaSet, metadata: {name: c, namespace: a}, spec: {replicas: 0}, status: {replicas: 1, readyReplicas: 1}}]}`,
	}}
	list, err := List(t.Context(), s, ReplicaSet, "", "app=web", "")
	if err != nil {
		t.Fatal(err)
	}
	var rows []Row
	for i := range list.Items {
		rows = append(rows, RowOf(&list.Items[i]))
	}
	want := []Row{
		{Namespace: "a", Name: "c", Current: 1, Ready: 1},
		{
			Namespace: "x", Name: "b", Desired: 1, Paused: true, Failure: "FailedCreate: quota",
			Note: "paused; FailedCreate: quota",
		},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
	const wanted = "GET /apis/kubevirt.io/v1/virtualmachineinstancereplicasets?labelSelector=app%3Dweb"
	if s.asked[0] != wanted {
		t.Error(s.asked[0])
	}
}

// TestKeepsExcess says of a pool that has too many VMs that it deletes none of them.
func TestKeepsExcess(t *testing.T) {
	for spec, want := range map[string][2]string{
		"{replicas: 1}": {},
		"{replicas: 1, scaleInStrategy: {proactive: {}}}":     {},
		"{replicas: 2, scaleInStrategy: {opportunistic: {}}}": {"opportunistic", ""},
		"{replicas: 1, scaleInStrategy: {opportunistic: {}}}": {
			"opportunistic", "its scaleInStrategy is opportunistic: it deletes no VM",
		},
		"{replicas: 1, scaleInStrategy: {unmanaged: {}}}": {
			"unmanaged", "its scaleInStrategy is unmanaged: it deletes no VM",
		},
	} {
		pool := "{apiVersion: pool.kubevirt.io/v1beta1, kind: VirtualMachinePool, metadata: {name: db, " +
			"namespace: ns}, spec: " + spec + ", status: {replicas: 2}}"
		s := &server{objects: map[string]string{poolPath + "/db": pool}}
		set, err := Get(t.Context(), s, Pool, "ns", "db")
		if err != nil {
			t.Fatal(err)
		}
		if row := RowOf(set); row.KeepsExcess != want[0] || row.Note != want[1] {
			t.Errorf("%s: %+v", spec, row)
		}
	}
}

func TestWait(t *testing.T) {
	const vmis = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances"
	const deleted = "deletionTimestamp: '2026-01-02T03:04:05Z', "
	member := func(uid string) string {
		return "{metadata: {name: x, " + deleted + "ownerReferences: [{uid: " + uid +
			", controller: true, apiVersion: a, kind: b, name: c}]}}"
	}
	web := "{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstanceReplicaSet, metadata: {name: web, " +
		"namespace: ns, uid: web}, spec: {replicas: 0}, status: {replicas: 0, readyReplicas: 0}}"
	for name, tc := range map[string]struct {
		kind     Kind
		name     string
		replicas int64
		objects  map[string]string
		err      string
	}{
		"ready": {
			ReplicaSet, "web", 3,
			map[string]string{
				rss + "/web": strings.Replace(three, "readyReplicas: 2", "readyReplicas: 3", 1),
				vmis:         "{items: []}",
			},
			"",
		},
		"not ready": {
			Pool, "db", 3,
			map[string]string{poolPath + "/db": three, strings.Replace(vmis, "instances", "s", 1): "{items: []}"},
			"waiting for vmpool ns/db to have 3 replicas: it has 3 of 3, 2 of them ready",
		},
		"none left": {
			ReplicaSet, "web", 0, map[string]string{rss + "/web": web, vmis: "{items: [" + member("other") + "]}"}, "",
		},
		"one goes": {
			ReplicaSet, "web", 0,
			map[string]string{rss + "/web": web, vmis: "{items: [" + member("web") + "]}"},
			"to have 0 replicas: it has 0 of 0, 0 of them ready, and 1 is being stopped",
		},
		"two go": {
			ReplicaSet, "web", 0,
			map[string]string{rss + "/web": web, vmis: "{items: [" + member("web") + ", " + member("web") + "]}"},
			"it has 0 of 0, 0 of them ready, and 2 are being stopped",
		},
		"one comes": { // the status does not count it yet
			ReplicaSet, "web", 1,
			map[string]string{
				rss + "/web": strings.Replace(web, "spec: {replicas: 0}", "spec: {replicas: 1}", 1),
				vmis:         "{items: [" + strings.Replace(member("web"), deleted, "", 1) + "]}",
			},
			"waiting for vmirs ns/web to have 1 replica: it has 0 of 1, 0 of them ready$",
		},
	} {
		var set *unstructured.Unstructured
		var err error
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			set, err = Wait(ctx, &server{objects: tc.objects}, tc.kind, "ns", tc.name, tc.replicas)
		})
		if set == nil || tc.err == "" && err != nil ||
			tc.err != "" && (!errors.Is(err, action.ErrTimeout) || !strings.Contains(err.Error()+"$", tc.err)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := Wait(ctx, hanging{}, Pool, "ns", "db", 3); err == nil ||
		!strings.HasSuffix(err.Error(),
			"timed out waiting for vmpool ns/db to have 3 replicas: the cluster gave no answer") {
		t.Errorf("a cluster that hangs: %v", err)
	}
}

// TestCanBeReady refuses to wait for members that nobody starts.
func TestCanBeReady(t *testing.T) {
	with := func(spec string) string {
		return strings.Replace(three, "spec: {", "spec: {virtualMachineTemplate: {spec: "+spec+"}, ", 1)
	}
	for _, tc := range []struct {
		spec     string
		replicas int64
		ready    bool
	}{
		{"{runStrategy: Always}", 5, true},
		{"{runStrategy: Manual}", 5, true}, // somebody may start them
		{"{running: true}", 5, true},
		{"{}", 5, true},
		{"{runStrategy: Halted}", 5, false},
		{"{running: false}", 3, false},
		{"{runStrategy: Halted}", 2, true},
	} {
		s := &server{objects: map[string]string{poolPath + "/db": with(tc.spec)}}
		err := CanBeReady(t.Context(), s, Pool, "ns", "db", tc.replicas)
		if (err == nil) != tc.ready || err != nil && !errors.Is(err, ErrNeverReady) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	s := &server{objects: map[string]string{
		poolPath + "/db": strings.Replace(with("{runStrategy: Halted}"), "readyReplicas: 2", "readyReplicas: 0", 1),
	}}
	if err := CanBeReady(t.Context(), s, Pool, "ns", "db", 1); err != nil {
		t.Errorf("fewer members, of which none is new: %v", err)
	}
}

// hanging answers nothing.
type hanging struct{ API }

func (hanging) Read(ctx context.Context, _ string, _ url.Values, _ any) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestKindOf(t *testing.T) {
	for word, want := range map[string]string{
		"vmpool": "vmpool", "POOLS": "vmpool", "virtualmachinepools.pool.kubevirt.io": "vmpool", "vmirs": "vmirs",
		"virtualmachineinstancereplicaset": "vmirs", "vm": "",
	} {
		if kind, ok := KindOf(word); kind.Short != want || ok != (want != "") {
			t.Errorf("%s: %s", word, kind.Short)
		}
	}
}
