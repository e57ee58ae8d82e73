package evacuate

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// cluster is one whose guests do at once what their evictions lead to, but for those that are stuck.
type cluster struct {
	mu    sync.Mutex
	vmis  map[string]*v1.VirtualMachineInstance
	stuck map[string]bool
	// silent is what Evict answers of all, as when the API server does not.
	silent   error
	cordoned []string
	evicted  []string
	dry      bool
	// made are the migrations with disks that were made. The guest of one moves at once, unless failed says why not.
	made   []string
	failed string
}

func (c *cluster) Read(_ context.Context, path string, _ url.Values, into any) error {
	m, ok := into.(*v1.VirtualMachineInstanceMigration)
	if !ok || !strings.HasSuffix(path, "/virtualmachineinstancemigrations/made") {
		return errors.New("not asked")
	}
	if c.failed != "" {
		m.Status.Phase = v1.MigrationFailed
		m.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{FailureReason: c.failed}
	}
	m.Annotations = map[string]string{
		volumemigration.CopiedAnnotation: `[{"volume":"data","from":"c","to":"c-m1"}]`,
	}
	return nil
}

func (c *cluster) CreateTyped(
	_ context.Context, _, resource string, object, into metav1.Object, dryRun bool,
) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := object.(*v1.VirtualMachineInstanceMigration)
	if resource != "virtualmachineinstancemigrations" || !volumemigration.WithDisks(m) {
		return errors.New("a migration with disks is to be made")
	}
	c.made, c.dry = append(c.made, m.Spec.VMIName), dryRun
	into.SetName("made")
	if c.failed == "" && !dryRun {
		vmi := c.vmis[m.Spec.VMIName].DeepCopy()
		vmi.Status.NodeName = "two"
		c.vmis[m.Spec.VMIName] = vmi
	}
	return nil
}

func (*cluster) VMList(context.Context, string, metav1.ListOptions) (*v1.VirtualMachineList, error) {
	return nil, errors.New("not asked")
}

func (*cluster) KubeVirtList(context.Context) (*v1.KubeVirtList, error) {
	return nil, errors.New("not asked")
}

func (c *cluster) VMIList(_ context.Context, _ string, opts metav1.ListOptions,
) (*v1.VirtualMachineInstanceList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := &v1.VirtualMachineInstanceList{}
	for _, vmi := range c.vmis {
		if opts.LabelSelector == v1.NodeNameLabel+"="+vmi.Status.NodeName {
			list.Items = append(list.Items, *vmi)
		}
	}
	return list, nil
}

func (c *cluster) VMI(_ context.Context, _, name string) (*v1.VirtualMachineInstance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if vmi := c.vmis[name]; vmi != nil {
		return vmi.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "virtualmachineinstances"}, name)
}

func (c *cluster) Cordon(_ context.Context, node string, _ bool) error {
	c.cordoned = append(c.cordoned, node)
	return nil
}

func (c *cluster) Evict(_ context.Context, _, pod string, dryRun bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := strings.TrimPrefix(pod, "virt-launcher-")
	c.evicted = append(c.evicted, name)
	c.dry = dryRun
	vmi := c.vmis[name].DeepCopy()
	denied := apierrors.NewTooManyRequests("Eviction triggered evacuation of VMI", 0)
	switch {
	case c.silent != nil:
		return c.silent
	case c.stuck[name]:
		return denied
	case strings.HasPrefix(name, "moves"):
		vmi.Status.NodeName = "two"
		c.vmis[name] = vmi
		return denied
	case strings.HasPrefix(name, "restarts"):
		vmi.UID, vmi.Status.NodeName = "new", "two"
		c.vmis[name] = vmi
		return nil
	case strings.HasPrefix(name, "ends"):
		delete(c.vmis, name)
		return nil
	}
	return apierrors.NewTooManyRequests("it is not live-migratable", 0)
}

