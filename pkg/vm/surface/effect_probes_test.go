package surface_test

// probeExamples are those of the probes' fields.
var probeExamples = map[string]struct{ before, value string }{
	"readinessProbe.httpGet.path":   {before: "readinessProbe: {httpGet: {port: 80}}", value: "/ok"},
	"readinessProbe.httpGet.port":   {before: "readinessProbe: {httpGet: {port: 80}}", value: "81"},
	"readinessProbe.httpGet.scheme": {before: "readinessProbe: {httpGet: {port: 80}}", value: "HTTPS"},
	"readinessProbe.httpGet.httpHeaders.name": {
		before: "readinessProbe: {httpGet: {port: 80, httpHeaders: [{name: A, value: b}]}}", value: "C",
	},
	"readinessProbe.httpGet.httpHeaders.value": {
		before: "readinessProbe: {httpGet: {port: 80, httpHeaders: [{name: A, value: b}]}}", value: "c",
	},
	"readinessProbe.tcpSocket.port":      {before: "readinessProbe: {tcpSocket: {port: 80}}", value: "81"},
	"readinessProbe.exec.command":        {before: "readinessProbe: {exec: {command: [a]}}", value: "[b]"},
	"readinessProbe.guestAgentPing":      {value: "{}"},
	"readinessProbe.initialDelaySeconds": {before: "readinessProbe: {guestAgentPing: {}}", value: "5"},
	"readinessProbe.timeoutSeconds":      {before: "readinessProbe: {guestAgentPing: {}}", value: "5"},
	"readinessProbe.periodSeconds":       {before: "readinessProbe: {guestAgentPing: {}}", value: "5"},
	"readinessProbe.successThreshold":    {before: "readinessProbe: {guestAgentPing: {}}", value: "5"},
	"readinessProbe.failureThreshold":    {before: "readinessProbe: {guestAgentPing: {}}", value: "5"},
	"livenessProbe.httpGet.path":         {before: "livenessProbe: {httpGet: {port: 80}}", value: "/ok"},
	"livenessProbe.httpGet.port":         {before: "livenessProbe: {httpGet: {port: 80}}", value: "81"},
	"livenessProbe.httpGet.scheme":       {before: "livenessProbe: {httpGet: {port: 80}}", value: "HTTPS"},
	"livenessProbe.httpGet.httpHeaders.name": {
		before: "livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: A, value: b}]}}", value: "C",
	},
	"livenessProbe.httpGet.httpHeaders.value": {
		before: "livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: A, value: b}]}}", value: "c",
	},
	"livenessProbe.tcpSocket.port":      {before: "livenessProbe: {tcpSocket: {port: 80}}", value: "81"},
	"livenessProbe.exec.command":        {before: "livenessProbe: {exec: {command: [a]}}", value: "[b]"},
	"livenessProbe.guestAgentPing":      {value: "{}"},
	"livenessProbe.initialDelaySeconds": {before: "livenessProbe: {guestAgentPing: {}}", value: "5"},
	"livenessProbe.timeoutSeconds":      {before: "livenessProbe: {guestAgentPing: {}}", value: "5"},
	"livenessProbe.periodSeconds":       {before: "livenessProbe: {guestAgentPing: {}}", value: "5"},
	"livenessProbe.successThreshold":    {before: "livenessProbe: {guestAgentPing: {}}", value: "5"},
	"livenessProbe.failureThreshold":    {before: "livenessProbe: {guestAgentPing: {}}", value: "5"},
}
