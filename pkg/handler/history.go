package handler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/virtkit/virtkit/pkg/service/files"
)

const (
	// fastestEtcd is more writes a second than any etcd does. Resource versions count writes: they are further ahead
	// after a restore with `etcdutl --bump-revision`, which adds a billion.
	fastestEtcd = 100_000
	// historySlack is for a node whose clock was set back.
	historySlack = 10 * time.Minute
	// saveHistory is the interval at which the history is written to its file.
	saveHistory = time.Minute
)

// podList is the API server's answer to which pods a node should have.
type podList struct {
	pods            []types.UID
	resourceVersion string
}

// history holds what this virt-handler, and the one before it on the node, has seen of its cluster. An etcd that was
// restored from a backup, or is another cluster's, does not know pods that were made since, which nobody has removed.
type history struct {
	// Cluster is the UID of the namespace kube-system, and ResourceVersion that of the newest list of pods, seen at
	// Time.
	Cluster         types.UID `json:"cluster"`
	ResourceVersion string    `json:"resourceVersion"`
	Time            time.Time `json:"time"`
	// Ending are launchers that were asked to end and are not to be killed.
	Ending []types.UID `json:"ending,omitempty"`

	file  string
	saved time.Time
}

// loadHistory reads what was seen before; nothing when there is no file.
func loadHistory(file string) (history, error) {
	h := history{file: file}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	if err != nil {
		return history{file: file}, fmt.Errorf("read what was seen of the cluster: %w", err)
	}
	return h, nil
}

// doubt returns why a list does not follow from what was seen, or "" when it does.
func (h *history) doubt(list podList, cluster types.UID, now time.Time) string {
	if h.Cluster != "" && cluster != "" && h.Cluster != cluster {
		return fmt.Sprintf("it is another cluster: namespace kube-system has UID %s, and had %s", cluster, h.Cluster)
	}
	if h.older(list) {
		return fmt.Sprintf("its etcd has gone back from resource version %s to %s", h.ResourceVersion,
			list.resourceVersion)
	}
	was, err := strconv.ParseUint(h.ResourceVersion, 10, 64)
	if err != nil {
		return "" // nothing was seen, or these do not compare
	}
	is, err := strconv.ParseUint(list.resourceVersion, 10, 64)
	if err != nil {
		return ""
	}
	if most := (max(0, now.Sub(h.Time)) + historySlack).Seconds() * fastestEtcd; float64(is-was) > most {
		return fmt.Sprintf("its etcd has leapt from resource version %d to %d", was, is)
	}
	return ""
}

// older reports whether a list is older than one that was seen, which the answer of a cache may be.
func (h *history) older(list podList) bool {
	order, err := resourceversion.CompareResourceVersion(list.resourceVersion, h.ResourceVersion)
	return err == nil && order < 0
}

// follow remembers a list that is believed.
func (h *history) follow(list podList, cluster types.UID, now time.Time) error {
	if cluster != "" && cluster != h.Cluster {
		h.Cluster, h.saved = cluster, time.Time{}
	}
	if !h.older(list) {
		h.ResourceVersion, h.Time = list.resourceVersion, now
	}
	if !h.saved.IsZero() && now.Sub(h.saved) < saveHistory {
		return nil
	}
	return h.save(now)
}

// adopt remembers a list that does not follow from what was seen.
func (h *history) adopt(list podList, cluster types.UID, now time.Time) error {
	h.Cluster, h.ResourceVersion, h.Time = cluster, list.resourceVersion, now
	return h.save(now)
}

// token names the doubt about what follows; it is another one for each restored etcd.
func (h *history) token() string { return string(h.Cluster) + "." + h.ResourceVersion }

func (h *history) save(now time.Time) error {
	data, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode what was seen of the cluster: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(h.file), 0o700); err != nil {
		return fmt.Errorf("keep what was seen of the cluster: %w", err)
	}
	if err := files.Replace(h.file, data, 0o600); err != nil {
		return fmt.Errorf("keep what was seen of the cluster: %w", err)
	}
	h.saved = now
	return nil
}
