package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// module is a kernel module as its .modinfo section describes it.
type module struct {
	path    string // kernel/drivers/net/virtio_net.ko, uncompressed
	data    []byte
	depends []string
	aliases []string
}

// kernelModules takes modules and those they depend on from a kernel package, unpacks them, and
// adds what modprobe needs to find them. Compression is the initramfs's, so it is done once.
func kernelModules(ctx context.Context, from tree, want []string) (tree, error) {
	const modules = "usr/lib/modules"
	files := map[string]string{} // module name to file
	version := ""
	for _, name := range from.names() {
		rel, ok := strings.CutPrefix(name, modules+"/")
		if !ok || !strings.Contains(name, ".ko") {
			continue
		}
		v, _, _ := strings.Cut(rel, "/")
		if version != "" && v != version {
			return nil, fmt.Errorf("modules of two kernels: %s and %s", version, v)
		}
		version = v
		files[moduleName(name)] = name
	}
	dir := path.Join(modules, version)
	found := map[string]module{}
	for todo := slices.Clone(want); len(todo) > 0; todo = todo[1:] {
		name := moduleName(todo[0])
		if _, ok := found[name]; ok {
			continue
		}
		file, ok := files[name]
		if !ok {
			return nil, fmt.Errorf("kernel %s has no module %s", version, todo[0])
		}
		m, err := readModule(ctx, from[file].Data, file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		m.path = strings.TrimPrefix(strings.TrimSuffix(file, ".xz"), dir+"/")
		found[name] = m
		todo = append(todo, m.depends...)
	}
	t := tree{}
	var deps, aliases strings.Builder
	for _, name := range sortedKeys(found) {
		m := found[name]
		t.file(path.Join(dir, m.path), 0o644, m.data)
		fmt.Fprintf(&deps, "%s:", m.path)
		for _, d := range allDepends(found, name) {
			fmt.Fprintf(&deps, " %s", found[d].path)
		}
		deps.WriteByte('\n')
		for _, a := range m.aliases {
			fmt.Fprintf(&aliases, "alias %s %s\n", a, name)
		}
	}
	t.file(path.Join(dir, "modules.dep"), 0o644, []byte(deps.String()))
	t.file(path.Join(dir, "modules.alias"), 0o644, []byte(aliases.String()))
	return t, nil
}

// moduleName is what the kernel calls the module in a file: virtio-rng.ko.xz is virtio_rng.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

func readModule(ctx context.Context, data []byte, file string) (m module, err error) {
	if strings.HasSuffix(file, ".xz") {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, "xz", "--decompress", "--stdout")
		cmd.Stdin, cmd.Stdout = bytes.NewReader(data), &out
		if err := cmd.Run(); err != nil {
			return m, fmt.Errorf("unpack with xz: %w", err)
		}
		data = out.Bytes()
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return m, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return m, fmt.Errorf("has no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return m, err
	}
	m.data = data
	for field := range strings.SplitSeq(string(info), "\x00") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "depends":
			for d := range strings.SplitSeq(value, ",") {
				if d != "" {
					m.depends = append(m.depends, moduleName(d))
				}
			}
		case "alias":
			m.aliases = append(m.aliases, value)
		}
	}
	return m, nil
}

// allDepends lists what must be loaded before a module, nearest first as modules.dep wants it.
func allDepends(all map[string]module, name string) []string {
	var out []string
	var visit func(string)
	visit = func(n string) {
		for _, d := range all[n].depends {
			if i := slices.Index(out, d); i >= 0 {
				out = slices.Delete(out, i, i+1) // needed even earlier
			}
			out = append(out, d)
			visit(d)
		}
	}
	visit(name)
	return out
}
