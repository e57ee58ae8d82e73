package upload

import (
	"context"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/virtkit/virtkit/pkg/client/action/events"
)

// Reader is what Warning needs of a client.
type Reader interface {
	Read(ctx context.Context, path string, query url.Values, into any) error
}

// Warning returns what the newest warning about a claim says: its class cannot make such a volume, say. It is empty
// when there is none, or it cannot be read.
func Warning(ctx context.Context, r Reader, namespace, claim string) string {
	var list corev1.EventList
	query := url.Values{"fieldSelector": {fields.Set{
		"involvedObject.kind": "PersistentVolumeClaim", "involvedObject.name": claim, "type": corev1.EventTypeWarning,
	}.String()}}
	if err := r.Read(ctx, "/api/v1/namespaces/"+namespace+"/events", query, &list); err != nil {
		return "" // it is only for the reason, and there is another
	}
	list.Items = slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		return strings.Contains(e.Message, outdated) // whoever met that has tried again
	})
	if len(list.Items) == 0 {
		return ""
	}
	newest := slices.MaxFunc(list.Items, func(a, b corev1.Event) int {
		return events.When(&a).Compare(events.When(&b))
	})
	return "the newest warning about the claim is: " + newest.Message
}

// outdated is in the API server's error of a write to an object that somebody else has written to meanwhile.
const outdated = "the object has been modified; please apply your changes to the latest version"
