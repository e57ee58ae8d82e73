//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const snapshotsPath = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots"

// TestCSI takes a cluster with volumes of the old provisioner over to the CSI driver, and uses all that the driver can.
func TestCSI(t *testing.T) {
	binary, err := filepath.Abs("../../bin/virt-local")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{T: t, binary: binary, kubeconfig: filepath.Join(t.TempDir(), "config")}
	m.must("down")
	alone, before := isAlone(), traces(t)
	t.Cleanup(func() {
		if t.Failed() && m.client != nil {
			m.dump()
			out, err := m.run("logs", "csi-controller", "--tail", "50")
			t.Logf("logs csi-controller (%v):\n%s", err, out)
			out, err = m.run("logs", "csi-node", "--tail", "30")
			t.Logf("logs csi-node (%v):\n%s", err, out)
		}
		if _, err := m.run("down"); err != nil {
			t.Error(err)
		}
	})
	m.must("up", "--storage", "hostpath", "--kubeconfig", m.kubeconfig, "--image", busybox(t))
	config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if m.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	m.claim("old", nil)
	m.says("writer", "echo precious > /old/file && sync && cat /old/file", "precious\n", "old")
	if _, err := m.run("up", "--storage", "csi"); err == nil || !strings.Contains(err.Error(), "down --keep-data") {
		t.Errorf("the storage of a cluster that runs is changed: %v", err)
	}
	m.must("down", "--keep-data")
	m.must("up", "--storage", "csi")
	up := m.status()
	if !up.Ready || len(up.Components) != 12 || len(up.Kept) != 0 {
		t.Fatalf("status: %+v", up)
	}
	m.says("reader", "cat /old/file", "precious\n", "old")

	m.pods("1Gi") // claims filesystem and block, used on both nodes
	m.expand()
	m.snapshot()
	m.expandOffline()
	m.classes()
	m.cutPower()
	m.loseController()
	m.restart()
	m.deleteAll()
	m.orphan()
	if t.Failed() {
		return
	}
	m.must("down")
	m.leftNothing(up, before, alone)
}

// claim makes a claim of 16 MiB that every node can use, changed before it is made.
func (m *machine) claim(name string, change func(*corev1.PersistentVolumeClaim)) {
	m.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")},
			},
		},
	}
	if change != nil {
		change(claim)
	}
	if _, err := m.client.CoreV1().PersistentVolumeClaims("default").Create(m.Context(),
		claim, metav1.CreateOptions{}); err != nil {
		m.Fatal(err)
	}
}

