package frame

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// indexer is a cache that remembers its last index.
type indexer struct {
	name string
	of   client.IndexerFunc
	err  error
}

func (i *indexer) IndexField(_ context.Context, _ client.Object, name string, of client.IndexerFunc) error {
	i.name, i.of = name, of
	return i.err
}

func TestIndex(t *testing.T) {
	cache := &indexer{}
	byNode := func(pod *corev1.Pod) []string { return []string{pod.Spec.NodeName} }
	if err := Index(t.Context(), cache, &corev1.Pod{}, "node", "pods by node", byNode); err != nil {
		t.Fatal(err)
	}
	if cache.name != "node" {
		t.Errorf("the index is %q", cache.name)
	}
	pod := &corev1.Pod{}
	if keys := cache.of(pod); len(keys) > 0 {
		t.Errorf("a pod without a node is found by %q", keys)
	}
	pod.Spec.NodeName = "node1"
	if keys := cache.of(pod); !slices.Equal(keys, []string{"node1"}) {
		t.Errorf("keys %q", keys)
	}
	cache.err = errors.New("started already")
	err := Index(t.Context(), cache, &corev1.Pod{}, "node", "pods by node", byNode)
	if err == nil || err.Error() != "index pods by node: started already" || !errors.Is(err, cache.err) {
		t.Errorf("error %v", err)
	}
}
