package cli

import (
	"fmt"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/client/printable"
)

// warnings shows an API server's warnings, each once. They quote objects and admission webhooks.
func warnings(s *IOStreams) rest.WarningHandler {
	return &serverWarnings{streams: s, said: map[string]bool{}}
}

type serverWarnings struct {
	streams *IOStreams

	mu   sync.Mutex
	said map[string]bool
}

// miscellaneous is the code of the warnings that API servers give.
const miscellaneous = 299

// HandleWarningHeader implements rest.WarningHandler.
func (w *serverWarnings) HandleWarningHeader(code int, _, text string) {
	if code != miscellaneous || text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said[text] {
		return
	}
	w.said[text] = true
	word := "warning"
	if w.streams.ColourErr() {
		word = Yellow.paint(word)
	}
	fmt.Fprintf(w.streams.RawErr(), "%s: %s\n", word, printable.Line(text))
}
