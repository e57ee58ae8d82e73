// Package gather reads the facts that an explanation rests on. What the user may not read is left out and named;
// everything else that fails is an error.
package gather

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/action/events"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// most bounds a list of events, pods or names.
const most = "500"

// Facts reads everything about a VM, or an instance, of a name. That it does not exist is a fact, too; that the user
// may not know whether it does is an error.
func Facts(ctx context.Context, c *client.Client, namespace, name string, now time.Time) (why.Facts, error) {
	g := &gathering{client: c, facts: why.Facts{Now: now, Namespace: namespace, Name: name}}
	f := &g.facts
	vm, vmi := &v1.VirtualMachine{}, &v1.VirtualMachineInstance{}
	g.all(ctx, map[string]func(context.Context) error{
		"virtualmachines": func(ctx context.Context) (err error) {
			vm, err = c.VM(ctx, namespace, name)
			f.NotInstalled = errors.Is(err, action.ErrNotInstalled) || client.Unserved(err)
			return found(err, &vm)
		},
		"virtualmachineinstances": func(ctx context.Context) (err error) {
			vmi, err = c.VMI(ctx, namespace, name)
			return found(err, &vmi)
		},
		"pods of virtkit": func(ctx context.Context) error {
			var list corev1.PodList
			err := c.Read(ctx, "/api/v1/namespaces/"+names.Namespace+"/pods", url.Values{"labelSelector": {
				fmt.Sprintf("%s in (%s,%s,%s)", names.LabelComponent, names.VirtAPI, names.VirtController,
					names.VirtHandler),
			}}, &list)
			f.Stack = list.Items
			return err
		},
		"nodes": func(ctx context.Context) error {
			var list corev1.NodeList
			err := c.Read(ctx, "/api/v1/nodes", nil, &list)
			f.Nodes = list.Items
			return err
		},
		"storageclasses": func(ctx context.Context) error {
			var list storagev1.StorageClassList
			err := c.Read(ctx, "/apis/storage.k8s.io/v1/storageclasses", nil, &list)
			if err == nil {
				f.StorageClasses = append([]storagev1.StorageClass{}, list.Items...)
			}
			return err
		},
		"kubevirts": func(ctx context.Context) error {
			var list v1.KubeVirtList
			err := c.Read(ctx, "/apis/kubevirt.io/v1/namespaces/"+names.Namespace+"/kubevirts", nil, &list)
			if len(list.Items) > 0 {
				f.KubeVirt = &list.Items[0]
			}
			return ignoreAbsent(err)
		},
		"virtualmachineinstancemigrations": func(ctx context.Context) error {
			list, err := c.MigrationList(ctx, namespace,
				metav1.ListOptions{LabelSelector: v1.MigrationSelectorLabel + "=" +
					names.LabelValue(name)})
			if err == nil {
				f.Migrations = list.Items
			}
			return ignoreAbsent(err)
		},
	})
	if g.err != nil {
		return why.Facts{}, g.err
	}
	f.VM, f.VMI = vm, vmi
	if vm == nil && vmi == nil && g.refused != nil {
		return why.Facts{}, g.refused // nobody knows whether it exists
	}
	if f.NotInstalled {
		return *f, nil
	}
	g.second(ctx)
	slices.Sort(f.Unreadable)
	return *f, g.err
}

