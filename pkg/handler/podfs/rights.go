package podfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/records"
)

// Rights says which devices the launchers of a node may use: what every container may, what the kubelet has granted
// (Granted), and what virt-handler has given beside that: hotplugged disks. The last it keeps in files of its own, so
// that the next virt-handler knows it. What lies in a pod's /dev does not count.
type Rights struct {
	// Proc, Pods and Plugins are as in Granted.
	Proc, Pods, Plugins string
	// Dir has a file for each pod that was given something.
	Dir string

	mu sync.Mutex
}

// given holds what was given to a pod: devices by their use.
type given map[string]Device

// Allow lets the process's container use a device. use names the purpose, which has one device at a time. Allow may be
// repeated.
func (r *Rights) Allow(p *Process, use string, device Device) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.load(p.Pod)
	if err != nil {
		return err
	}
	old, had := record[use]
	record[use] = device
	if !had || old != device {
		// Before it is so: what is not on record cannot be taken back.
		if err := r.save(p.Pod, record); err != nil {
			return err
		}
	}
	if had && old != device {
		if err := r.apply(p, record, old); err != nil {
			return err
		}
	}
	return r.apply(p, record, device)
}

// Deny undoes Allow. It is no error when nothing was allowed.
func (r *Rights) Deny(p *Process, use string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.load(p.Pod)
	if err != nil {
		return err
	}
	device, had := record[use]
	if !had {
		return nil
	}
	delete(record, use)
	// A container whose control group is gone uses nothing any more.
	if err := r.apply(p, record, device); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return r.save(p.Pod, record)
}

// Given returns the device that was allowed for a use.
func (r *Rights) Given(pod types.UID, use string) (Device, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.load(pod)
	device, ok := record[use]
	return device, ok, err
}

// apply makes the container's rights what they are to be, of which those on one device may have changed.
func (r *Rights) apply(p *Process, record given, changed Device) error {
	granted, err := Granted(r.Proc, r.Pods, r.Plugins, p.Pod)
	if err != nil {
		return err
	}
	for _, device := range record {
		granted[device] |= everyAccess
	}
	group, v1, err := p.groupDir(r.Proc)
	if err != nil {
		return err
	}
	if v1 {
		return setRule(group, changed, granted[changed])
	}
	return allowUnified(group, append(defaultRules(), granted.rules()...))
}

// setRule changes what a control group of version 1 may do with one device.
func setRule(group string, device Device, access uint16) error {
	kind, file := "b", "devices.deny"
	if device.Kind == unix.S_IFCHR {
		kind = "c"
	}
	letters := "rwm"
	if access != 0 {
		file, letters = "devices.allow", lettersOf(access)
	}
	rule := fmt.Sprintf("%s %d:%d %s", kind, unix.Major(device.Number), unix.Minor(device.Number), letters)
	if err := os.WriteFile(filepath.Join(group, file), []byte(rule), 0o200); err != nil {
		return fmt.Errorf("let the pod use its device: %w", err)
	}
	return nil
}

// lettersOf is the inverse of accessOf.
func lettersOf(access uint16) string {
	letters := ""
	for _, l := range []struct {
		letter string
		bit    uint16
	}{{"r", unix.BPF_DEVCG_ACC_READ}, {"w", unix.BPF_DEVCG_ACC_WRITE}, {"m", unix.BPF_DEVCG_ACC_MKNOD}} {
		if access&l.bit != 0 {
			letters += l.letter
		}
	}
	return letters
}

func (r *Rights) store() records.Store[given] {
	return records.Store[given]{Dir: r.Dir, What: "granted devices"}
}

func (r *Rights) load(pod types.UID) (given, error) {
	record, err := r.store().Load(pod)
	if record == nil || *record == nil {
		return given{}, err
	}
	return *record, err
}

func (r *Rights) save(pod types.UID, record given) error {
	if len(record) == 0 {
		return r.store().Remove(pod)
	}
	return r.store().Save(pod, &record)
}

// Forget removes the record of a pod whose container is gone.
func (r *Rights) Forget(pod types.UID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.save(pod, nil)
}

// KeepOnly removes the records of other pods.
func (r *Rights) KeepOnly(exists func(types.UID) bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store().KeepOnly(exists)
}
