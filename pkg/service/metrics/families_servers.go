package metrics

// Of virt-api: who is connected, and what was asked for.
var (
	Consoles = family(API, Gauge, "kubevirt_console_active_connections",
		"Serial consoles that are open through this virt-api.", "namespace", "vmi")
	USBPorts = family(API, Gauge, "kubevirt_usbredir_active_connections",
		"USB redirections that are open through this virt-api.", "namespace", "vmi")
	Screens = family(API, Gauge, "kubevirt_vnc_active_connections",
		"VNC connections that are open through this virt-api.", "namespace", "vmi")
	Tunnels = family(API, Gauge, "kubevirt_portforward_active_tunnels",
		"Connections to ports of guests that are open through this virt-api.", "namespace", "vmi")
	LastConnection = family(API, Gauge, "kubevirt_vmi_last_api_connection_timestamp_seconds",
		"When somebody last connected to a guest through this virt-api: console, VNC, port, exec, cp.",
		"namespace", "vmi")
	APIReady = family(API, Gauge, "kubevirt_virt_api_ready_status", "1 while this virt-api serves requests.")
)

// seconds are the buckets of requests to the API server.
var seconds = []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0}

// Of every component. Those of queues and of the API server's clients are counted by the libraries, under the names of
// renamed.
var (
	Info = family(Everyone, Gauge, "kubevirt_info", "The version of virtkit, and of Go that made it.", "goversion",
		"kubeversion")

	requests = family(Everyone, Counter, "kubevirt_rest_client_requests_total",
		"Requests to the API server by status code, method and host.", "code", "method", "host")
	latency = histogram(Everyone, seconds, "kubevirt_rest_client_request_latency_seconds",
		"Time that requests to the API server took.", "verb", "host")
	rateLimiter = histogram(Everyone, seconds, "kubevirt_rest_client_rate_limiter_duration_seconds",
		"Time that requests to the API server were held back by the client itself.", "verb", "host")

	queueAdds = family(Everyone, Counter, "kubevirt_workqueue_adds_total",
		"Items that were put into a work queue.", "name")
	queueDepth    = family(Everyone, Gauge, "kubevirt_workqueue_depth", "Items in a work queue.", "name")
	queueDuration = histogram(Everyone, nil, "kubevirt_workqueue_queue_duration_seconds",
		"Time that items stayed in a work queue.", "name")
	queueWork = histogram(Everyone, nil, "kubevirt_workqueue_work_duration_seconds",
		"Time that the work on an item took.", "name")
	queueRetries = family(Everyone, Counter, "kubevirt_workqueue_retries_total",
		"Items that were tried again.", "name")
	queueUnfinished = family(Everyone, Gauge, "kubevirt_workqueue_unfinished_work_seconds",
		"Time of work that has begun and not ended.", "name")
	queueLongest = family(Everyone, Gauge, "kubevirt_workqueue_longest_running_processor_seconds",
		"Time of the longest work that has begun and not ended.", "name")
)

// Renamed are families that libraries count, by the libraries' name.
var Renamed = map[string]*Family{
	"rest_client_requests_total":                  requests,
	"rest_client_request_duration_seconds":        latency,
	"rest_client_rate_limiter_duration_seconds":   rateLimiter,
	"workqueue_adds_total":                        queueAdds,
	"workqueue_depth":                             queueDepth,
	"workqueue_queue_duration_seconds":            queueDuration,
	"workqueue_work_duration_seconds":             queueWork,
	"workqueue_retries_total":                     queueRetries,
	"workqueue_unfinished_work_seconds":           queueUnfinished,
	"workqueue_longest_running_processor_seconds": queueLongest,
}
