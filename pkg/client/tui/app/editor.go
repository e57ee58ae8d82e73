package app

import (
	"errors"
	"fmt"
	"os"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// maxEdited bounds what an editor may leave, bytes.
const maxEdited = 4 << 20

// edit hands the terminal to the user's editor with a file that nobody else can read, and takes the text back.
func (a *App) edit(e page.EditText) tea.Cmd {
	fail := func(err error) tea.Cmd { return page.Send(e.Done("", err)) }
	if len(a.Editor) == 0 {
		return fail(errors.New("there is none; set EDITOR"))
	}
	file, err := os.CreateTemp("", "virtkit-*.yaml") // readable by its owner only
	if err != nil {
		return fail(err)
	}
	_, err = file.WriteString(e.Text)
	if err = errors.Join(err, file.Close()); err != nil {
		return fail(errors.Join(err, os.Remove(file.Name())))
	}
	command := a.Command(a.Editor[0], append(a.Editor[1:len(a.Editor):len(a.Editor)], file.Name())...)
	return tea.ExecProcess(command, func(err error) tea.Msg {
		text, readErr := readBack(file.Name())
		return e.Done(text, errors.Join(err, readErr, os.Remove(file.Name())))
	})
}

func readBack(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.Size() > maxEdited {
		return "", fmt.Errorf("the text has more than %d MiB", maxEdited>>20)
	}
	data, err := os.ReadFile(name)
	return string(data), err
}
