package hypervisor

import (
	"encoding/xml"
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// MemorySnapshot returns libvirt's description of a snapshot that writes a domain's memory to a file and leaves all of
// its disks alone. text is the domain's XML: a disk that the description does not name would get an overlay.
func MemorySnapshot(text, file string) (string, error) {
	var domain struct {
		Targets []struct {
			Dev string `xml:"dev,attr"`
		} `xml:"devices>disk>target"`
	}
	if err := xml.Unmarshal([]byte(text), &domain); err != nil {
		return "", fmt.Errorf("read the domain's XML: %w", err)
	}
	snapshot := libvirtxml.DomainSnapshot{
		Memory: &libvirtxml.DomainSnapshotMemory{Snapshot: "external", File: file},
		Disks:  &libvirtxml.DomainSnapshotDisks{},
	}
	for _, target := range domain.Targets {
		snapshot.Disks.Disks = append(snapshot.Disks.Disks,
			libvirtxml.DomainSnapshotDisk{Name: target.Dev, Snapshot: "no"})
	}
	out, err := snapshot.Marshal()
	if err != nil {
		return "", fmt.Errorf("write the snapshot's XML: %w", err)
	}
	return out, nil
}