// says runs a script in a pod that has the claims at /CLAIM, waits for its end, and compares what it says. The claim
// block is a device that only root may open.
func (m *machine) says(name, script, want string, claims ...string) {
	m.Helper()
	p := pod("node1")
	p.Name, p.Labels, p.Spec.NodeSelector = name, nil, nil
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	c := &p.Spec.Containers[0]
	c.Command, c.ReadinessProbe, c.VolumeDevices, c.VolumeMounts = []string{"sh", "-c", script}, nil, nil, nil
	p.Spec.Volumes = nil
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
		if claim == "block" {
			root, no := int64(0), false
			p.Spec.SecurityContext.RunAsUser, p.Spec.SecurityContext.RunAsNonRoot = &root, &no
			c.VolumeDevices = []corev1.VolumeDevice{{Name: claim, DevicePath: "/dev/block"}}
			continue
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: claim, MountPath: "/" + claim})
	}
	pods := m.client.CoreV1().Pods("default")
	if _, err := pods.Create(m.Context(), p, metav1.CreateOptions{}); err != nil {
		m.Fatal(err)
	}
	m.await("pod "+name+" has ended", 2*time.Minute, func(ctx context.Context) bool {
		now, err := pods.Get(ctx, name, metav1.GetOptions{})
		return err == nil && (now.Status.Phase == corev1.PodSucceeded || now.Status.Phase == corev1.PodFailed)
	})
	if out, err := pods.GetLogs(name, new(corev1.PodLogOptions)).DoRaw(m.Context()); err != nil || string(out) != want {
		m.Errorf("pod %s: %q, %v, want %q", name, out, err, want)
	}
	if err := pods.Delete(m.Context(), name, metav1.DeleteOptions{}); err != nil {
		m.Error(err)
	}
	m.await("pod "+name+" is gone", time.Minute, func(ctx context.Context) bool {
		_, err := pods.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// expand grows volumes that pods use.
func (m *machine) expand() {
	for claim, size := range map[string]string{"filesystem": "1200Mi", "block": "32Mi"} {
		if err := m.resize(claim, size); err != nil {
			m.Fatal(err)
		}
		// The kubelet looks every one or two minutes whether what is mounted is to grow.
		m.await("claim "+claim+" has grown", 4*time.Minute, func(ctx context.Context) bool {
			c, err := m.client.CoreV1().PersistentVolumeClaims("default").Get(ctx, claim, metav1.GetOptions{})
			return err == nil && c.Status.Capacity.Storage().Cmp(resource.MustParse(size)) == 0
		})
	}
	out, err := m.exec("pod-node2",
		"dd if=/dev/zero of=/data/large bs=1M seek=1050 count=20 2>/dev/null && sync && echo written")
	if err != nil || out != "written\n" {
		m.Errorf("write to what has grown: %q, %v", out, err)
	}
	m.says("block-writer", "printf end | dd of=/dev/block bs=1 seek=33554429 conv=notrunc 2>/dev/null && sync && "+
		"dd if=/dev/block bs=1 skip=33554429 2>/dev/null", "end", "block")
}

func (m *machine) resize(claim, size string) error {
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	_, err := m.client.CoreV1().PersistentVolumeClaims("default").
		Patch(m.Context(), claim, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// snapshot takes a snapshot of a volume that is in use, and makes volumes from it and from the volume itself.
func (m *machine) snapshot() {
	if out, err := m.exec("pod-node1", "echo before > /data/file && sync"); err != nil {
		m.Fatalf("%q, %v", out, err)
	}
	m.take("snap", "filesystem")
	if out, err := m.exec("pod-node2", "echo after > /data/file && sync"); err != nil {
		m.Fatalf("%q, %v", out, err)
	}
	group := "snapshot.storage.k8s.io"
	large := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1300Mi")
	}
	m.claim("restored", func(c *corev1.PersistentVolumeClaim) {
		large(c)
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "snap"}
	})
	m.claim("cloned", func(c *corev1.PersistentVolumeClaim) {
		large(c)
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "filesystem"}
	})
	m.says("from-both",
		"cat /restored/file /cloned/file && dd if=/dev/zero of=/cloned/more bs=1M count=100 2>/dev/null && echo more",
		"before\nafter\nmore\n", "restored", "cloned")
}

func (m *machine) take(name, claim string) {
	m.Helper()
	m.askSnapshot(name, claim)
	rest := m.client.CoreV1().RESTClient()
	m.await("snapshot "+name+" is ready", time.Minute, func(ctx context.Context) bool {
		var s volumeSnapshot
		text, err := rest.Get().AbsPath(snapshotsPath, name).DoRaw(ctx)
		return err == nil && json.Unmarshal(text, &s) == nil && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse
	})
}

// classes uses the classes that can do less.
func (m *machine) classes() {
	for _, class := range []string{"local-node", "local-plain"} {
		m.claim(class, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName = &class
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		})
	}
	m.says("in-classes", "echo a > /local-node/a && echo b > /local-plain/b && cat /local-node/a /local-plain/b",
		"a\nb\n", "local-node", "local-plain")
	claim, err := m.client.CoreV1().PersistentVolumeClaims("default").Get(m.Context(), "local-node",
		metav1.GetOptions{})
	if err != nil {
		m.Fatal(err)
	}
	volume, err := m.client.CoreV1().PersistentVolumes().Get(m.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || volume.Spec.NodeAffinity == nil {
		m.Errorf("a volume of local-node is not bound to a node: %+v, %v", volume, err)
	}
	rooms, err := m.client.StorageV1().CSIStorageCapacities("kube-system").List(m.Context(), metav1.ListOptions{})
	if err != nil || len(rooms.Items) != 2 {
		m.Errorf("the room on two nodes: %+v, %v", rooms, err)
	}
	for _, room := range rooms.Items {
		if room.StorageClassName != "local-node" || room.Capacity.Sign() <= 0 || room.NodeTopology == nil {
			m.Errorf("the room on a node: %+v", room)
		}
	}
	if err := m.resize("local-plain", "1Gi"); !apierrors.IsForbidden(err) {
		m.Errorf("local-plain expands: %v", err)
	}
	m.refuseSnapshot("of-plain", "local-plain")
}

// cutPower stops node2, and later kills its init, while its pods have volumes mounted, one of them of that node alone.
// Both times the volumes have their data when it is started again, and the other node uses those that are shared
// meanwhile.
func (m *machine) cutPower() {
	class := "local-node"
	m.claim("own", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName = &class
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	})
	p := pod("node2")
	p.Name, p.Labels = "keeper", nil
	c := &p.Spec.Containers[0]
	c.Command, c.ReadinessProbe, c.VolumeDevices = []string{"sleep", "1000000"}, nil, nil
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "own"},
	}}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	if _, err := m.client.CoreV1().Pods("default").Create(m.Context(), p, metav1.CreateOptions{}); err != nil {
		m.Fatal(err)
	}
	m.await("three pods are Ready", time.Minute, func(ctx context.Context) bool { return m.podsReady(ctx) == 3 })
	all := ""
	for _, end := range []string{"stop", "kill"} {
		all += end + "\n"
		for pod, file := range map[string]string{"keeper": "/data/own", "pod-node2": "/data/shared"} {
			if out, err := m.exec(pod, "echo "+end+" >> "+file+" && sync && cat "+file); err != nil || out != all {
				m.Errorf("%s before the end: %q, %v", pod, out, err)
			}
		}
		before := m.status()
		if end == "stop" {
			m.must("node", "stop", "node2")
		} else if err := syscall.Kill(pidOf(before, "init", "node2"), syscall.SIGKILL); err != nil {
			m.Fatal(err)
		}
		if out, err := m.exec("pod-node1", "cat /data/shared && echo "+end+" > /data/meanwhile && sync"); err != nil ||
			out != all {
			m.Errorf("on the other node, after %s: %q, %v", end, out, err)
		}
		m.must("node", "start", "node2")
		for pod, file := range map[string]string{"keeper": "/data/own", "pod-node2": "/data/shared"} {
			m.await(pod+" has its data after "+end, 2*time.Minute, func(context.Context) bool {
				out, err := m.exec(pod, "cat "+file+" && echo more > /data/more && sync")
				return err == nil && out == all
			})
		}
		if out, err := m.exec("pod-node2", "cat /data/meanwhile"); err != nil || out != end+"\n" {
			m.Errorf("what the other node has written: %q, %v", out, err)
		}
	}
	if err := m.client.CoreV1().Pods("default").Delete(m.Context(), "keeper", metav1.DeleteOptions{}); err != nil {
		m.Fatal(err)
	}
	m.await("its pod is gone", time.Minute, func(ctx context.Context) bool {
		_, err := m.client.CoreV1().Pods("default").Get(ctx, "keeper", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// loseController kills the driver's controller, which comes back by itself.
func (m *machine) loseController() {
	old := pidOf(m.status(), "csi-controller", "")
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		m.Fatal(err)
	}
	m.await("the CSI controller is started again", 30*time.Second, func(context.Context) bool {
		pid := pidOf(m.status(), "csi-controller", "")
		return pid != 0 && pid != old
	})
	m.take("later", "filesystem")
}

// restart takes the cluster down and up again: nodes, controllers, loop devices and mounts are new, data is not.
func (m *machine) restart() {
	m.must("down", "--keep-data")
	m.must("up")
	m.await("the pods are Ready again", 2*time.Minute, func(ctx context.Context) bool { return m.podsReady(ctx) == 2 })
	m.await("they have their data", time.Minute, func(context.Context) bool {
		out, err := m.exec("pod-node2", "cat /data/file /data/node1")
		return err == nil && out == "after\nnode1\n"
	})
	m.says("block-reader", "dd if=/dev/block bs=1 skip=33554429 2>/dev/null", "end", "block")
}

// deleteAll deletes all objects, and finds no data left.
func (m *machine) deleteAll() {
	rest, all := m.client.CoreV1().RESTClient(), metav1.ListOptions{}
	if err := rest.Delete().AbsPath(snapshotsPath).Do(m.Context()).Error(); err != nil {
		m.Fatal(err)
	}
	if err := m.client.CoreV1().Pods("default").DeleteCollection(m.Context(), metav1.DeleteOptions{}, all); err != nil {
		m.Fatal(err)
	}
	if err := m.client.CoreV1().PersistentVolumeClaims("default").DeleteCollection(m.Context(),
		metav1.DeleteOptions{}, all); err != nil {
		m.Fatal(err)
	}
	m.await("volumes are gone with their claims", time.Minute, func(ctx context.Context) bool {
		volumes, err := m.client.CoreV1().PersistentVolumes().List(ctx, all)
		return err == nil && len(volumes.Items) == 0
	})
	m.await("snapshots are gone", time.Minute, func(ctx context.Context) bool {
		text, err := rest.Get().AbsPath("/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents").DoRaw(ctx)
		return err == nil && strings.Contains(string(text), `"items":[]`)
	})
	if s := m.status(); len(s.Kept) != 0 {
		m.Errorf("data is left: %+v", s.Kept)
	}
}

// orphan deletes the object of a volume that is retained: its data stays, is listed, and is removed by the verb.
func (m *machine) orphan() {
	m.claim("retained", nil)
	claims, volumes := m.client.CoreV1().PersistentVolumeClaims("default"), m.client.CoreV1().PersistentVolumes()
	var name string
	m.await("claim retained is bound", time.Minute, func(ctx context.Context) bool {
		c, err := claims.Get(ctx, "retained", metav1.GetOptions{})
		if err == nil {
			name = c.Spec.VolumeName
		}
		return err == nil && c.Status.Phase == corev1.ClaimBound
	})
	retain := []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	if _, err := volumes.Patch(m.Context(), name, types.MergePatchType, retain, metav1.PatchOptions{}); err != nil {
		m.Fatal(err)
	}
	if _, err := m.run("volume", "remove", name); err == nil ||
		!strings.Contains(err.Error(), "is no data without an object") {
		m.Errorf("the data of a volume is removed: %v", err)
	}
	if err := claims.Delete(m.Context(), "retained", metav1.DeleteOptions{}); err != nil {
		m.Fatal(err)
	}
	m.await("the volume is released", time.Minute, func(ctx context.Context) bool {
		v, err := volumes.Get(ctx, name, metav1.GetOptions{})
		return err == nil && v.Status.Phase == corev1.VolumeReleased
	})
	if err := volumes.Delete(m.Context(), name, metav1.DeleteOptions{}); err != nil {
		m.Fatal(err)
	}
	m.await("its data is listed", time.Minute, func(context.Context) bool {
		kept := m.status().Kept
		return len(kept) == 1 && kept[0].Volume == name && kept[0].Bytes > 0
	})
	m.must("volume", "remove", name)
	if kept := m.status().Kept; len(kept) != 0 {
		m.Errorf("it is still there: %+v", kept)
	}
}
