package virtapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emicklei/go-restful/v3"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

const (
	// statsTimeout bounds one node's answer.
	statsTimeout = 6 * time.Second
	// maxStats bounds it in bytes: some 10,000 guests.
	maxStats = 32 << 20
)

// stats answers with what guests use, those of the path's namespace or all; one question a node.
func (q *requests) stats(r *restful.Request, w *restful.Response) error {
	query := url.Values{}
	if namespace := r.PathParameter("namespace"); namespace != "" {
		query.Set("namespace", namespace)
	}
	list := stats.List{Items: []stats.Guest{}}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, node := range q.nodes.all() {
		group.Go(func() {
			host, err := q.nodes.handler(node)
			var found stats.List
			if err == nil {
				found, err = q.nodeStats(r.Request.Context(), node, host, query)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				list.Unreachable = append(list.Unreachable, stats.Unreachable{Node: node, Error: err.Error()})
				return
			}
			for i := range found.Items {
				found.Items[i].Node = node
			}
			list.Items = append(list.Items, found.Items...)
			for _, guest := range found.Unanswered {
				guest.Node = node
				list.Unanswered = append(list.Unanswered, guest)
			}
		})
	}
	group.Wait()
	slices.SortFunc(list.Items, func(a, b stats.Guest) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	slices.SortFunc(list.Unanswered, func(a, b stats.Unanswered) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	slices.SortFunc(list.Unreachable, func(a, b stats.Unreachable) int { return strings.Compare(a.Node, b.Node) })
	w.Header().Set("Content-Type", restful.MIME_JSON)
	return json.NewEncoder(w).Encode(list)
}

func (q *requests) nodeStats(ctx context.Context, node, host string, query url.Values) (stats.List, error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	target := url.URL{Scheme: "https", Host: host, Path: "/v1/stats", RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return stats.List{}, err
	}
	response, err := q.handlers.of(node).Do(request)
	if err != nil {
		return stats.List{}, fmt.Errorf("virt-handler does not answer: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return stats.List{}, fmt.Errorf("virt-handler answers %s", response.Status)
	}
	var list stats.List
	if err := json.NewDecoder(io.LimitReader(response.Body, maxStats)).Decode(&list); err != nil {
		return stats.List{}, fmt.Errorf("read virt-handler's answer: %w", err)
	}
	return list, nil
}

// all returns the nodes that have, or should have, a virt-handler.
func (n *nodes) all() []string {
	return n.informer.GetIndexer().ListIndexFuncValues(byNode)
}
