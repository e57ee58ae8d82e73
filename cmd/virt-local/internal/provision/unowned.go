package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Unowned lists the volumes that have data but no PersistentVolume, and no claim that waits for one.
func Unowned(
	ctx context.Context, client kubernetes.Interface, store interface{ Volumes() ([]string, error) },
) ([]string, error) {
	names, err := store.Volumes()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	owned := map[string]bool{}
	// Claims are asked for first: one that is given its volume meanwhile is in one of the lists.
	claims, err := client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	for i := range claims.Items {
		if claims.Items[i].Spec.VolumeName == "" {
			owned["pvc-"+string(claims.Items[i].UID)] = true
		}
	}
	volumes, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	for i := range volumes.Items {
		owned[volumes.Items[i].Name] = true
	}
	return slices.DeleteFunc(names, func(name string) bool { return owned[name] }), nil
}

// Data is what a Disk has of a volume.
type Data struct {
	Volume string `json:"volume"`
	Path   string `json:"path"`
	// Bytes are those that it takes on the machine's disk.
	Bytes int64 `json:"bytes"`
	// Remove is the command that removes it for good; Describe does not know the instance's name, and leaves it empty.
	Remove string `json:"remove"`
}

// Describe returns what there is of a volume.
func (d Disk) Describe(volume string) (Data, error) {
	out := Data{Volume: volume, Path: filepath.Join(d.Dir, volume)}
	for _, dir := range []string{d.aside(), d.Dir} {
		for _, ending := range []string{erasing, ".img" + erasing, ".img", ""} {
			path := filepath.Join(dir, volume+ending)
			if !exists(path) {
				continue
			}
			bytes, err := allocated(path)
			if err != nil {
				return out, err
			}
			out.Path, out.Bytes = path, out.Bytes+bytes
		}
	}
	return out, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// allocated returns what a file, or all below a directory, takes on the disk, bytes. What vanishes meanwhile does not
// count.
func allocated(path string) (int64, error) {
	var bytes int64
	err := filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		var stat unix.Stat_t
		if err := unix.Lstat(name, &stat); err != nil {
			if errors.Is(err, unix.ENOENT) {
				return nil
			}
			return &fs.PathError{Op: "stat", Path: name, Err: err}
		}
		bytes += stat.Blocks * 512
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measure volume: %w", err)
	}
	return bytes, nil
}
