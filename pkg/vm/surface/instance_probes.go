package surface

// probeFields returns the fields of one of the probes. outcome says what follows from it, success is the row of its
// successThreshold.
func probeFields(probe, outcome string, success Field) []Field {
	success.Path, success.Effect = "successThreshold", Pod
	return below(nil, probe+".", []Field{
		{Path: "httpGet.path", Effect: Pod, Note: outcome},
		{Path: "httpGet.port", Effect: Pod, Note: "At the guest, by the address of its pod."},
		{Path: "httpGet.scheme", Effect: Pod, Only: []string{"HTTP", "HTTPS"}},
		{Path: "httpGet.httpHeaders.name", Effect: Pod},
		{Path: "httpGet.httpHeaders.value", Effect: Pod},
		{Path: "tcpSocket.port", Effect: Pod, Note: "At the guest, by the address of its pod."},
		{
			Path: "exec.command", Effect: Pod,
			Note: "In the guest, by its agent; it is ended when the time is up.",
		},
		{Path: "guestAgentPing", Effect: Pod},
		{Path: "initialDelaySeconds", Effect: Pod, Note: "From the start of the launcher's container on."},
		{Path: "timeoutSeconds", Effect: Pod, Note: "1 unless set."},
		{Path: "periodSeconds", Effect: Pod, Note: "10 unless set."},
		success,
		{Path: "failureThreshold", Effect: Pod, Note: "3 unless set."},
	})
}
