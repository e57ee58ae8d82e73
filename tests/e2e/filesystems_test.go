//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
)

// withFilesystem adds a volume that the guest has as a file system.
func withFilesystem(name string, source v1.VolumeSource) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Domain.Devices.Filesystems = append(spec.Domain.Devices.Filesystems,
			v1.Filesystem{Name: name, Virtiofs: &v1.FilesystemVirtiofs{}})
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	}
}

// A guest shares a claim, which it writes, and what Kubernetes has, of which it sees what changes; it takes its open
// files along to another node, and its pod ends with it. Its pod is restricted.
func TestFilesystems(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", corev1.PersistentVolumeFilesystem)
	made := func(object any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	core := c.Kube.CoreV1()
	settings := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "app"}, Data: map[string]string{"settings": "colour: blue\n"},
	}
	made(core.ConfigMaps(ns).Create(t.Context(), settings, metav1.CreateOptions{}))
	made(core.ServiceAccounts(ns).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}))

	vm := newVM(ns, "sharer", v1.RunStrategyManual,
		withFilesystem("app-config", v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}},
		}),
		withFilesystem("account",
			v1.VolumeSource{ServiceAccount: &v1.ServiceAccountVolumeSource{ServiceAccountName: "robot"}}),
		withFilesystem("data", claimOf("data")))
	c.addGate(t, "EnableVirtioFsStorageVolumes")
	eventually(t, 30*time.Second, "the gate is open", func() string {
		if err := c.Client.Create(t.Context(), vm.DeepCopy()); err != nil {
			return err.Error()
		}
		return ""
	})
	g := &guest{cluster: c, ns: ns, name: vm.Name}
	g.virtctl(t, nil, "-n", ns, "start", g.name)
	g.waitLogin(t)
	con := g.shell(t, "")
	con.run(t, "for f in app-config account data; do mkdir -p /mnt/$f; mount -t virtiofs $f /mnt/$f; done")
	expectText(t, con, "cat /mnt/app-config/settings", "colour: blue")
	expectText(t, con, "(echo x > /mnt/app-config/new) 2>&1 | grep -o 'Read-only file system'", "Read-only file system")
	expectText(t, con, "cat /mnt/account/namespace", ns)
	expectText(t, con,
		"cut -d. -f2 /mnt/account/token | base64 -d 2>/dev/null | grep -o system:serviceaccount:"+ns+":robot",
		"system:serviceaccount:"+ns+":robot")
	// Root's files are root's, and others may have some, too.
	con.run(t,
		`mkdir /mnt/data/all && chmod 1777 /mnt/data/all && echo written > /mnt/data/all/file && chown 0:0 /mnt/data/all/file`)
	expectText(t, con, "stat -c %u:%g /mnt/data/all/file", "0:0")
	expectText(t, con, `su -s /bin/sh nobody -c 'echo other > /mnt/data/all/theirs'; cat /mnt/data/all/theirs`, "other")
	con.run(t, "exec 5>/mnt/data/all/log; echo before >&5")

	// What changes in the cluster is seen. The kubelet looks every minute or so, and when the pod changes.
	settings.Data["settings"] = "colour: green\n"
	made(core.ConfigMaps(ns).Update(t.Context(), settings, metav1.UpdateOptions{}))
	round := 0
	eventually(t, 3*time.Minute, "the guest sees the change", func() string {
		round++
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"test/round":"%d"}}}`, round)
		if _, err := core.Pods(ns).Patch(t.Context(), g.pod(t).Name,
			types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err.Error()
		}
		if got := con.run(t, "cat /mnt/app-config/settings"); got != "colour: green" {
			return instead(got)
		}
		return ""
	})

	g.waitMigration(t, g.migrate(t, "there"), v1.MigrationSucceeded)
	con = g.again(t)
	expectText(t, con, "echo after >&5; exec 5>&-; cat /mnt/data/all/log", "before\nafter")
	expectText(t, con, "cat /mnt/app-config/settings", "colour: green")
	expectText(t, con, "cat /mnt/data/all/file", "written")
	if shown := c.virtctl(t, nil, "-n", ns, "describe", g.name); strings.Count(shown, "filesystem virtiofs") != 3 {
		t.Errorf("describe does not show three file systems:\n%s", shown)
	}

	// A guest that leaves or ends by itself ends its pod: virtiofsd does not keep it.
	con.send(t, "poweroff\r")
	eventually(t, time.Minute, "both pods have succeeded", func() string {
		for _, pod := range g.pods(t) {
			if pod.Status.Phase != corev1.PodSucceeded {
				return pod.Name + ": " + string(pod.Status.Phase)
			}
		}
		return ""
	})
}

// addGate opens a feature gate beside those that are open.
func (c *cluster) addGate(t *testing.T, gate string) {
	t.Helper()
	eventually(t, 30*time.Second, "gate "+gate+" is added", func() string {
		kv := &v1.KubeVirt{}
		key := client.ObjectKey{Namespace: names.Namespace, Name: names.KubeVirt}
		if err := c.Client.Get(t.Context(), key, kv); err != nil {
			return err.Error()
		}
		developer := kv.Spec.Configuration.DeveloperConfiguration
		if developer == nil {
			developer = &v1.DeveloperConfiguration{}
			kv.Spec.Configuration.DeveloperConfiguration = developer
		}
		if slices.Contains(developer.FeatureGates, gate) {
			return ""
		}
		developer.FeatureGates = append(developer.FeatureGates, gate)
		if err := c.Client.Update(t.Context(), kv); err != nil {
			return err.Error()
		}
		return ""
	})
}
