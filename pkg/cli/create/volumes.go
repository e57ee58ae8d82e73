package create

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/virtkit/virtkit/pkg/action/create"
	"github.com/virtkit/virtkit/pkg/cli"
)

// volumeFlags are the flags that add disks. The long forms are KubeVirt's: `src:VALUE,name:NAME,bootorder:N`.
type volumeFlags struct {
	containerDisks []string
	claims         []string
	simpleDisks    []string
	simpleClaims   []string
	empties        []string
}

func (v *volumeFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&v.simpleDisks, "container-disk", nil, "`IMAGE` of a container disk (can be repeated)")
	flags.StringArrayVar(&v.simpleClaims, "pvc", nil, "`NAME` of a PersistentVolumeClaim to use as a disk (can be repeated)")
	flags.StringArrayVar(&v.containerDisks, "volume-containerdisk", nil, "Container disk as `src:IMAGE[,name:NAME][,bootorder:N]` (can be repeated)")
	flags.StringArrayVar(&v.claims, "volume-pvc", nil, "PersistentVolumeClaim as `src:NAME[,name:NAME][,bootorder:N][,readonly:true]` (can be repeated)")
	flags.StringArrayVar(&v.empties, "volume-empty", nil, "Empty disk as `size:SIZE[,name:NAME][,bootorder:N]`; it lives as long as the VM runs (can be repeated)")
}

func (v *volumeFlags) parse() ([]create.Volume, error) {
	var out []create.Volume
	for _, image := range v.simpleDisks {
		if image == "" {
			return nil, cli.UsageErrorf("--container-disk: must not be empty")
		}
		out = append(out, create.Volume{Kind: create.ContainerDisk, Source: image})
	}
	parse := func(kind create.Kind, flag, source string, values []string) error {
		for _, value := range values {
			volume, err := parseVolume(kind, source, value)
			if err != nil {
				return cli.UsageErrorf("--%s %q: %s", flag, value, err)
			}
			out = append(out, volume)
		}
		return nil
	}
	if err := parse(create.ContainerDisk, "volume-containerdisk", "src", v.containerDisks); err != nil {
		return nil, err
	}
	for _, claim := range v.simpleClaims {
		if claim == "" {
			return nil, cli.UsageErrorf("--pvc: must not be empty")
		}
		out = append(out, create.Volume{Kind: create.Claim, Source: claim})
	}
	if err := parse(create.Claim, "volume-pvc", "src", v.claims); err != nil {
		return nil, err
	}
	err := parse(create.Empty, "volume-empty", "size", v.empties)
	return out, err
}

// parseVolume reads `key:value,…`; source is the key of the value that must be there.
func parseVolume(kind create.Kind, source, text string) (create.Volume, error) {
	v := create.Volume{Kind: kind}
	seen := map[string]bool{}
	for _, param := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(param, ":")
		if !ok || value == "" {
			return v, fmt.Errorf("%q is not KEY:VALUE", param)
		}
		if seen[key] {
			return v, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		switch {
		case key == source:
			v.Source = value
		case key == "name":
			v.Name = value
		case key == "bootorder":
			order, err := strconv.ParseUint(value, 10, 16)
			if err != nil || order == 0 {
				return v, fmt.Errorf("bootorder %q is not a number from 1 on", value)
			}
			v.BootOrder = uint(order)
		case key == "readonly" && kind == create.Claim:
			readOnly, err := strconv.ParseBool(value)
			if err != nil {
				return v, fmt.Errorf("readonly %q is neither true nor false", value)
			}
			v.ReadOnly = readOnly
		default:
			return v, fmt.Errorf("unknown parameter %q", key)
		}
	}
	if v.Source == "" {
		return v, fmt.Errorf("%s is missing", source)
	}
	return v, nil
}

// readPassword reads the first line of a file, or of in when path is "-".
func readPassword(in io.Reader, path string) (string, error) {
	var data []byte
	var err error
	if path == "-" {
		data, err = io.ReadAll(in)
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return "", cli.UsageErrorf("--password-file: %s", err)
	}
	password, _, _ := strings.Cut(string(data), "\n")
	password = strings.TrimSuffix(password, "\r")
	if password == "" {
		return "", cli.UsageErrorf("--password-file: %s is empty", path)
	}
	return password, nil
}
