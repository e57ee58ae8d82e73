package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// oldest is the oldest Kubernetes with image volumes switched on, by minor version.
const oldest = 35

// cluster looks at Kubernetes itself.
func (e *examination) cluster() {
	v := e.Server.Value
	minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	switch {
	case err == nil && v.Major == "1" && minor < oldest:
		e.add(Cluster, "version", Failed, fmt.Sprintf("Kubernetes %s is too old: container disks are image volumes, "+
			"which need 1.%d", v.GitVersion, oldest), "upgrade the cluster")
	default:
		e.add(Cluster, "version", OK, "Kubernetes "+v.GitVersion)
	}
	e.storage()
	e.snapshots()
}

// ErrNoSnapshots is a cluster without CSI's kinds of snapshots.
var ErrNoSnapshots = errors.New("the cluster does not have the kinds of snapshot.storage.k8s.io")

// snapshots looks whether volumes can be snapshotted. Without that VMs run all the same, but cannot be snapshotted.
func (e *examination) snapshots() {
	const name = "snapshots"
	drivers, err := e.SnapshotDrivers.Value, e.SnapshotDrivers.Err
	switch {
	case errors.Is(err, ErrNoSnapshots):
		e.add(Cluster, name, Warning, "VMs cannot be snapshotted or cloned: "+err.Error(),
			"install CSI's snapshot kinds (VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotClass) and its "+
				"snapshot controller, with a driver that has snapshots")
		return
	case err != nil:
		e.skip(Cluster, name, "snapshots of volumes are", err)
		return
	case len(drivers) == 0:
		e.add(Cluster, name, Warning, "VMs cannot be snapshotted or cloned: there is no VolumeSnapshotClass",
			"create a VolumeSnapshotClass for the driver of the StorageClass")
		return
	}
	var without []string
	for i := range e.StorageClasses.Value {
		if class := &e.StorageClasses.Value[i]; !slices.Contains(drivers, class.Provisioner) {
			without = append(without, class.Name)
		}
	}
	message := "volumes can be snapshotted by " + strings.Join(drivers, ", ")
	if e.StorageClasses.Err != nil {
		message += "; of which StorageClasses is not known"
	}
	if len(without) > 0 {
		message += "; not those of StorageClass " + strings.Join(without, ", ")
	}
	e.add(Cluster, name, OK, message)
}

func (e *examination) storage() {
	classes, err := e.StorageClasses.Value, e.StorageClasses.Err
	if err != nil {
		e.skip(Cluster, "storage", "storage classes are", err)
		return
	}
	if len(classes) == 0 {
		e.add(Cluster, "storage", Warning, "there is no StorageClass: VMs can have container disks, but no "+
			"persistent ones", "install a storage provisioner")
		return
	}
	var all []string
	standard := ""
	for i := range classes {
		all = append(all, classes[i].Name)
		if classes[i].Annotations[claims.DefaultClassAnnotation] == "true" {
			standard = classes[i].Name
		}
	}
	if standard == "" {
		e.add(Cluster, "storage", Warning, "no StorageClass is the default: each claim must name one of "+
			strings.Join(all, ", "),
			"kubectl annotate storageclass "+all[0]+" "+claims.DefaultClassAnnotation+"=true")
		return
	}
	e.add(Cluster, "storage", OK, "default StorageClass "+standard)
}
