package disk

import (
	"path"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/vhostmd"
)

// MetricsImage returns where the image of a VMI's downwardMetrics volume is, which the launcher keeps current; empty
// when it has none.
func MetricsImage(spec *v1.VirtualMachineInstanceSpec, dirs Dirs) string {
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.DownwardMetrics != nil && diskIn(spec, v.Name) {
			return dirs.metrics(v.Name)
		}
	}
	return ""
}

func (d Dirs) metrics(volume string) string { return path.Join(d.Disks, volume+".metrics") }

// metrics plans an image that has no metrics yet.
func (p *Plan) metrics(v *v1.Volume, dirs Dirs) error {
	data, err := vhostmd.Image(vhostmd.Report{})
	if err != nil {
		return err
	}
	name := dirs.metrics(v.Name)
	p.Steps = append(p.Steps, Step{Volume: v.Name, Action: WriteFile, Path: name, Data: data})
	p.Sources[v.Name] = domain.Source{Path: name, Format: FormatRaw, ReadOnly: true, Live: true}
	return nil
}
