package app

import (
	"errors"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/editor"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// edit hands the terminal to the user's editor with a file that nobody else can read, and takes the text back.
func (a *App) edit(e page.EditText) tea.Cmd {
	fail := func(err error) tea.Cmd { return page.Send(e.Done("", err)) }
	if len(a.Editor) == 0 {
		return fail(errors.New("there is none; set EDITOR"))
	}
	name, err := editor.Keep(e.Text)
	if err != nil {
		return fail(err)
	}
	command := a.Command(a.Editor[0], append(a.Editor[1:len(a.Editor):len(a.Editor)], name)...)
	return tea.ExecProcess(command, func(err error) tea.Msg {
		text, err := editor.Take(name, e.Text, err)
		if kept := (*editor.KeptError)(nil); errors.As(err, &kept) {
			a.kept = kept.Name
		}
		return e.Done(text, err)
	})
}

// Kept is the file with what was written in an editor that was ended by a signal, or failed, last; "" for none.
func (a *App) Kept() string { return a.kept }
