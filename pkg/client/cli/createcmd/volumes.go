package createcmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// volumeFlags are the flags that add disks. The long forms are KubeVirt's, `KEY:VALUE,…`; the short ones are ours.
type volumeFlags struct {
	simpleDisks, simpleClaims, empties []string
	containerDisks, claims, imports    []string
	sysprep                            string
	// Deprecated by KubeVirt in favour of imports.
	dataSources, clones, blanks []string
}

func (v *volumeFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&v.simpleDisks, "container-disk", nil, "`IMAGE` of a container disk (can be repeated)")
	flags.StringArrayVar(&v.simpleClaims, "pvc", nil,
		"`NAME` of a PersistentVolumeClaim to use as a disk (can be repeated)")
	flags.StringArrayVar(&v.empties, "volume-empty", nil,
		"Empty disk as `size:SIZE[,name:NAME][,bootorder:N]`; it lives as long as the VM runs (can be repeated)")
	flags.StringArrayVar(&v.containerDisks, "volume-containerdisk", nil,
		"Container disk as `src:IMAGE[,name:NAME][,bootorder:N]` (can be repeated)")
	flags.StringArrayVar(&v.claims, "volume-pvc", nil,
		"PersistentVolumeClaim as `src:NAME[,name:NAME][,bootorder:N][,readonly:true]` (can be repeated)")
	flags.StringArrayVar(&v.imports, "volume-import", nil, importUsage())
	flags.StringVar(&v.sysprep, "volume-sysprep", "",
		"ConfigMap or Secret with Windows' answer file, as `src:NAME[,type:configMap|secret]`")
}

// addDeprecated registers the flags that scripts may still have.
func (v *volumeFlags) addDeprecated(flags *pflag.FlagSet) {
	flags.StringArrayVar(&v.dataSources, "volume-datasource", nil,
		"DataSource to clone, as `src:[NAMESPACE/]NAME[,name:NAME][,size:SIZE][,bootorder:N]` (can be "+
			"repeated)\nDEPRECATED: use --volume-import type:ds,…")
	flags.StringArrayVar(&v.clones, "volume-clone-pvc", nil,
		"Claim to clone, as `src:NAMESPACE/NAME[,name:NAME][,size:SIZE][,bootorder:N]` (can be "+
			"repeated)\nDEPRECATED: use --volume-import type:pvc,…")
	flags.StringArrayVar(&v.blanks, "volume-blank", nil, "Blank volume, as `size:SIZE[,name:NAME][,bootorder:N]` "+
		"(can be repeated)\nDEPRECATED: use --volume-import type:blank,…")
}

func importUsage() string {
	var out strings.Builder
	out.WriteString("Volume that CDI fills, as `type:TYPE,size:SIZE[,name:NAME][,bootorder:N]` and by type (can be " +
		"repeated)")
	for _, kind := range create.ImportTypes() {
		fmt.Fprintf(&out, "\n  %s: %s", kind, strings.Join(create.ImportParameters(kind), ", "))
	}
	return strings.Replace(out.String(), "blank: ", "blank", 1)
}

// parse reads all flags. random makes the names of imported volumes, which have none of their own.
func (v *volumeFlags) parse(random func(int) string) ([]create.Volume, error) {
	var out []create.Volume
	plain := func(kind create.Kind, flag string, values []string) error {
		for _, value := range values {
			if value == "" {
				return cli.UsageErrorf("--%s: must not be empty", flag)
			}
			out = append(out, create.Volume{Kind: kind, Source: value, Plain: true})
		}
		return nil
	}
	parse := func(flag string, values []string, read func(string) (create.Volume, error)) error {
		for _, value := range values {
			volume, err := read(value)
			if err != nil {
				return cli.UsageErrorf("--%s %q: %s", flag, value, err)
			}
			if volume.Kind == create.Import {
				volume.Field = flag
			}
			out = append(out, volume)
		}
		return nil
	}
	of := func(kind create.Kind) func(string) (create.Volume, error) {
		return func(text string) (create.Volume, error) { return create.ParseVolume(kind, text) }
	}
	imported := func(kind string) func(string) (create.Volume, error) {
		return func(text string) (create.Volume, error) {
			return create.ParseImport(kind, text, func() string { return "imported-volume-" + random(5) })
		}
	}
	steps := []func() error{
		func() error { return plain(create.ContainerDisk, "container-disk", v.simpleDisks) },
		func() error { return parse("volume-containerdisk", v.containerDisks, of(create.ContainerDisk)) },
		func() error { return plain(create.Claim, "pvc", v.simpleClaims) },
		func() error { return parse("volume-pvc", v.claims, of(create.Claim)) },
		func() error { return parse("volume-datasource", v.dataSources, imported("ds")) },
		func() error { return parse("volume-clone-pvc", v.clones, imported("pvc")) },
		func() error { return parse("volume-blank", v.blanks, imported("blank")) },
		func() error { return parse("volume-import", v.imports, imported("")) },
		func() error { return parse("volume-empty", v.empties, of(create.Empty)) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sysprepSource reads --volume-sysprep, if it was given.
func (v *volumeFlags) sysprepSource(given bool) (create.Sysprep, error) {
	if !given {
		return create.Sysprep{}, nil
	}
	out, err := create.ParseSysprep(v.sysprep)
	if err != nil {
		return out, cli.UsageErrorf("--volume-sysprep %q: %s", v.sysprep, err)
	}
	return out, nil
}

// accessCredentials reads --access-cred.
func accessCredentials(values []string) ([]create.AccessCredential, error) {
	var out []create.AccessCredential
	for _, value := range values {
		credential, err := create.ParseAccessCredential(value)
		if err != nil {
			return nil, cli.UsageErrorf("--access-cred %q: %s", value, err)
		}
		out = append(out, credential)
	}
	return out, nil
}

// readPassword reads the first line of a file, or of in when path is "-".
func readPassword(in io.Reader, path string) (string, error) {
	data, err := cli.ReadFile(in, "--password-file", path, "")
	if err != nil {
		return "", err
	}
	password, _, _ := strings.Cut(string(data), "\n")
	password = strings.TrimSuffix(password, "\r")
	if password == "" {
		return "", cli.UsageErrorf("--password-file: %s is empty", path)
	}
	return password, nil
}
