package cli

import (
	"fmt"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/client/printable"
)

// Warn shows a warning, unless it was shown before: the API server may give the same one.
func (f *Factory) Warn(text string) { f.warnings.say(f.IO, text) }

// serverWarnings shows an API server's warnings, which quote objects and admission webhooks.
type serverWarnings struct {
	streams *IOStreams
	shown   *shownWarnings
}

// warnings makes the handler of what API servers warn of.
func warnings(s *IOStreams, shown *shownWarnings) rest.WarningHandler {
	return serverWarnings{s, shown}
}

// miscellaneous is the code of the warnings that API servers give.
const miscellaneous = 299

// HandleWarningHeader implements rest.WarningHandler.
func (w serverWarnings) HandleWarningHeader(code int, _, text string) {
	if code == miscellaneous && text != "" {
		w.shown.say(w.streams, text)
	}
}

// shownWarnings are those that were shown: each is shown once.
type shownWarnings struct {
	mu   sync.Mutex
	said map[string]bool
}

func (w *shownWarnings) say(to *IOStreams, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said[text] {
		return
	}
	if w.said == nil {
		w.said = map[string]bool{}
	}
	w.said[text] = true
	word := "warning"
	if to.ColourErr() {
		word = Yellow.paint(word)
	}
	fmt.Fprintf(to.RawErr(), "%s: %s\n", word, printable.Line(text))
}
