package backup

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const (
	machinesPath = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines"
	claimsPath   = "/api/v1/namespaces/ns/persistentvolumeclaims"
)

// target is a cluster into which exampleFile is imported. It keeps claims as an API server does: with UIDs and
// preconditions.
type target struct {
	*clienttest.API
	t    *testing.T
	file *File
	made *Made

	// refuses is the answer to the creation of the VM, lost says that it is made nevertheless.
	refuses error
	lost    bool
	// lostClaims has claims be made without an answer.
	lostClaims bool
	// leaves is how often a claim that is being deleted is seen before it is gone.
	leaves int
	// uploads is what happens when an upload is asked for, which is refused after it.
	uploads func()

	mu       sync.Mutex
	version  int
	machines map[string]*v1.VirtualMachine
	claims   map[string]*corev1.PersistentVolumeClaim
	created  []string
	deleted  []string
	notes    []string
}

func newTarget(t *testing.T) *target {
	t.Helper()
	c := &target{
		API: clienttest.New(t), t: t, file: exampleFile(t), machines: map[string]*v1.VirtualMachine{},
		claims: map[string]*corev1.PersistentVolumeClaim{}, uploads: func() {},
	}
	c.make()
	c.Put(machinesPath, http.HandlerFunc(c.serveMachines))
	c.Put(machinesPath+"/new", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		vm := c.machines["new"]
		c.mu.Unlock()
		if vm == nil {
			c.refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "virtualmachines"}, "new"))
			return
		}
		c.answer(w, http.StatusOK, vm)
	}))
	c.Put(claimsPath, http.HandlerFunc(c.makeClaim))
	for _, claim := range c.made.Claims {
		name := claim.Name
		c.Put(claimsPath+"/"+name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.serveClaim(w, r, name)
		}))
		c.Put("/apis/subresources.kubevirt.io/v1/namespaces/ns/persistentvolumeclaims/"+name+"/upload",
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				c.uploads()
				c.refuse(w, clienttest.Forbidden("persistentvolumeclaims/upload"))
			}))
	}
	return c
}

// make is what another run of the command begins with.
func (c *target) make() {
	c.t.Helper()
	var err error
	if c.made, err = c.file.Make(Wish{Namespace: "ns", Name: "new"}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *target) serveMachines(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Method == http.MethodGet {
		list := &v1.VirtualMachineList{}
		for _, vm := range c.machines {
			list.Items = append(list.Items, *vm)
		}
		c.answer(w, http.StatusOK, list)
		return
	}
	vm := &v1.VirtualMachine{}
	c.decode(r, vm)
	if dry := r.URL.Query().Get("dryRun") != ""; !dry {
		if c.refuses == nil || c.lost {
			c.machines[vm.Name] = vm
			c.created = append(c.created, "VM")
		}
		if c.refuses != nil {
			c.refuse(w, c.refuses)
			return
		}
	}
	c.answer(w, http.StatusCreated, vm)
}

func (c *target) makeClaim(w http.ResponseWriter, r *http.Request) {
	claim := &corev1.PersistentVolumeClaim{}
	c.decode(r, claim)
	if r.URL.Query().Get("dryRun") == "" {
		c.add(claim)
		c.note(&c.created, claim.Name)
	}
	if c.lostClaims {
		c.refuse(w, apierrors.NewTimeoutError("the request has timed out", 0))
		return
	}
	c.answer(w, http.StatusCreated, claim)
}

func (c *target) serveClaim(w http.ResponseWriter, r *http.Request, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := c.claims[name]
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, name, nil)
	switch {
	case claim != nil && claim.DeletionTimestamp != nil && c.leaves == 0:
		delete(c.claims, name)
		fallthrough
	case claim == nil:
		c.refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "persistentvolumeclaims"}, name))
		return
	case r.Method == http.MethodDelete:
		options := &metav1.DeleteOptions{}
		c.decode(r, options)
		p := options.Preconditions
		if p == nil || p.UID == nil || p.ResourceVersion == nil {
			c.t.Errorf("claim %s is deleted whatever it is: %+v", name, options)
			return
		}
		if *p.UID != claim.UID || *p.ResourceVersion != claim.ResourceVersion {
			c.refuse(w, conflict)
			return
		}
		delete(c.claims, name)
		c.deleted = append(c.deleted, name)
	case r.Method == http.MethodPatch:
		var patch struct {
			Metadata struct {
				UID             types.UID
				ResourceVersion string
				Labels          map[string]*string
				Annotations     map[string]string
			}
		}
		c.decode(r, &patch)
		if patch.Metadata.UID != claim.UID || patch.Metadata.ResourceVersion != claim.ResourceVersion {
			c.refuse(w, conflict)
			return
		}
		for key, value := range patch.Metadata.Labels {
			if value != nil {
				c.t.Errorf("label %s is %s", key, *value)
			}
			delete(claim.Labels, key)
		}
		for key, value := range patch.Metadata.Annotations {
			claim.Annotations[key] = value
		}
		c.version++
		claim.ResourceVersion = fmt.Sprint(c.version)
	}
	if claim.DeletionTimestamp != nil {
		c.leaves--
	}
	c.answer(w, http.StatusOK, claim)
}

