package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/bench/report"
)

// cloneData is how much data a cloned disk has, bytes.
const cloneData = 1 << 30

// cloneSizes are the sizes of the cloned disk in GiB; the largest that the pool has room for is taken. A volume of
// virt-local is promised its whole size: one that does not fit waits for room forever. What a clone takes depends on
// the data.
var cloneSizes = []int64{10, 2}

// clones measures a clone of a stopped VM with a disk that has 1 GiB of data.
func clones(ctx context.Context, b *bench) (rows []Row, err error) {
	const limit, blocks = 2, 10
	size, err := b.cloneSize()
	if err != nil {
		return nil, err
	}
	claim := b.claim("large", fmt.Sprintf("%dGi", size))
	if err := b.Client.Create(ctx, claim); err != nil {
		return nil, err
	}
	defer b.cleanUp(claim, &err)
	if err := b.fill(ctx, claim.Name); err != nil {
		return nil, err
	}
	vm := b.vm("large", v1.RunStrategyHalted)
	plug(vm, claim.Name)
	if err := b.Client.Create(ctx, vm); err != nil {
		return nil, err
	}
	defer b.cleanUp(vm, &err)
	var took []time.Duration
	most := int64(0)
	for i := range b.fewer() {
		before, err := b.poolBytes()
		if err != nil {
			return nil, err
		}
		one, claims, err := b.cloneOnce(ctx, vm.Name, fmt.Sprintf("%s-copy-%d", vm.Name, i))
		if err != nil {
			return nil, err
		}
		after, err := b.poolBytes()
		if err != nil {
			return nil, err
		}
		took, most = append(took, one), max(most, after-before)
		for _, name := range claims {
			if err := b.erase(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	return []Row{
		report.Timed("clone",
			fmt.Sprintf("clone of a VM with 1 GiB of data in %d GiB: created → succeeded, median", size),
			"s", took, .5).
			AtMost(limit),
		Row{Name: "clone-blocks", What: "… new blocks, at most", Unit: "MiB", Value: mebibytes(most)}.AtMost(blocks),
	}, nil
}

// cloneSize is the size of the disk in GiB. It and a clone are promised their size, and the snapshot that a clone is
// made from the data. A clone is erased before the next is made.
func (b *bench) cloneSize() (int64, error) {
	var fs unix.Statfs_t
	dir := filepath.Join("/var/lib/virt-local", b.Name, "csi")
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("look at the pool's file system: %w", err)
	}
	free := int64(fs.Bavail) * fs.Bsize
	need := func(size int64) int64 { return (2*size+2)<<30 + cloneData/2 }
	for _, size := range cloneSizes {
		if need(size) <= free {
			return size, nil
		}
	}
	return 0, fmt.Errorf("the file system of %s has no room for a clone: %d GiB are needed, %d GiB are free", dir,
		need(cloneSizes[len(cloneSizes)-1])>>30, free>>30)
}

// cloneOnce makes a clone, and returns how long that took and its claims, which stay when it is deleted.
func (b *bench) cloneOnce(
	ctx context.Context, source, target string,
) (took time.Duration, claims []string, err error) {
	from, to := vmReference(source), vmReference(target)
	clone := &clonev1beta1.VirtualMachineClone{
		ObjectMeta: metav1.ObjectMeta{Name: target, Namespace: b.namespace},
		Spec:       clonev1beta1.VirtualMachineCloneSpec{Source: &from, Target: &to},
	}
	defer b.cleanUp(clone, &err)
	made := b.vm(target, v1.RunStrategyHalted)
	defer b.cleanUp(made, &err)
	took, err = b.timed(ctx, clone, &clonev1beta1.VirtualMachineCloneList{},
		func() error { return b.Client.Create(ctx, clone) },
		func(e watch.Event) (bool, error) {
			c, ok := e.Object.(*clonev1beta1.VirtualMachineClone)
			if ok && c.Status.Phase == clonev1beta1.Failed {
				return false, fmt.Errorf("clone %s failed: %+v", c.Name, c.Status.Conditions)
			}
			return ok && c.Status.Phase == clonev1beta1.Succeeded, nil
		})
	if err != nil {
		return 0, nil, err
	}
	if err := b.Client.Get(ctx, client.ObjectKeyFromObject(made), made); err != nil {
		return 0, nil, err
	}
	for _, volume := range made.Spec.Template.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			claims = append(claims, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	return took, claims, nil
}

// erase deletes a claim, and waits until its volume is erased.
func (b *bench) erase(ctx context.Context, name string) error {
	claim := &corev1.PersistentVolumeClaim{}
	err := b.Client.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: name}, claim)
	if err != nil {
		return err
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
	_, err = b.timed(ctx, volume, &corev1.PersistentVolumeList{},
		func() error { return b.Client.Delete(ctx, claim) },
		func(e watch.Event) (bool, error) { return e.Type == watch.Deleted, nil })
	return err
}

// fill puts an image of 1 GiB of random data into a claim, which is a sparse volume itself.
func (b *bench) fill(ctx context.Context, claim string) error { return b.fillOn(ctx, claim, "") }

// fillOn is as fill, on a node, for a claim that is made where it is used first; "" for any.
func (b *bench) fillOn(ctx context.Context, claim, node string) (err error) {
	script := fmt.Sprintf("head -c %d /dev/urandom >/data/disk.img", cloneData) // the unmount syncs
	pod := b.pod("fill")
	c := &pod.Spec.Containers[0]
	c.Command = []string{"/bin/sh", "-c", script}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64), FSGroup: new(int64)}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	_, err = b.timed(ctx, pod, &corev1.PodList{}, func() error { return b.Client.Create(ctx, pod) },
		func(e watch.Event) (bool, error) {
			p, ok := e.Object.(*corev1.Pod)
			if ok && p.Status.Phase == corev1.PodFailed {
				return false, fmt.Errorf("pod %s failed: %+v", p.Name, p.Status.ContainerStatuses)
			}
			return ok && p.Status.Phase == corev1.PodSucceeded, nil
		})
	if err != nil {
		return err
	}
	// A stopped VM's claim must be in no pod's use, and must have been unmounted.
	_, err = b.untilGone(ctx, pod)
	return err
}

// poolBytes is how much of the machine's disk virt-local's volumes take: that of the file which has them, or all that
// is used of the file system they are in.
func (b *bench) poolBytes() (int64, error) {
	dir := filepath.Join("/var/lib/virt-local", b.Name, "csi")
	unix.Sync()
	var image unix.Stat_t
	err := unix.Stat(filepath.Join(dir, "pool.img"), &image)
	if err == nil {
		return image.Blocks * 512, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("look at the pool: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("look at the pool's file system: %w", err)
	}
	return int64(fs.Blocks-fs.Bfree) * fs.Bsize, nil
}
