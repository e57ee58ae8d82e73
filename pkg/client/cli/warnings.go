package cli

import (
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/client/printable"
)

// warnings shows an API server's warnings, each once. They quote objects and admission webhooks.
func warnings(s *IOStreams) rest.WarningHandler {
	return cleanWarnings{
		rest.NewWarningWriter(s.RawErr(), rest.WarningWriterOptions{Deduplicate: true, Color: s.ColourErr()}),
	}
}

type cleanWarnings struct{ next rest.WarningHandler }

// HandleWarningHeader implements rest.WarningHandler.
func (w cleanWarnings) HandleWarningHeader(code int, agent, text string) {
	w.next.HandleWarningHeader(code, agent, printable.Line(text))
}
