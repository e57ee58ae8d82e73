package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/virtkit/virtkit/tests/bench/report"
)

// virtctlVersion weighs the client's start beside that of kubectl, in turns.
func virtctlVersion(ctx context.Context, b *bench) ([]Row, error) {
	programs := []*weighed{{path: b.Bin("virtctl")}}
	kubectl, err := kubectl(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "no kubectl to compare with:", err)
	} else {
		programs = append(programs, &weighed{path: kubectl})
	}
	for range 2 * b.rounds {
		for _, p := range programs {
			if err := p.start(ctx); err != nil {
				return nil, err
			}
		}
	}
	ours := programs[0]
	speed := report.Timed("virtctl-version", "virtctl version --client, median", "ms", ours.times, .5).AtMost(9)
	memory := Row{
		Name: "virtctl-rss", What: "virtctl version --client, peak RSS", Unit: "MiB",
		Value: mebibytes(ours.peak),
	}.AtMost(21)
	if len(programs) > 1 {
		theirs := programs[1]
		speed = speed.Beside("kubectl", theirs.times, .5)
		memory.Anchor, memory.Versus = mebibytes(theirs.peak), "kubectl"
		memory.Ratio = memory.Value / memory.Anchor
	}
	return []Row{speed, memory}, nil
}

// weighed is a program whose `version --client` is measured.
type weighed struct {
	path  string
	times []time.Duration
	peak  int64 // bytes
}

func (w *weighed) start(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, w.path, "version", "--client")
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	w.times = append(w.times, time.Since(start))
	memory, err := peakMemory(w.path, "version", "--client")
	w.peak = max(w.peak, memory)
	return err
}

// kubectl is the path of a kubectl built like virtctl, from the module that virt-local has. The first time it is
// compiled, which takes a minute or two.
func kubectl(ctx context.Context) (path string, err error) {
	const module = "cmd/virt-local"
	version, err := output(ctx, module, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	path, err = filepath.Abs(filepath.Join(".cache", "tools", "kubectl-"+version))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	// Its own dependencies are not among virt-local's, and are not to become so: a copy of go.mod takes them.
	scratch, err := os.MkdirTemp("", "kubectl-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(scratch, name), text, 0o600); err != nil {
			return "", err
		}
	}
	fmt.Fprintln(os.Stderr, "building kubectl", version)
	built := filepath.Join(scratch, "kubectl")
	if _, err := output(ctx, module, "go", "build", "-mod=mod", "-modfile="+filepath.Join(scratch, "go.mod"),
		"-ldflags=-s -w", "-o", built, "k8s.io/kubernetes/cmd/kubectl"); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	_, err = output(ctx, ".", "mv", built, path)
	return path, err
}

func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
