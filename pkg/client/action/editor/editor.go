// Package editor hands text to the user's editor and takes it back. The dashboard, which has the terminal itself, uses
// only its files.
package editor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// maxText bounds what an editor may leave, bytes.
const maxText = 4 << 20

// Command returns the command line of the user's editor, chosen as kubectl does. One with quotes is the shell's to take
// apart, but in Windows, where \ is of paths.
func Command(env func(string) string) []string {
	for _, name := range []string{"KUBE_EDITOR", "VISUAL", "EDITOR"} {
		line := strings.TrimSpace(env(name))
		switch {
		case line == "":
			continue
		case runtime.GOOS != "windows" && strings.ContainsAny(line, `"'\`):
			return []string{"/bin/sh", "-c", line + ` "$1"`, line}
		}
		return strings.Fields(line)
	}
	return []string{"vi"}
}

// Editor opens texts in an editor, which has the streams meanwhile.
type Editor struct {
	// Command is its command line, to which a file is added.
	Command     []string
	In          io.Reader
	Out, ErrOut io.Writer
}

// Edit opens a text in a file that nobody else can read, waits until the editor has ended, and returns what it left.
func (e Editor) Edit(ctx context.Context, text string) (string, error) {
	name, err := Keep(text)
	if err != nil {
		return "", err
	}
	defer os.Remove(name) // a leftover is nobody's but the user's
	//nolint:gosec // the user's own editor
	command := exec.CommandContext(ctx, e.Command[0], append(e.Command[1:len(e.Command):len(e.Command)], name)...)
	command.Stdin, command.Stdout, command.Stderr = e.In, e.Out, e.ErrOut
	if err := command.Run(); err != nil {
		name := e.Command[0]
		if name == "/bin/sh" { // its own name for the script is the editor's command line
			name = e.Command[len(e.Command)-1]
		}
		return "", fmt.Errorf("editor %s: %w; KUBE_EDITOR and EDITOR choose another", name, err)
	}
	return Read(name)
}

// Read returns the text that an editor left in a file.
func Read(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", fmt.Errorf("read what the editor left: %w", err)
	}
	if info.Size() > maxText {
		return "", fmt.Errorf("the text has more than %d MiB", maxText>>20)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read what the editor left: %w", err)
	}
	return string(data), nil
}

// Keep writes a text to a new file that nobody else can read, and returns its name.
func Keep(text string) (string, error) {
	file, err := os.CreateTemp("", "virtctl-edit-*.yaml")
	if err != nil {
		return "", fmt.Errorf("make a file for the editor: %w", err)
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("write the editor's file: %w", err), os.Remove(file.Name()))
	}
	return file.Name(), nil
}

// Uncommented returns a text without the comment lines that it begins with.
func Uncommented(text string) string {
	for strings.HasPrefix(text, "#") {
		_, rest, _ := strings.Cut(text, "\n")
		text = rest
	}
	return text
}
