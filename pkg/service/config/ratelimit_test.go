package config

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestLimiter(t *testing.T) {
	l := NewLimiter(RateLimit{QPS: 50, Burst: 2})
	if l.QPS() != 50 || !l.TryAccept() || !l.TryAccept() || l.TryAccept() {
		t.Errorf("the component's own: %v a second", l.QPS())
	}
	bucket := l.now.Load()
	l.Set(RateLimit{})
	if l.now.Load() != bucket {
		t.Error("what is set again begins with a full bucket")
	}
	l.Set(RateLimit{QPS: 5, Burst: 1})
	if l.QPS() != 5 || !l.TryAccept() || l.TryAccept() {
		t.Errorf("set: %v a second", l.QPS())
	}
	l.Set(RateLimit{})
	if l.QPS() != 50 {
		t.Errorf("taken back: %v a second", l.QPS())
	}
	free := NewLimiter(RateLimit{QPS: -1})
	for range 1000 {
		if !free.TryAccept() {
			t.Fatal("no limit limits")
		}
	}
	free.Set(RateLimit{QPS: 1, Burst: 1})
	if !free.TryAccept() || free.TryAccept() {
		t.Error("a limit where the component has none")
	}
	if err := free.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	free.Stop()
}

func TestRateLimits(t *testing.T) {
	kv := &v1.KubeVirt{}
	const text = `
apiConfiguration: {restClient: {rateLimiter: {tokenBucketRateLimiter: {qps: 10, burst: 20}}}}
controllerConfiguration: {restClient: {}}
handlerConfiguration: {restClient: {rateLimiter: {tokenBucketRateLimiter: {qps: 1.5, burst: 3}}}}
`
	if err := yaml.UnmarshalStrict([]byte(text), &kv.Spec.Configuration); err != nil {
		t.Fatal(err)
	}
	got, err := FromKubeVirt(kv)
	if want := (RateLimits{API: RateLimit{10, 20}, Handler: RateLimit{1.5, 3}}); err != nil || got.RateLimits != want {
		t.Errorf("%+v, %v", got.RateLimits, err)
	}
}
