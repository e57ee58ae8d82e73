package action

// HostError is a failure to talk to another host than the cluster's API server: the one that has an image, or an
// export.
type HostError struct {
	// Host is the host's name or address, with the port where an address has one.
	Host string
	Err  error
}

func (e *HostError) Error() string { return e.Err.Error() }

// Unwrap returns what has failed.
func (e *HostError) Unwrap() error { return e.Err }
