// Package orphans finds data in a pool that no object of the cluster is for: what a retained volume has left whose
// PersistentVolume was deleted, or what was made after the state that etcd was restored to. Nothing erases it by
// itself.
package orphans

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/driver"
	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
)

// The kinds of data.
const (
	KindVolume   = "volume"
	KindSnapshot = "snapshot"
)

// Orphan is data without an object.
type Orphan struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Bytes is what it takes of the disk, beside what it shares with others.
	Bytes int64 `json:"bytes"`
}

// owners are the handles that objects have.
type owners struct{ volumes, snapshots map[string]bool }

// Find lists the orphans of a pool, volumes first.
func Find(ctx context.Context, config *rest.Config, p *pool.Pool) ([]Orphan, error) {
	// What is in the pool is read first: what is made meanwhile is not in the list, whether it has an object or not.
	volumes, snapshots, err := p.Entries()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	snapshotClient, err := snapshotclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	owned, err := findOwners(ctx, client, snapshotClient)
	if err != nil {
		return nil, err
	}
	return without(volumes, snapshots, owned), nil
}

// without lists what has no owner.
func without(volumes, snapshots map[string]int64, owned owners) []Orphan {
	all := []Orphan{}
	for name, bytes := range volumes {
		if !owned.volumes[name] {
			all = append(all, Orphan{name, KindVolume, bytes})
		}
	}
	for name, bytes := range snapshots {
		if !owned.snapshots[name] {
			all = append(all, Orphan{name, KindSnapshot, bytes})
		}
	}
	slices.SortFunc(all, func(a, b Orphan) int {
		return cmp.Or(strings.Compare(b.Kind, a.Kind), strings.Compare(a.Name, b.Name)) // volumes first
	})
	return all
}

func findOwners(ctx context.Context, client kubernetes.Interface, snapshots snapshotclient.Interface) (owners, error) {
	owned := owners{map[string]bool{}, map[string]bool{}}
	// Claims first: one that gets its volume meanwhile is in one of the lists.
	claims, err := client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return owned, fmt.Errorf("list claims: %w", err)
	}
	for i := range claims.Items {
		owned.volumes["pvc-"+string(claims.Items[i].UID)] = true
	}
	volumes, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return owned, fmt.Errorf("list volumes: %w", err)
	}
	for i := range volumes.Items {
		if source := volumes.Items[i].Spec.CSI; source != nil && ours(source.Driver) {
			owned.volumes[source.VolumeHandle] = true
		}
	}
	contents, err := snapshots.SnapshotV1().VolumeSnapshotContents().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return owned, nil // no CRDs, no snapshots
	}
	if err != nil {
		return owned, fmt.Errorf("list snapshots: %w", err)
	}
	for i := range contents.Items {
		content := &contents.Items[i]
		if !ours(content.Spec.Driver) {
			continue
		}
		// The snapshotter names a snapshot by its VolumeSnapshot before it knows the handle.
		owned.snapshots["snapshot-"+string(content.Spec.VolumeSnapshotRef.UID)] = true
		if content.Status != nil && content.Status.SnapshotHandle != nil {
			owned.snapshots[*content.Status.SnapshotHandle] = true
		}
		if content.Spec.Source.SnapshotHandle != nil {
			owned.snapshots[*content.Spec.Source.SnapshotHandle] = true
		}
	}
	return owned, nil
}

func ours(name string) bool { return name == driver.Name || name == driver.Plain }

// Remove removes the named ones of found, or none when a name is not among them.
func Remove(p *pool.Pool, found []Orphan, names []string) error {
	var chosen []Orphan
	for _, name := range names {
		i := slices.IndexFunc(found, func(o Orphan) bool { return o.Name == name })
		if i < 0 {
			return fmt.Errorf("%q is no data without an object, which is all that can be removed here: virt-local "+
				"status lists it; delete the claim or VolumeSnapshot of anything else", name)
		}
		chosen = append(chosen, found[i])
	}
	for _, o := range chosen {
		remove := p.Remove
		if o.Kind == KindSnapshot {
			remove = p.RemoveSnapshot
		}
		if err := remove(o.Name); err != nil {
			return err
		}
	}
	return nil
}
