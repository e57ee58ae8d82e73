package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// oldest is the oldest Kubernetes with image volumes switched on, by minor version.
const oldest = 35

const isDefault = "storageclass.kubernetes.io/is-default-class"

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
}

func (e *examination) storage() {
	classes, err := e.StorageClasses.Value, e.StorageClasses.Err
	if err != nil {
		e.skip(Cluster, "storage", err)
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
		if classes[i].Annotations[isDefault] == "true" {
			standard = classes[i].Name
		}
	}
	if standard == "" {
		e.add(Cluster, "storage", Warning, "no StorageClass is the default: each claim must name one of "+
			strings.Join(all, ", "),
			"kubectl annotate storageclass "+all[0]+" "+isDefault+"=true")
		return
	}
	e.add(Cluster, "storage", OK, "default StorageClass "+standard)
}