func start(guests map[string]v1.EvictionStrategy) (*cluster, *Report) {
	f := Facts{Node: "one", VMs: map[string]*v1.VirtualMachine{}}
	f.Nodes = append(f.Nodes, node("one", "8Gi"), node("two", "8Gi"))
	for name, strategy := range guests {
		add(&f, name, strategy)
		if strings.HasPrefix(name, "stays") {
			tied(&f.VMIs[len(f.VMIs)-1], nil, nil)
		}
		if strings.HasPrefix(name, "ends") {
			manual(nil, nil, f.VMs["ns/"+name])
		}
	}
	c := &cluster{vmis: map[string]*v1.VirtualMachineInstance{}, stuck: map[string]bool{}}
	for i := range f.VMIs {
		c.vmis[f.VMIs[i].Name] = &f.VMIs[i]
	}
	return c, NewPlan(f)
}

func states(r *Report) map[string]State {
	out := map[string]State{}
	for _, g := range r.Guests {
		out[g.Name] = g.State
	}
	return out
}

func TestRun(t *testing.T) {
	c, plan := start(map[string]v1.EvictionStrategy{
		"moves":    v1.EvictionStrategyLiveMigrate,
		"restarts": v1.EvictionStrategyNone,
		"ends":     v1.EvictionStrategyNone,
	})
	notified := 0
	r, err := Run(t.Context(), c, plan,
		Options{Wait: true, Interval: time.Millisecond, Now: time.Now, Notify: func(*Report) { notified++ }})
	if got := states(r); err != nil || got["moves"] != Left || got["restarts"] != Left || got["ends"] != Stopped {
		t.Errorf("%v, %v", got, err)
	}
	if r.Planned || !r.Cordoned || len(c.cordoned) != 1 || notified < 2 || !plan.Planned || plan.Guests[0].State != "" {
		t.Errorf("report %+v, notified %d times, plan %+v", r, notified, plan)
	}
}

func TestRunRefused(t *testing.T) {
	c, plan := start(map[string]v1.EvictionStrategy{
		"moves": v1.EvictionStrategyLiveMigrate,
		"stays": v1.EvictionStrategyLiveMigrate,
	})
	r, err := Run(t.Context(), c, plan, Options{Wait: true, NoCordon: true, Interval: time.Millisecond, Now: time.Now})
	if got := states(r); err == nil ||
		!strings.Contains(err.Error(), "1 of the 2 guests of node one cannot leave it") || got["moves"] != Left ||
		got["stays"] != Refused {
		t.Errorf("%v, %v", got, err)
	}
	if len(c.cordoned) != 0 {
		t.Error("cordoned")
	}
}

// One that is denied is asked for again, and the time is up at some time.
func TestRunTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, plan := start(map[string]v1.EvictionStrategy{"moves": v1.EvictionStrategyLiveMigrate})
		c.stuck["moves"] = true
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		now := time.Now()
		r, err := Run(ctx, c, plan, Options{
			Wait: true, Interval: time.Millisecond, Now: func() time.Time { now = now.Add(time.Second); return now },
		})
		if !errors.Is(err, action.ErrTimeout) || states(r)["moves"] != Asked || len(c.evicted) < 2 {
			t.Errorf("%v, %v, %d evictions", states(r), err, len(c.evicted))
		}
	})
}

func TestRunDry(t *testing.T) {
	c, plan := start(map[string]v1.EvictionStrategy{"moves": v1.EvictionStrategyLiveMigrate})
	if _, err := Run(t.Context(), c, plan, Options{DryRun: true, Wait: true, Now: time.Now}); err != nil || !c.dry ||
		len(c.cordoned) != 0 {
		t.Errorf("%v, dry %t, cordoned %v", err, c.dry, c.cordoned)
	}
}

// A failed migration is reported, and one from before is not.
func TestStill(t *testing.T) {
	e := &evacuation{report: &Report{Node: "one"}}
	state := func(uid types.UID, failed bool) *v1.VirtualMachineInstance {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
			MigrationUID: uid, SourceNode: "one", TargetNode: "two", Failed: failed, FailureReason: "no memory",
		}
		return vmi
	}
	g := &Guest{State: Asked, vmi: state("old", true)}
	if e.still(g, state("old", true)); g.Reason != "" {
		t.Errorf("one from before: %+v", g)
	}
	if e.still(g, state("new", false)); g.State != Moving || g.Target != "two" {
		t.Errorf("under way: %+v", g)
	}
	if e.still(g, state("new", true)); g.State != Asked || !strings.Contains(g.Reason, "no memory") {
		t.Errorf("failed: %+v", g)
	}
}

