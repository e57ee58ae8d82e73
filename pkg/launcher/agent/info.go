package agent

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
)

// More limits of what is believed of a guest.
const (
	maxCommands    = 256
	maxUsers       = 256
	maxFileSystems = 256
	maxDisks       = 8
)

// AskInfo asks everything that users may ask for, through send, which takes a command and returns its reply. It fails
// when the first command does, which every agent knows; what a later one does not return is left out.
func AskInfo(send func(command string) (string, error)) (*v1.VirtualMachineInstanceGuestAgentInfo, error) {
	reply, err := send(Command("guest-info", nil))
	if err != nil {
		return nil, err
	}
	info := &v1.VirtualMachineInstanceGuestAgentInfo{}
	if info.GAVersion, info.SupportedCommands, err = parseInfo(reply); err != nil {
		return nil, err
	}
	for _, q := range []struct {
		command string
		read    func(reply string) error
	}{
		{
			"guest-get-host-name",
			func(reply string) (err error) { info.Hostname, err = parseHostname(reply); return err },
		},
		{"guest-get-osinfo", func(reply string) error {
			os, err := ParseOS(reply)
			if err == nil {
				info.OS = *os
			}
			return err
		}},
		{
			"guest-get-timezone",
			func(reply string) (err error) { info.Timezone, err = parseTimezone(reply); return err },
		},
		{"guest-get-users", func(reply string) (err error) { info.UserList, err = parseUsers(reply); return err }},
		{"guest-get-fsinfo", func(reply string) (err error) {
			info.FSInfo.Filesystems, err = parseFileSystems(reply)
			return err
		}},
		{"guest-fsfreeze-status", func(reply string) error {
			status, err := ParseFreezeStatus(reply)
			if status == "frozen" {
				info.FSFreezeStatus = status
			}
			return err
		}},
	} {
		reply, err := send(Command(q.command, nil))
		if err != nil {
			continue // unknown to this agent, or forbidden
		}
		if err := q.read(reply); err != nil {
			return nil, fmt.Errorf("%s: %w", q.command, err)
		}
	}
	return info, nil
}

func parseInfo(reply string) (string, []v1.GuestAgentCommandInfo, error) {
	var r struct {
		Version  string `json:"version"`
		Commands []struct {
			Name    string `json:"name"`
			Enabled bool   `json:"enabled"`
		} `json:"supported_commands"`
	}
	if err := unwrap(reply, &r); err != nil {
		return "", nil, err
	}
	var out []v1.GuestAgentCommandInfo
	for _, c := range firstOf(r.Commands, maxCommands) {
		out = append(out, v1.GuestAgentCommandInfo{Name: clean(c.Name), Enabled: c.Enabled})
	}
	return clean(r.Version), out, nil
}

func parseHostname(reply string) (string, error) {
	var r struct {
		Name string `json:"host-name"`
	}
	err := unwrap(reply, &r)
	return clean(r.Name), err
}

// parseTimezone writes a time zone as KubeVirt does: its name and the seconds east of UTC.
func parseTimezone(reply string) (string, error) {
	var r struct {
		Zone   string `json:"zone"`
		Offset int    `json:"offset"`
	}
	err := unwrap(reply, &r)
	return fmt.Sprintf("%s, %d", clean(r.Zone), r.Offset), err
}

func parseUsers(reply string) ([]v1.VirtualMachineInstanceGuestOSUser, error) {
	var r []struct {
		User      string  `json:"user"`
		Domain    string  `json:"domain"`
		LoginTime float64 `json:"login-time"`
	}
	if err := unwrap(reply, &r); err != nil {
		return nil, err
	}
	var out []v1.VirtualMachineInstanceGuestOSUser
	for _, u := range firstOf(r, maxUsers) {
		out = append(out, v1.VirtualMachineInstanceGuestOSUser{
			UserName: clean(u.User), Domain: clean(u.Domain),
			LoginTime: u.LoginTime,
		})
	}
	return out, nil
}

func parseFileSystems(reply string) ([]v1.VirtualMachineInstanceFileSystem, error) {
	var r []struct {
		Name       string `json:"name"`
		Mountpoint string `json:"mountpoint"`
		Type       string `json:"type"`
		Used       int    `json:"used-bytes"`
		Total      int    `json:"total-bytes"`
		Disks      []struct {
			Serial string `json:"serial"`
			Bus    string `json:"bus-type"`
		} `json:"disk"`
	}
	if err := unwrap(reply, &r); err != nil {
		return nil, err
	}
	var out []v1.VirtualMachineInstanceFileSystem
	for _, f := range firstOf(r, maxFileSystems) {
		fs := v1.VirtualMachineInstanceFileSystem{
			DiskName: clean(f.Name), MountPoint: clean(f.Mountpoint), FileSystemType: clean(f.Type),
			UsedBytes: f.Used, TotalBytes: f.Total,
		}
		for _, d := range firstOf(f.Disks, maxDisks) {
			fs.Disk = append(fs.Disk,
				v1.VirtualMachineInstanceFileSystemDisk{Serial: clean(d.Serial), BusType: clean(d.Bus)})
		}
		out = append(out, fs)
	}
	return out, nil
}

func firstOf[T any](list []T, most int) []T { return list[:min(len(list), most)] }
