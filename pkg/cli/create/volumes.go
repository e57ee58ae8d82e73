package create

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/virtkit/virtkit/pkg/action/create"
	"github.com/virtkit/virtkit/pkg/cli"
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
	flags.StringArrayVar(&v.simpleClaims, "pvc", nil, "`NAME` of a PersistentVolumeClaim to use as a disk (can be repeated)")
	flags.StringArrayVar(&v.empties, "volume-empty", nil, "Empty disk as `size:SIZE[,name:NAME][,bootorder:N]`; it lives as long as the VM runs (can be repeated)")
	flags.StringArrayVar(&v.containerDisks, "volume-containerdisk", nil, "Container disk as `src:IMAGE[,name:NAME][,bootorder:N]` (can be repeated)")
	flags.StringArrayVar(&v.claims, "volume-pvc", nil, "PersistentVolumeClaim as `src:NAME[,name:NAME][,bootorder:N][,readonly:true]` (can be repeated)")
	flags.StringArrayVar(&v.imports, "volume-import", nil, importUsage())
	flags.StringVar(&v.sysprep, "volume-sysprep", "", "ConfigMap or Secret with Windows' answer file, as `src:NAME[,type:configMap|secret]`")
}

// addDeprecated registers the flags that scripts may still have.
func (v *volumeFlags) addDeprecated(flags *pflag.FlagSet) {
	flags.StringArrayVar(&v.dataSources, "volume-datasource", nil, "DataSource to clone, as `src:[NAMESPACE/]NAME[,name:NAME][,size:SIZE][,bootorder:N]` (can be repeated)\nDEPRECATED: use --volume-import type:ds,…")
	flags.StringArrayVar(&v.clones, "volume-clone-pvc", nil, "Claim to clone, as `src:NAMESPACE/NAME[,name:NAME][,size:SIZE][,bootorder:N]` (can be repeated)\nDEPRECATED: use --volume-import type:pvc,…")
	flags.StringArrayVar(&v.blanks, "volume-blank", nil, "Blank volume, as `size:SIZE[,name:NAME][,bootorder:N]` (can be repeated)\nDEPRECATED: use --volume-import type:blank,…")
}

func importUsage() string {
	var out strings.Builder
	out.WriteString("Volume that CDI fills, as `type:TYPE,size:SIZE[,name:NAME][,bootorder:N]` and by type (can be repeated)")
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
	parse := func(flag string, values []string, read func(*parameters) create.Volume) error {
		for _, value := range values {
			p, err := parseParameters(value)
			if err != nil {
				return cli.UsageErrorf("--%s %q: %s", flag, value, err)
			}
			volume := read(p)
			if volume.Kind == create.Import {
				volume.Field = flag
			}
			if err := p.done(); err != nil {
				return cli.UsageErrorf("--%s %q: %s", flag, value, err)
			}
			out = append(out, volume)
		}
		return nil
	}
	imported := func(kind string) func(*parameters) create.Volume {
		return func(p *parameters) create.Volume {
			volume := create.Volume{Kind: create.Import, Import: create.DataSource{Type: kind}}
			for _, name := range append([]string{"size"}, create.ImportParameters(kind)...) {
				if value, ok := p.take(name); ok {
					volume.Import.Set(name, value)
				}
			}
			volume.Name, volume.BootOrder = p.text("name"), p.bootOrder()
			return volume
		}
	}
	steps := []func() error{
		func() error { return plain(create.ContainerDisk, "container-disk", v.simpleDisks) },
		func() error {
			return parse("volume-containerdisk", v.containerDisks, func(p *parameters) create.Volume {
				return create.Volume{Kind: create.ContainerDisk, Source: p.must("src"), Name: p.text("name"), BootOrder: p.bootOrder()}
			})
		},
		func() error { return plain(create.Claim, "pvc", v.simpleClaims) },
		func() error {
			return parse("volume-pvc", v.claims, func(p *parameters) create.Volume {
				return create.Volume{Kind: create.Claim, Source: p.must("src"), Name: p.text("name"), BootOrder: p.bootOrder(), ReadOnly: p.yes("readonly")}
			})
		},
		func() error { return parse("volume-datasource", v.dataSources, imported("ds")) },
		func() error { return parse("volume-clone-pvc", v.clones, imported("pvc")) },
		func() error { return parse("volume-blank", v.blanks, imported("blank")) },
		func() error {
			return parse("volume-import", v.imports, func(p *parameters) create.Volume {
				kind := p.must("type")
				if kind != "" && create.ImportParameters(kind) == nil {
					p.fail("type %q is not one of %s", kind, strings.Join(create.ImportTypes(), ", "))
				}
				volume := imported(kind)(p)
				if volume.Name == "" {
					volume.Name = "imported-volume-" + random(5)
				}
				return volume
			})
		},
		func() error {
			return parse("volume-empty", v.empties, func(p *parameters) create.Volume {
				return create.Volume{Kind: create.Empty, Source: p.must("size"), Name: p.text("name"), BootOrder: p.bootOrder()}
			})
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sysprepSource reads --volume-sysprep.
func (v *volumeFlags) sysprepSource() (create.Sysprep, error) {
	if v.sysprep == "" {
		return create.Sysprep{}, nil
	}
	p, err := parseParameters(v.sysprep)
	if err == nil {
		out := create.Sysprep{Name: p.must("src"), Type: p.text("type")}
		if err = p.done(); err == nil {
			return out, nil
		}
	}
	return create.Sysprep{}, cli.UsageErrorf("--volume-sysprep %q: %s", v.sysprep, err)
}

// accessCredentials reads --access-cred.
func accessCredentials(values []string) ([]create.AccessCredential, error) {
	var out []create.AccessCredential
	for _, value := range values {
		p, err := parseParameters(value)
		if err != nil {
			return nil, cli.UsageErrorf("--access-cred %q: %s", value, err)
		}
		out = append(out, create.AccessCredential{Type: p.text("type"), Source: p.must("src"), Method: p.text("method"), User: p.text("user")})
		if err := p.done(); err != nil {
			return nil, cli.UsageErrorf("--access-cred %q: %s", value, err)
		}
	}
	return out, nil
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
