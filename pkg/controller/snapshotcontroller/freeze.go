package snapshotcontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Freezer keeps guests from writing.
type Freezer interface {
	// Freeze has a guest write out what it holds in memory and write no more until Unfreeze, or for a time at most. It
	// may be called again, which begins the time anew.
	Freeze(ctx context.Context, vmi types.NamespacedName, most time.Duration) (snapshots.Quiesced, error)
	// Unfreeze undoes Freeze, if that did anything. It fails where no guest is found.
	Unfreeze(ctx context.Context, vmi types.NamespacedName) error
}

// callTimeout bounds a call of virt-api, which waits for the guest's agent.
const callTimeout = time.Minute

// vssLimit is in the answer of a Windows guest that could not stay frozen as long as it took.
const vssLimit = "fsfreeze is limited"

// subresources freezes by virt-api's subresources.
type subresources struct{ client rest.Interface }

// NewFreezer makes a Freezer that asks virt-api.
func NewFreezer(config *rest.Config) (Freezer, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &schema.GroupVersion{
		Group: v1.SubresourceGroupName, Version: v1.SubresourceStorageGroupVersion.Version,
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client of subresources: %w", err)
	}
	return &subresources{client}, nil
}

func (s *subresources) put(
	ctx context.Context, vmi types.NamespacedName, verb string, query map[string]string, body []byte,
) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := s.client.Verb(http.MethodPut).Namespace(vmi.Namespace).Resource("virtualmachineinstances").
		Name(vmi.Name).SubResource(verb).SetHeader("Content-Type", "application/json").Body(body)
	for key, value := range query {
		request = request.Param(key, value)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil { // Raw's error is without the server's words
		return nil, fmt.Errorf("%s VMI %s: %w", verb, vmi.Name, err)
	}
	return result.Raw()
}

// Freeze implements Freezer. A guest whose agent does not answer is paused.
func (s *subresources) Freeze(
	ctx context.Context, vmi types.NamespacedName, most time.Duration,
) (snapshots.Quiesced, error) {
	body, err := json.Marshal(v1.FreezeUnfreezeTimeout{UnfreezeTimeout: &metav1.Duration{Duration: most}})
	if err != nil {
		return "", fmt.Errorf("encode the time of a freeze: %w", err)
	}
	answer, err := s.put(ctx, vmi, "freeze", map[string]string{"withoutAgent": "pause"}, body)
	if err != nil {
		return "", err
	}
	if len(answer) == 0 {
		return snapshots.QuiescedAgent, nil // a virt-api that knows of no other way
	}
	var how struct {
		Quiesced snapshots.Quiesced `json:"quiesced"`
	}
	if err := json.Unmarshal(answer, &how); err != nil {
		return "", fmt.Errorf("read the answer to a freeze of VMI %s: %w", vmi.Name, err)
	}
	return how.Quiesced, nil
}

// Unfreeze implements Freezer.
func (s *subresources) Unfreeze(ctx context.Context, vmi types.NamespacedName) error {
	_, err := s.put(ctx, vmi, "unfreeze", nil, nil)
	return err
}

// timedOut reports an error of Unfreeze that says that the guest wrote again before.
func timedOut(err error) bool { return err != nil && strings.Contains(err.Error(), vssLimit) }