// second reads what the VM and its instance lead to.
func (g *gathering) second(ctx context.Context) {
	f, c := &g.facts, g.client
	in := "/api/v1/namespaces/" + f.Namespace + "/"
	reads := map[string]func(context.Context) error{}
	if f.VM == nil && f.VMI == nil {
		reads["virtualmachines"] = func(ctx context.Context) error {
			list, err := c.VMList(ctx, f.Namespace, metav1.ListOptions{Limit: 500})
			if err == nil {
				for i := range list.Items {
					f.Others = append(f.Others, list.Items[i].Name)
				}
			}
			return err
		}
		g.namesakes(reads)
		g.all(ctx, reads)
		slices.Sort(f.Namesakes)
		return
	}
	reads["virtualmachinerestores"] = func(ctx context.Context) (err error) {
		f.Restores, err = snapshot.RestoresTo(ctx, c, f.Namespace, f.Name)
		if errors.Is(err, snapshot.ErrNoKinds) {
			return nil
		}
		return ignoreAbsent(err)
	}
	reads["events"] = func(ctx context.Context) error {
		var list corev1.EventList
		err := c.Read(ctx, in+"events", url.Values{"limit": {most}}, &list)
		slices.SortStableFunc(list.Items, func(a, b corev1.Event) int {
			return events.When(&a).Compare(events.When(&b))
		})
		f.Events = list.Items
		return err
	}
	if f.VMI != nil {
		reads["pods"] = func(ctx context.Context) error {
			var list corev1.PodList
			err := c.Read(ctx, in+"pods",
				url.Values{"labelSelector": {v1.CreatedByLabel + "=" + string(f.VMI.UID)}}, &list)
			slices.SortStableFunc(list.Items,
				func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
			f.Pods = list.Items
			return err
		}
	}
	g.firewall(reads)
	g.attachments(reads, in)
	f.Claims, f.References = map[string]*corev1.PersistentVolumeClaim{}, map[string]bool{}
	f.DataVolumes = map[string]*cdiv1.DataVolume{}
	f.Holders = map[string][]string{}
	g.volumes(reads, in)
	g.holders(reads)
	g.matchers(reads)
	g.all(ctx, reads)
	g.copies(ctx)
}

// asking bounds how long the node of a guest is waited for, about what is only a remark.
const asking = 5 * time.Second

// firewall adds a read of the frames that were dropped of a running guest's, where it could send as somebody else. That
// its node does not answer is no error: other facts say so.
func (g *gathering) firewall(reads map[string]func(context.Context) error) {
	f := &g.facts
	if f.VMI == nil || f.VMI.Status.Phase != v1.Running || !why.Guarded(&f.VMI.Spec) {
		return
	}
	reads["virtualmachineinstances/firewall"] = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, asking)
		defer cancel()
		switch found, err := g.client.Firewall(ctx, f.Namespace, f.Name); {
		case err == nil:
			f.Dropped = found.Interfaces
		case apierrors.IsForbidden(err):
			return err
		}
		return nil
	}
}

// attachments adds a read of the pods that hold plugged-in volumes for each migration that has not ended.
func (g *gathering) attachments(reads map[string]func(context.Context) error, in string) {
	f := &g.facts
	for i := range f.Migrations {
		migration := &f.Migrations[i]
		if migration.IsFinal() || migration.UID == "" {
			continue
		}
		reads["pods of "+migration.Name] = func(ctx context.Context) error {
			var list corev1.PodList
			err := g.client.Read(ctx, in+"pods", url.Values{"labelSelector": {
				v1.MigrationJobLabel + "=" + string(migration.UID) + "," + v1.AppLabel + "=" + names.HotplugDisk,
			}}, &list)
			g.mu.Lock()
			defer g.mu.Unlock()
			f.Attachments = append(f.Attachments, list.Items...)
			return err
		}
	}
}

