//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// expandOffline grows volumes that no pod uses: a block device at once, a file system with the next pod, which finds
// in it what was there.
func (m *machine) expandOffline() {
	block := corev1.PersistentVolumeBlock
	m.claim("offline", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block })
	m.await("claim offline is bound", time.Minute, func(ctx context.Context) bool {
		c := m.claimNow(ctx, "offline")
		return c != nil && c.Status.Phase == corev1.ClaimBound
	})
	grown := resource.MustParse("1400Mi") // cloned had 1300Mi
	for claim, size := range map[string]string{"offline": "32Mi", "cloned": grown.String()} {
		if err := m.resize(claim, size); err != nil {
			m.Fatal(err)
		}
	}
	m.await("claim offline has grown", time.Minute, func(ctx context.Context) bool {
		c := m.claimNow(ctx, "offline")
		return c != nil && c.Status.Capacity.Storage().Cmp(resource.MustParse("32Mi")) == 0
	})
	m.await("the volume of claim cloned has grown", time.Minute, func(ctx context.Context) bool {
		c := m.claimNow(ctx, "cloned")
		if c == nil {
			return false
		}
		v, err := m.client.CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
		return err == nil && v.Spec.Capacity.Storage().Cmp(grown) == 0
	})
	if c := m.claimNow(m.Context(), "cloned"); c == nil || c.Status.Capacity.Storage().Cmp(grown) >= 0 {
		m.Errorf("claim cloned says that its file system has grown, which no node has mounted: %+v", c)
	}
	// Of an XFS of 1300 MiB some 1236 are for files, of one of 1400 MiB 1336.
	m.says("after-offline", "cat /cloned/file && df -Pk /cloned | "+
		"awk 'NR == 2 { if ($2 > 1290 * 1024) print \"large\"; else print $2 }'", "after\nlarge\n", "cloned")
	m.await("claim cloned has grown", time.Minute, func(ctx context.Context) bool {
		c := m.claimNow(ctx, "cloned")
		return c != nil && c.Status.Capacity.Storage().Cmp(grown) == 0
	})
}

// claimNow is a claim as it is now, nil when it cannot be read.
func (m *machine) claimNow(ctx context.Context, name string) *corev1.PersistentVolumeClaim {
	c, err := m.client.CoreV1().PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return c
}

// volumeSnapshot is what these tests read of a VolumeSnapshot's status.
type volumeSnapshot struct {
	Status struct {
		ReadyToUse *bool   `json:"readyToUse"`
		Bound      *string `json:"boundVolumeSnapshotContentName"`
		Error      struct {
			Message string `json:"message"`
		} `json:"error"`
	} `json:"status"`
}

// refuseSnapshot asks for a snapshot of a claim whose class has none: it says so, has no content, and can be deleted.
func (m *machine) refuseSnapshot(name, claim string) {
	m.askSnapshot(name, claim)
	rest := m.client.CoreV1().RESTClient()
	m.await("snapshot "+name+" says that there is no class for it", time.Minute, func(ctx context.Context) bool {
		var s volumeSnapshot
		text, err := rest.Get().AbsPath(snapshotsPath, name).DoRaw(ctx)
		if err != nil || json.Unmarshal(text, &s) != nil {
			return false
		}
		if ready := s.Status.ReadyToUse; ready != nil && *ready || s.Status.Bound != nil {
			m.Fatalf("a snapshot of claim %s is made: %s", claim, text)
		}
		return strings.Contains(s.Status.Error.Message, "cannot find default snapshot class")
	})
	if err := rest.Delete().AbsPath(snapshotsPath, name).Do(m.Context()).Error(); err != nil {
		m.Fatal(err)
	}
	m.await("snapshot "+name+" is gone", time.Minute, func(ctx context.Context) bool {
		return apierrors.IsNotFound(rest.Get().AbsPath(snapshotsPath, name).Do(ctx).Error())
	})
}

// askSnapshot makes a VolumeSnapshot of a claim, of the default class.
func (m *machine) askSnapshot(name, claim string) {
	m.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"source": map[string]any{"persistentVolumeClaimName": claim}},
	})
	if err != nil {
		m.Fatal(err)
	}
	rest := m.client.CoreV1().RESTClient()
	if err := rest.Post().AbsPath(snapshotsPath).Body(body).SetHeader("Content-Type",
		"application/json").Do(m.Context()).Error(); err != nil {
		m.Fatal(err)
	}
}
