package podfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/virtkit/virtkit/pkg/handler/records"
	"github.com/virtkit/virtkit/pkg/names"
)

// Devices are devices that a container may use, and how: unix.BPF_DEVCG_ACC_*.
type Devices map[Device]uint16

func (d Devices) has(device Device) bool { return d[device] != 0 }

const (
	everyAccess = unix.BPF_DEVCG_ACC_MKNOD | unix.BPF_DEVCG_ACC_READ | unix.BPF_DEVCG_ACC_WRITE
	// maxDevices bounds how many devices a container can have been granted, and so the program that allows them.
	maxDevices = 256
	// maxCheckpoint bounds what is read of the kubelet's checkpoint, bytes.
	maxCheckpoint = 64 << 20
	// checkpoint is the file in the kubelet's device plugin directory in which it keeps whom it has given devices to.
	checkpoint = "kubelet_internal_checkpoint"
)

// Granted returns the devices that the kubelet has granted to the launcher of a pod: those of device plugins, by the
// kubelet's own record, and the block devices of its claims, by the kubelet's directory of the pod. It asks the pod for
// nothing. pluginsDir is the kubelet's device plugin directory, podsDir its pod directory, proc the mount point of
// procfs in the host's PID namespace.
func Granted(proc, podsDir, pluginsDir string, pod types.UID) (Devices, error) {
	devices := Devices{}
	record, err := pluginGrants(pluginsDir, pod)
	if err != nil {
		return nil, err
	}
	if len(record.nodes)+len(record.named) > 0 {
		if err := devices.addRecorded(proc, record); err != nil {
			return nil, fmt.Errorf("find the devices that the kubelet has granted to pod %s: %w", pod, err)
		}
	}
	maps, err := kubeletMaps(podsDir, pod)
	if err != nil {
		return nil, err
	}
	for _, name := range maps {
		number, err := mappedDevice(proc, pod, name)
		if err != nil {
			return nil, err
		}
		devices[Block(number)] |= everyAccess
	}
	if len(devices) > maxDevices {
		return nil, fmt.Errorf("pod %s has more than %d devices", pod, maxDevices)
	}
	return devices, nil
}

// grant is a device of the node, or a directory of such, that a device plugin has had given to a container.
type grant struct {
	path   string
	access uint16
}

// recorded holds what device plugins have given to a container: device nodes, and devices by their names (see
// cdiGrants).
type recorded struct {
	nodes []grant
	named []string
}

// pluginGrants reads the kubelet's record of the launcher's container.
func pluginGrants(pluginsDir string, pod types.UID) (recorded, error) {
	if pluginsDir == "" {
		return recorded{}, nil
	}
	file, err := os.Open(filepath.Join(pluginsDir, checkpoint))
	if errors.Is(err, fs.ErrNotExist) {
		return recorded{}, nil // it has never given any
	}
	if err != nil {
		return recorded{}, fmt.Errorf("read the kubelet's record of devices: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxCheckpoint+1))
	if err == nil && len(text) > maxCheckpoint {
		err = fmt.Errorf("it has more than %d bytes", maxCheckpoint)
	}
	var grants recorded
	if err == nil {
		grants, err = parseCheckpoint(text, pod)
	}
	if err != nil {
		return recorded{}, fmt.Errorf("read the kubelet's record of devices %s: %w", file.Name(), err)
	}
	return grants, nil
}

// parseCheckpoint reads what the kubelet has granted to the launcher of a pod from its checkpoint; see
// k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint.
func parseCheckpoint(text []byte, pod types.UID) (recorded, error) {
	var record struct {
		Data *struct {
			PodDeviceEntries []struct {
				PodUID, ContainerName, ResourceName string
				AllocResp                           []byte
			}
		}
	}
	if err := json.Unmarshal(text, &record); err != nil {
		return recorded{}, err
	}
	if record.Data == nil {
		return recorded{}, errors.New("it has no data")
	}
	var out recorded
	for _, entry := range record.Data.PodDeviceEntries {
		if pod == "" || entry.PodUID != string(pod) || entry.ContainerName != names.ContainerCompute {
			continue
		}
		var given pluginapi.ContainerAllocateResponse
		if err := proto.Unmarshal(entry.AllocResp, &given); err != nil {
			return recorded{}, fmt.Errorf("resource %s: %w", entry.ResourceName, err)
		}
		for _, device := range given.CdiDevices {
			out.named = append(out.named, device.GetName())
		}
		for _, spec := range given.Devices {
			out.nodes = append(out.nodes, grant{path: spec.GetHostPath(), access: accessOf(spec.GetPermissions())})
		}
	}
	return out, nil
}

// accessOf reads permissions as the kubelet has them: some of r, w and m. None are all, as for container runtimes.
func accessOf(permissions string) uint16 {
	access := uint16(0)
	for letter, bit := range map[rune]uint16{
		'r': unix.BPF_DEVCG_ACC_READ, 'w': unix.BPF_DEVCG_ACC_WRITE,
		'm': unix.BPF_DEVCG_ACC_MKNOD,
	} {
		if strings.ContainsRune(permissions, letter) {
			access |= bit
		}
	}
	if access == 0 {
		return everyAccess
	}
	return access
}

// addRecorded finds devices in the node's own root.
func (d Devices) addRecorded(proc string, record recorded) error {
	node, err := openProcess(proc, 1)
	if err != nil {
		return fmt.Errorf("open the node's file system: %w", err)
	}
	defer node.Close()
	named, err := cdiGrants(node, record.named)
	if err != nil {
		return err
	}
	for _, g := range slices.Concat(record.nodes, named) {
		if err := d.add(node, g, maxDepth); err != nil {
			return err
		}
	}
	return nil
}

func (d Devices) add(node *Process, g grant, depth int) error {
	found, err := node.find(g.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // unplugged since, as a device on USB may be
	}
	if err != nil {
		return err
	}
	defer found.Close()
	if device := found.Device(); device != (Device{}) {
		d[device] |= g.access
		return nil
	}
	if found.Stat().Mode&unix.S_IFMT != unix.S_IFDIR || depth == 0 {
		return nil
	}
	entries, err := found.List(maxEntries)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Type()&fs.ModeDevice == 0 && !entry.IsDir() {
			continue
		}
		if err := d.add(node, grant{path.Join(g.path, entry.Name()), g.access}, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// kubeletMaps returns the kubelet's names for the block devices of a pod's claims.
func kubeletMaps(podsDir string, pod types.UID) ([]string, error) {
	if err := records.ValidUID(pod); err != nil {
		return nil, err
	}
	maps, err := filepath.Glob(filepath.Join(podsDir, string(pod), "volumeDevices", "*", "*"))
	if err != nil {
		return nil, fmt.Errorf("list the devices of pod %s: %w", pod, err)
	}
	return maps, nil
}

// rules returns the rules that allow the devices, in a fixed order.
func (d Devices) rules() []deviceRule {
	rules := make([]deviceRule, 0, len(d))
	for device, access := range d {
		kind := uint16(unix.BPF_DEVCG_DEV_BLOCK)
		if device.Kind == unix.S_IFCHR {
			kind = unix.BPF_DEVCG_DEV_CHAR
		}
		rules = append(rules,
			deviceRule{kind, int64(unix.Major(device.Number)), int64(unix.Minor(device.Number)), access})
	}
	slices.SortFunc(rules, func(a, b deviceRule) int {
		return slices.Compare([]int64{int64(a.kind), a.major, a.minor}, []int64{int64(b.kind), b.major, b.minor})
	})
	return rules
}