// namesakes adds a read for each other kind that can be explained. One that the user may not read, or the cluster does
// not have, is left out: it is only an offer.
func (g *gathering) namesakes(reads map[string]func(context.Context) error) {
	f := &g.facts
	for short, at := range map[string][2]string{
		sets.Pool.Short:       {sets.Pool.Group, sets.Pool.Resource},
		sets.ReplicaSet.Short: {sets.ReplicaSet.Group, sets.ReplicaSet.Resource},
		Snapshot:              {snapshot.Group, client.Snapshots},
		Restore:               {snapshot.Group, client.Restores},
		Clone:                 {clone.Group, client.Clones},
	} {
		reads[at[1]] = func(ctx context.Context) error {
			_, err := g.client.ReadMetadata(ctx, at[0]+"/namespaces/"+url.PathEscape(f.Namespace)+"/"+at[1]+"/"+
				url.PathEscape(f.Name))
			switch {
			case apierrors.IsForbidden(err):
				return nil
			case err != nil:
				return ignoreAbsent(err)
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			f.Namesakes = append(f.Namesakes, short+"/"+f.Name)
			return nil
		}
	}
}

// volumes adds a read for each object that a volume names.
func (g *gathering) volumes(reads map[string]func(context.Context) error, in string) {
	f, c := &g.facts, g.client
	spec := f.Spec()
	if spec == nil {
		return
	}
	claim := func(name string) {
		reads["persistentvolumeclaims "+name] = func(ctx context.Context) error {
			claim := &corev1.PersistentVolumeClaim{}
			err := c.Read(ctx, in+"persistentvolumeclaims/"+name, nil, claim)
			if err = found(err, &claim); err != nil {
				return err
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			f.Claims[name] = claim
			return nil
		}
	}
	if f.VM != nil {
		if mark := savedmemory.Pending(f.VM); mark != nil {
			claim(mark.Claim)
		}
	}
	for i := range spec.Volumes {
		if name := why.ClaimName(&spec.Volumes[i]); name != "" {
			claim(name)
		}
		if source := spec.Volumes[i].DataVolume; source != nil {
			reads["datavolumes "+source.Name] = func(ctx context.Context) error {
				dv := &cdiv1.DataVolume{}
				err := c.Read(ctx, "/apis/"+cdiv1.SchemeGroupVersion.String()+"/namespaces/"+f.Namespace+
					"/datavolumes/"+source.Name, nil, dv)
				if err = found(err, &dv); err != nil {
					return err
				}
				g.mu.Lock()
				defer g.mu.Unlock()
				f.DataVolumes[source.Name] = dv
				return nil
			}
		}
		for _, ref := range claims.References(&spec.Volumes[i]) {
			if ref.Optional || ref.Kind != "Secret" && ref.Kind != "ConfigMap" {
				continue
			}
			resource := strings.ToLower(ref.Kind) + "s"
			reads[resource+" "+ref.Name] = func(ctx context.Context) error {
				return g.exists(ctx, ref.Kind+"/"+ref.Name, in+resource+"/"+ref.Name)
			}
		}
	}
}

// holders adds a read of the instances that have the claim of a volume which could not be attached.
func (g *gathering) holders(reads map[string]func(context.Context) error) {
	f := &g.facts
	if f.VMI == nil {
		return
	}
	for i := range f.VMI.Spec.Volumes {
		claim := why.ClaimName(&f.VMI.Spec.Volumes[i])
		if volume.Unattached(f.VMI, f.VMI.Spec.Volumes[i].Name) == nil {
			continue
		}
		reads["virtualmachineinstances with "+claim] = func(ctx context.Context) error {
			others, err := volume.Holders(ctx, g.client, f.VMI, claim)
			if err != nil {
				return err
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			f.Holders[claim] = others
			return nil
		}
	}
}

// matchers adds a read for the instancetype and the preference that the VM names.
func (g *gathering) matchers(reads map[string]func(context.Context) error) {
	f := &g.facts
	if f.VM == nil {
		return
	}
	add := func(kind, name, byDefault, namespaced, plural string) {
		if name == "" {
			return
		}
		if kind == "" {
			kind = byDefault
		}
		path := "/apis/" + instancetype.GroupName + "/v1beta1/"
		if strings.EqualFold(kind, namespaced) {
			path += "namespaces/" + f.Namespace + "/"
		}
		reads[plural+" "+name] = func(ctx context.Context) error {
			return g.exists(ctx, kind+"/"+name, path+strings.ToLower(kind)+"s/"+name)
		}
	}
	if m := f.VM.Spec.Instancetype; m != nil {
		add(m.Kind, m.Name, "VirtualMachineClusterInstancetype", "VirtualMachineInstancetype", "instancetypes")
	}
	if m := f.VM.Spec.Preference; m != nil {
		add(m.Kind, m.Name, "VirtualMachineClusterPreference", "VirtualMachinePreference", "preferences")
	}
}

func (g *gathering) exists(ctx context.Context, reference, path string) error {
	_, err := g.client.ReadMetadata(ctx, path)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.facts.References[reference] = err == nil
	return nil
}

// gathering runs reads side by side.
type gathering struct {
	client *client.Client
	facts  why.Facts

	mu  sync.Mutex
	err error
	// refused is why the VM, or its instance, may not be read.
	refused error
}

// all runs the reads, by what they read, and keeps the first error; a refusal is a fact.
func (g *gathering) all(ctx context.Context, reads map[string]func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	for what, read := range reads {
		group.Go(func() {
			err := read(ctx)
			if err == nil {
				return
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			if apierrors.IsForbidden(err) {
				if what == "virtualmachines" || what == "virtualmachineinstances" && g.refused == nil {
					g.refused = err
				}
				if resource, _, named := strings.Cut(what, " "); named && what != "pods of virtkit" {
					what = resource
				}
				if !slices.Contains(g.facts.Unreadable, what) {
					g.facts.Unreadable = append(g.facts.Unreadable, what)
				}
				return
			}
			if g.err == nil {
				g.err = fmt.Errorf("read %s: %w", what, err)
				cancel()
			}
		})
	}
	group.Wait()
}

// found makes of an object that does not exist a nil one. One that may not be read is nil as well.
func found[T any](err error, object **T) error {
	if err != nil {
		*object = nil
	}
	return ignoreAbsent(err)
}

func ignoreAbsent(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
