package emulator

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// letters are the keys whose sequences end in a letter, tildes those with a number before a tilde.
var (
	letters = map[rune]byte{
		tea.KeyUp: 'A', tea.KeyDown: 'B', tea.KeyRight: 'C', tea.KeyLeft: 'D', tea.KeyHome: 'H', tea.KeyEnd: 'F',
		tea.KeyF1: 'P', tea.KeyF2: 'Q', tea.KeyF3: 'R', tea.KeyF4: 'S',
	}
	tildes = map[rune]int{
		tea.KeyInsert: 2, tea.KeyDelete: 3, tea.KeyPgUp: 5, tea.KeyPgDown: 6,
		tea.KeyF5: 15, tea.KeyF6: 17, tea.KeyF7: 18, tea.KeyF8: 19, tea.KeyF9: 20, tea.KeyF10: 21, tea.KeyF11: 23,
		tea.KeyF12: 24,
	}
	plain = map[rune]string{
		tea.KeyEnter: "\r", tea.KeyTab: "\t", tea.KeyBackspace: "\x7f", tea.KeyEscape: "\x1b",
		tea.KeySpace: " ",
	}
)

// Key returns what a terminal sends for a key; nothing for one that has no meaning to a guest.
func (t *Terminal) Key(k tea.KeyPressMsg) string {
	modifiers := 1
	for mod, bit := range map[tea.KeyMod]int{tea.ModShift: 1, tea.ModAlt: 2, tea.ModCtrl: 4} {
		if k.Mod&mod != 0 {
			modifiers += bit
		}
	}
	if letter, ok := letters[k.Code]; ok {
		switch {
		case modifiers > 1:
			return fmt.Sprintf("\x1b[1;%d%c", modifiers, letter)
		case letter >= 'P' || t.applicationCursor:
			return "\x1bO" + string(letter)
		}
		return "\x1b[" + string(letter)
	}
	if number, ok := tildes[k.Code]; ok {
		if modifiers > 1 {
			return fmt.Sprintf("\x1b[%d;%d~", number, modifiers)
		}
		return fmt.Sprintf("\x1b[%d~", number)
	}
	text := k.Text
	switch special, ok := plain[k.Code]; {
	case k.Code == tea.KeyTab && k.Mod&tea.ModShift != 0:
		return "\x1b[Z"
	case k.Mod&tea.ModCtrl != 0:
		text = controlled(k.Code)
	case ok:
		text = special
	case text == "" && k.Code >= ' ' && k.Code < tea.KeyExtended:
		text = string(k.Code)
	}
	if text != "" && k.Mod&tea.ModAlt != 0 {
		text = "\x1b" + text
	}
	return text
}

// controlled returns the control character that a key makes.
func controlled(code rune) string {
	switch {
	case code >= 'a' && code <= 'z':
		return string(code - 'a' + 1)
	case code >= '@' && code <= '_':
		return string(code - '@')
	case code == ' ' || code == '2':
		return "\x00"
	case code == '/':
		return "\x1f"
	case code == tea.KeyBackspace:
		return "\b"
	case code == '?' || code == '8':
		return "\x7f"
	}
	return plain[code]
}

// Paste returns text as a terminal sends it that was pasted: lines end as with Enter, and nothing in it can end the
// bracketed paste.
func (t *Terminal) Paste(text string) string {
	text = strings.NewReplacer("\r\n", "\r", "\n", "\r").Replace(text)
	if !t.bracketedPaste {
		return text
	}
	return "\x1b[200~" + strings.ReplaceAll(text, "\x1b", "") + "\x1b[201~"
}