// An API server that does not answer has refused nothing: the guests may leave, and are asked again.
func TestUnanswered(t *testing.T) {
	for name, silent := range map[string]error{
		"no answer":   &url.Error{Op: "Post", URL: "https://10.0.0.1/api", Err: context.DeadlineExceeded},
		"unavailable": apierrors.NewServiceUnavailable("etcd is away"),
	} {
		c, plan := start(map[string]v1.EvictionStrategy{"moves": v1.EvictionStrategyLiveMigrate})
		c.silent = silent
		report, err := Run(t.Context(), c, plan, Options{Now: time.Now})
		if g := report.Guests[0]; g.State != Asked || strings.Contains(g.Reason, "http") {
			t.Errorf("%s: %s, %s: %v", name, g.State, g.Reason, err)
		}
	}
	c, plan := start(map[string]v1.EvictionStrategy{"moves": v1.EvictionStrategyLiveMigrate})
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	_, err := Run(ctx, c, plan, Options{Now: time.Now, Wait: true})
	if err == nil || !errors.Is(err, action.ErrTimeout) ||
		!strings.Contains(err.Error(), "guests have not left it yet, and it is cordoned") {
		t.Errorf("%v", err)
	}
}

// A guest that only its disk keeps moves with it, by a migration and not an eviction; one that fails is the end of it.
func TestRunWithDisks(t *testing.T) {
	for _, failed := range []string{"", "exceeded quota"} {
		f := Facts{Node: "one", VMs: map[string]*v1.VirtualMachine{}, WithDisks: true}
		f.Nodes = append(f.Nodes, node("one", "8Gi"), node("two", "8Gi"))
		add(&f, "disk", v1.EvictionStrategyLiveMigrate, onDisk)
		c := &cluster{vmis: map[string]*v1.VirtualMachineInstance{"disk": &f.VMIs[0]}, failed: failed}
		r, err := Run(t.Context(), c, NewPlan(f), Options{Wait: true, Interval: time.Millisecond, Now: time.Now})
		want, reason := Left, ""
		if failed != "" {
			want, reason = Refused, "its migration made failed: exceeded quota"
		}
		if g := r.Guests[0]; g.State != want || g.Reason != reason || (err != nil) != (failed != "") {
			t.Errorf("%q: %+v, %v", failed, g, err)
		}
		if copied := r.Guests[0].Copied; len(copied) > 0 != (failed == "") || failed == "" && copied[0].From != "c" {
			t.Errorf("%q: copied %+v", failed, copied)
		}
		if len(c.made) != 1 || len(c.evicted) > 0 || c.dry {
			t.Errorf("%q: made %v, evicted %v", failed, c.made, c.evicted)
		}
	}
}

// A guest that was made anew under its name since the plan is not moved with its disks.
func TestRunSparesAnother(t *testing.T) {
	f := Facts{Node: "one", VMs: map[string]*v1.VirtualMachine{}, WithDisks: true}
	f.Nodes = append(f.Nodes, node("one", "8Gi"), node("two", "8Gi"))
	add(&f, "disk", v1.EvictionStrategyLiveMigrate, onDisk)
	another := f.VMIs[0].DeepCopy()
	another.UID = "another"
	c := &cluster{vmis: map[string]*v1.VirtualMachineInstance{"disk": another}}
	r, err := Run(t.Context(), c, NewPlan(f), Options{Now: time.Now})
	const spared = "it is gone, and another of its name stays as it is"
	if g := r.Guests[0]; err == nil || g.State != Refused || g.Reason != spared {
		t.Errorf("%+v, %v", g, err)
	}
	if len(c.made) > 0 {
		t.Errorf("made %v", c.made)
	}
}
