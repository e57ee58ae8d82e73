package backup

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const (
	machinesPath = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines"
	claimsPath   = "/api/v1/namespaces/ns/persistentvolumeclaims"
)

// target is a cluster into which exampleFile is imported.
type target struct {
	*clienttest.API
	t    *testing.T
	file *File
	made *Made

	mu sync.Mutex
	// refuses is the answer to the creation of the VM.
	refuses error
	created []string
	deleted []string
	notes   []string
}

func newTarget(t *testing.T) *target {
	t.Helper()
	c := &target{API: clienttest.New(t), t: t, file: exampleFile(t)}
	var err error
	if c.made, err = c.file.Make(Wish{Namespace: "ns", Name: "new"}); err != nil {
		t.Fatal(err)
	}
	c.Put(machinesPath, http.HandlerFunc(c.machines))
	c.Put(claimsPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		claim := &corev1.PersistentVolumeClaim{}
		c.decode(r, claim)
		claim.UID = types.UID("uid-" + claim.Name)
		c.note(&c.created, claim.Name)
		c.answer(w, http.StatusCreated, claim)
		c.claim(claim)
	}))
	return c
}

func (c *target) machines(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("dryRun") == "" {
		if c.refuses != nil {
			status := c.refuses.(apierrors.APIStatus).Status()
			c.answer(w, int(status.Code), &status)
			return
		}
		c.note(&c.created, "VM")
	}
	c.answer(w, http.StatusCreated, c.made.VM)
}

// claim has a claim be there, and its uploads refused.
func (c *target) claim(claim *corev1.PersistentVolumeClaim) {
	c.Put(claimsPath+"/"+claim.Name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			options := &metav1.DeleteOptions{}
			c.decode(r, options)
			if options.Preconditions == nil || *options.Preconditions.UID != claim.UID {
				c.t.Errorf("claim %s is deleted whoever made it: %+v", claim.Name, options)
			}
			c.note(&c.deleted, claim.Name)
		}
		c.answer(w, http.StatusOK, claim)
	}))
	c.Put("/apis/subresources.kubevirt.io/v1/namespaces/ns/persistentvolumeclaims/"+claim.Name+"/upload",
		clienttest.Forbidden("persistentvolumeclaims/upload"))
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

func (c *target) answer(w http.ResponseWriter, code int, with any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(with); err != nil {
		c.t.Error(err)
	}
}

func (c *target) run(dryRun bool) error {
	return Import(c.t.Context(), c.Client(), c.file, c.made, ImportOptions{
		DryRun: dryRun, Patience: time.Second, Show: func(string, int64, int64) {},
		Note: func(text string) { c.note(&c.notes, text) },
	})
}

// filled has claims be there with the disks, as an import that was killed leaves them.
func (c *target) filled() {
	for i, claim := range c.made.Claims {
		there := claim.DeepCopy()
		there.UID = types.UID("uid-" + claim.Name)
		there.Annotations = map[string]string{uploads.AnnotationState: uploads.Encode(uploads.State{
			Phase: uploads.Succeeded, SHA256: c.file.Index.Disks[i].SHA256,
		})}
		c.claim(there)
	}
}

// The claims of an import that fails are deleted, and named.
func TestImportFails(t *testing.T) {
	c := newTarget(t)
	err := c.run(false)
	if !apierrors.IsForbidden(err) || len(c.created) != 2 || len(c.deleted) != 2 {
		t.Errorf("created %v, deleted %v: %v", c.created, c.deleted, err)
	}
	if said := strings.Join(c.notes, "\n"); !strings.Contains(said, "are deleted: "+strings.Join(c.deleted, ", ")) {
		t.Errorf("it says %q", said)
	}

	c = newTarget(t)
	c.filled()
	c.refuses = clienttest.Forbidden("virtualmachines")
	if err := c.run(false); !apierrors.IsForbidden(err) || len(c.created) != 0 || len(c.deleted) != 2 {
		t.Errorf("created %v, deleted %v: %v", c.created, c.deleted, err)
	}
}

// An import that was killed goes on with the claims that it has made; those that have their disk are not sent again.
func TestImportGoesOn(t *testing.T) {
	c := newTarget(t)
	c.filled()
	if err := c.run(false); err != nil {
		t.Fatal(err)
	}
	if len(c.created) != 1 || c.created[0] != "VM" || len(c.deleted) > 0 || len(c.notes) != 2 {
		t.Errorf("created %v, deleted %v, said %q", c.created, c.deleted, c.notes)
	}
}

// What cannot be is seen before anything is made, and a dry run makes nothing.
func TestImportIsRefused(t *testing.T) {
	c := newTarget(t)
	if err := c.run(true); err != nil || len(c.deleted) > 0 {
		t.Errorf("a dry run deleted %v: %v", c.deleted, err)
	}
	for _, r := range c.Asked("/persistentvolumeclaims") {
		if r.URL.Query().Get("dryRun") != "All" {
			t.Errorf("a dry run sends %s", r.URL)
		}
	}

	c = newTarget(t)
	other := c.made.Claims[1].DeepCopy()
	other.Labels = nil
	c.claim(other)
	if err := c.run(false); err == nil || !strings.Contains(err.Error(), "is there already, and not of an import") ||
		len(c.created)+len(c.deleted) > 0 {
		t.Errorf("beside the claim of another: created %v, deleted %v, %v", c.created, c.deleted, err)
	}

	c = newTarget(t)
	c.Put(machinesPath+"/new", c.made.VM)
	if err := c.run(false); err == nil || !strings.Contains(err.Error(), "give another name with --name") ||
		len(c.created) > 0 {
		t.Errorf("with a VM of the name: created %v, %v", c.created, err)
	}
}