// add has a claim be there.
func (c *target) add(claim *corev1.PersistentVolumeClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	claim.UID, claim.ResourceVersion = types.UID(fmt.Sprintf("uid-%d", c.version)), fmt.Sprint(c.version)
	c.claims[claim.Name] = claim.DeepCopy()
}

func (c *target) note(in *[]string, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*in = append(*in, what)
}

func (c *target) decode(r *http.Request, into any) {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		c.t.Error(err)
	}
}

func (c *target) refuse(w http.ResponseWriter, err error) {
	status := err.(apierrors.APIStatus).Status()
	c.answer(w, int(status.Code), &status)
}

func (c *target) answer(w http.ResponseWriter, code int, with any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(with); err != nil {
		c.t.Error(err)
	}
}

func (c *target) run(dryRun bool) error {
	c.make()
	return Import(c.t.Context(), c.Client(), c.file.Payloads(), c.made, ImportOptions{
		DryRun: dryRun, Patience: time.Second, Show: func(string, int64, int64) {},
		Note: func(text string) { c.note(&c.notes, text) },
	})
}

// filled has claims be there with the disks, as an import that was killed leaves them.
func (c *target) filled() {
	for i, claim := range c.made.Claims {
		there := claim.DeepCopy()
		there.Annotations = map[string]string{
			AnnotationRun: "killed",
			uploads.AnnotationState: uploads.Encode(uploads.State{
				Phase: uploads.Succeeded, SHA256: c.file.Index.Disks[i].SHA256,
			}),
		}
		c.add(there)
	}
}

// uses has a VM be there with the file's claims.
func (c *target) uses(name string) {
	vm := c.made.VM.DeepCopy()
	vm.Name = name
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machines[name] = vm
}

func (c *target) expect(created string, deleted int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := strings.Join(c.created, " "); got != created || len(c.deleted) != deleted {
		c.t.Errorf("created %q, deleted %q; want %q and %d", got, c.deleted, created, deleted)
	}
}

const bothClaims = "new-root new-data"

// The claims of an import that fails are deleted, and named.
func TestImportFails(t *testing.T) {
	c := newTarget(t)
	if err := c.run(false); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
	c.expect(bothClaims, 2)
	if said := strings.Join(c.notes, "\n"); !strings.Contains(said, "are deleted: "+strings.Join(c.deleted, ", ")) {
		t.Errorf("it says %q", said)
	}

	c = newTarget(t)
	c.filled()
	c.refuses = clienttest.Forbidden("virtualmachines")
	if err := c.run(false); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
	c.expect("", 2)
}

// An import that was killed goes on with the claims that it has made; those that have their disk are not sent again.
// Once the VM is there no import takes its claims for unfinished ones, also when the VM is gone or has another name.
func TestImportGoesOn(t *testing.T) {
	c := newTarget(t)
	c.filled()
	if err := c.run(false); err != nil {
		t.Fatal(err)
	}
	c.expect("VM", 0)
	if len(c.notes) != 2 {
		t.Errorf("it says %q", c.notes)
	}
	for name, claim := range c.claims {
		if claim.Labels[LabelImport] != "" {
			t.Errorf("claim %s has the label still", name)
		}
	}
	delete(c.machines, "new")
	if err := c.run(false); err == nil || !strings.Contains(err.Error(), "is there already, and not of an import") {
		t.Errorf("with the claims of a VM that was deleted: %v", err)
	}
	c.expect("VM", 0)
}

