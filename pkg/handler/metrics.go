package handler

import (
	"context"
	"crypto/tls"

	"github.com/virtkit/virtkit/pkg/handler/usage"
	"github.com/virtkit/virtkit/pkg/service/metrics"
	"github.com/virtkit/virtkit/pkg/service/metrics/endpoint"
)

// serveMetrics serves Prometheus.
func (h *handler) serveMetrics(
	ctx context.Context, reader *usage.Reader, config *tls.Config, ready <-chan struct{},
) error {
	answer := endpoint.New()
	answer.Add(func(ctx context.Context, w *metrics.Writer) {
		readings, missing := reader.Read(ctx, nil, true)
		usage.Write(w, h.options.node, readings, len(missing))
	})
	answer.Add(func(_ context.Context, w *metrics.Writer) {
		w.Family(metrics.StorageStuck)
		w.Series(float64(h.node.steps.count()), metrics.Labels([]string{"node"}, h.options.node))
	})
	answer.Flag(metrics.HandlerReady, func() bool {
		select {
		case <-ready:
			return true
		default:
			return false
		}
	})
	return answer.Listen(ctx, h.metricsPort, config, h.cluster)
}
