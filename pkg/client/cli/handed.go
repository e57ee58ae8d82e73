package cli

import "github.com/virtkit/virtkit/pkg/client/action"

// EndedByItself returns how a program ends whose session the guest has ended: nil, but to the dashboard it says so.
func (f *Factory) EndedByItself() error {
	if f.Getenv(action.Handed) == "" {
		return nil
	}
	return &ExitError{Code: action.EndedByItself}
}