// A claim that is being deleted, as after an import that was interrupted, is waited for, for a while.
func TestImportWaitsForDeletion(t *testing.T) {
	leaving := func(leaves int) *target {
		c := newTarget(t)
		c.leaves = leaves
		c.filled()
		for _, claim := range c.claims {
			claim.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		return c
	}
	c := leaving(2)
	if err := c.run(false); !apierrors.IsForbidden(err) { // by the upload
		t.Error(err)
	}
	c.expect(bothClaims, 2)
	if len(c.notes) == 0 || c.notes[0] != "claim ns/new-root is being deleted; the import waits for that" {
		t.Errorf("it says %q", c.notes)
	}
	c = leaving(1000)
	err := c.run(false)
	if err == nil || !strings.Contains(err.Error(), "is being deleted, and somebody still has it") {
		t.Error(err)
	}
	c.expect("", 0)
}

// Claims of one class that waits for its first pod come onto one node; those that have a volume, or are of another
// class, are left alone.
func TestImportOntoOneNode(t *testing.T) {
	for name, c := range map[string]struct {
		second func(*corev1.PersistentVolumeClaim)
		want   string
	}{
		"of the same class": {func(*corev1.PersistentVolumeClaim) {}, "node2"},
		"of another class":  {func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = new("b") }, ""},
		"with a volume":     {func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeName = "pv" }, ""},
		"with a node":       {func(p *corev1.PersistentVolumeClaim) { p.Annotations[selectedNode] = "node1" }, "node1"},
	} {
		to := newTarget(t)
		to.filled()
		first, second := to.claims[to.made.Claims[0].Name], to.claims[to.made.Claims[1].Name]
		for _, claim := range to.claims {
			claim.Spec.StorageClassName = new("a")
		}
		first.Annotations[selectedNode] = "node2"
		c.second(second)
		if err := to.run(false); err != nil {
			t.Fatal(err)
		}
		if got := second.Annotations[selectedNode]; got != c.want {
			t.Errorf("%s: the second is for node %q, not %q", name, got, c.want)
		}
	}
}

// Claims that a VM has, whatever their labels say, are neither used nor deleted.
func TestImportLeavesVolumesOfOthers(t *testing.T) {
	c := newTarget(t)
	c.filled()
	c.uses("renamed")
	if err := c.run(false); err == nil || !strings.Contains(err.Error(), "is a volume of VM renamed") ||
		len(c.notes) > 0 {
		t.Errorf("%v, said %q", err, c.notes)
	}
	c.expect("", 0)

	c = newTarget(t)
	c.uploads = func() { c.uses("quick") }
	if err := c.run(false); err == nil || !strings.Contains(err.Error(), "is left: VM quick has it as a volume") {
		t.Error(err)
	}
	c.expect(bothClaims, 0)
}

// Of two imports of one file and VM one goes on with the claims of the other, which deletes nothing then.
func TestImportIsTakenOver(t *testing.T) {
	c := newTarget(t)
	c.uploads = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, claim := range c.claims {
			claim.Annotations[AnnotationRun] = "another"
		}
	}
	if err := c.run(false); err == nil || !strings.Contains(err.Error(), "another import has taken it") {
		t.Error(err)
	}
	c.expect(bothClaims, 0)
}

// When the server does not answer, what it has made is found out: its own is deleted, or used.
func TestImportUnanswered(t *testing.T) {
	c := newTarget(t)
	c.lostClaims = true
	if err := c.run(false); !apierrors.IsTimeout(err) {
		t.Error(err)
	}
	c.expect("new-root", 1)

	c = newTarget(t)
	c.filled()
	c.refuses, c.lost = apierrors.NewTimeoutError("the request has timed out", 0), true
	if err := c.run(false); err != nil {
		t.Errorf("the VM is there: %v", err)
	}
	c.expect("VM", 0)

	c = newTarget(t)
	c.filled()
	c.refuses = apierrors.NewTimeoutError("the request has timed out", 0)
	if err := c.run(false); !apierrors.IsTimeout(err) {
		t.Errorf("the VM is not there: %v", err)
	}
	c.expect("", 2)
}

// What cannot be is seen before anything is made, and a dry run makes nothing.
func TestImportIsRefused(t *testing.T) {
	c := newTarget(t)
	if err := c.run(true); err != nil {
		t.Error(err)
	}
	c.expect("", 0)
	for _, r := range c.Asked("/persistentvolumeclaims") {
		if r.URL.Query().Get("dryRun") != "All" {
			t.Errorf("a dry run sends %s", r.URL)
		}
	}

	c = newTarget(t)
	other := c.made.Claims[1].DeepCopy()
	other.Labels = nil
	c.add(other)
	if err := c.run(false); err == nil || !strings.Contains(err.Error(), "is there already, and not of an import") {
		t.Errorf("beside the claim of another: %v", err)
	}
	c.expect("", 0)

	c = newTarget(t)
	c.uses("new")
	if err := c.run(false); err == nil || !strings.Contains(err.Error(), "give another name with --name") {
		t.Errorf("with a VM of the name: %v", err)
	}
	c.expect("", 0)
}
