package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/tests/bench/report"
	"github.com/virtkit/virtkit/tests/instance"
)

// benchImage is the image from which VMs are made, and the claim that has it.
const benchImage, benchImageClaim = "tiny/1", "tiny-1"

// beyondContainerDisk is how much longer a VM of an image may take to its login prompt than one with a container disk,
// seconds.
const beyondContainerDisk = 1

// createImage compares `create vm --image` of an image that is in the cluster with the same guest from its container
// disk, from the command to the login prompt.
func createImage(ctx context.Context, b *bench) (rows []Row, err error) {
	dir, err := os.MkdirTemp("", "bench-image-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte("tiny"), 0o600); err != nil {
		return nil, err
	}
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Namespace, pvc.Name = b.namespace, benchImageClaim
	defer b.cleanUp(pvc, &err)
	if err := b.pull(ctx); err != nil {
		return nil, err
	}
	samples := map[string][]time.Duration{}
	for n := range max(b.rounds/3, 2) + 1 {
		for of, from := range map[string][]string{
			"image":          {"--image", benchImage},
			"container-disk": {"--volume-containerdisk", "src:" + instance.TinyDisk()},
		} {
			took, err := b.made(ctx, fmt.Sprintf("of-%s-%d", of, n),
				append(from, "--user", "root", "--password-file", password)...)
			if err != nil {
				return nil, err
			}
			if n > 0 { // the first is warm-up
				samples[of] = append(samples[of], took)
			}
		}
	}
	return []Row{
		report.Timed("create-image", "create vm --image → login prompt, median", "s", samples["image"], .5).
			Beside("the same from a container disk", samples["container-disk"], .5).Beyond(beyondContainerDisk),
	}, nil
}

// pull uploads the tiny guest's disk as an image.
func (b *bench) pull(ctx context.Context) error {
	file, err := os.Open(filepath.Join(b.Root, "bin", "images", "tiny.qcow2"))
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	c, err := client.New(b.Config)
	if err != nil {
		return err
	}
	state, err := upload.Run(ctx, c, upload.Options{
		Namespace: b.namespace, Claim: benchImageClaim, Session: upload.NewSession(), Patience: patience,
		Image: upload.Image{ReaderAt: file, Size: info.Size()},
		Create: &upload.Claim{
			Size: "512Mi", StorageClass: storage, AccessMode: "ReadWriteOnce", VolumeMode: "Filesystem",
		},
		Labels: map[string]string{
			uploads.LabelImage: "tiny", uploads.LabelImageVersion: "1", uploads.LabelImageUser: "root",
		},
	})
	if err == nil && state.Phase != uploads.Succeeded {
		err = fmt.Errorf("the upload of the image is %s: %s", state.Phase, state.Message)
	}
	return err
}

// made makes a VM by virtctl, and returns how long it took to the login prompt. Afterwards the VM is gone.
func (b *bench) made(ctx context.Context, name string, from ...string) (took time.Duration, err error) {
	args := append([]string{
		"-n", b.namespace, "create", "vm", "--name", name, "--memory", "128Mi", "--termination-grace-period", "0",
		"--apply",
	}, from...)
	vm := b.vm(name, v1.RunStrategyAlways)
	defer b.cleanUp(vm, &err)
	start := time.Now()
	if _, stderr, err := b.Virtctl(ctx, nil, args...); err != nil {
		return 0, fmt.Errorf("create VM %s: %w: %s", name, err, stderr)
	}
	if err := b.untilLogin(ctx, vm); err != nil {
		return 0, err
	}
	took = time.Since(start)
	return took, b.stop(ctx, vm)
}
