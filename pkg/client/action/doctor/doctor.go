// Package doctor examines a client, its cluster and virtkit on it, and says of each thing that is not well what fixes
// it. Gather reads the Facts, Examine judges them and is pure.
//
//	client.go   this program and its kubeconfig      stack.go   virtkit's components and certificates
//	cluster.go  Kubernetes and its storage           nodes.go   each node and its machine
//	                                                 policies.go its admission policies
package doctor

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiversion "k8s.io/apimachinery/pkg/version"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/version"
)

// Status of a check.
type Status string

// Statuses. Skipped is a check whose facts could not be read.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Area is the part of the stack that a check examines.
type Area string

// Areas in the order in which they are shown.
const (
	Client  Area = "client"
	Cluster Area = "cluster"
	Stack   Area = "stack"
	Node    Area = "node"
)

// Kind of a Report.
const Kind = "DoctorReport"

// Report is what `doctor -o json` prints: the outcome of all checks.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Status is the worst of the checks: ok, warning or failed.
	Status Status `json:"status"`
	// Checks are in the order of their areas.
	Checks []Check `json:"checks"`
}

// RowLists returns the key of the checks.
func (r *Report) RowLists() []string { return []string{"checks"} }

// Check is one thing that was looked at.
type Check struct {
	// Area is client, cluster, stack or node.
	Area Area `json:"area"`
	// Object is the node a check is about; empty elsewhere.
	Object string `json:"object,omitempty"`
	// Name is one word for programs; it does not change between versions.
	Name string `json:"name"`
	// Status is ok, warning, failed, or skipped when the facts could not be read.
	Status Status `json:"status"`
	// Message is a sentence for people.
	Message string `json:"message"`
	// Fixes are commands or settings that help, the best first.
	Fixes []string `json:"mend,omitempty"`
}

// DeepCopyObject copies the report.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.Checks = slices.Clone(r.Checks)
	return &out
}

// Facts hold what Examine judges. Each part has the error of its reading, nil when it could be read.
type Facts struct {
	Now time.Time

	Program Program
	// Explain says an error in words for the user; nil takes its own.
	Explain func(error) string
	// Server is the API server's version. Behind is how far its clock is behind ours, and RoundTrip how long it took to
	// answer.
	Server    Read[apiversion.Info]
	Behind    time.Duration
	RoundTrip time.Duration

	// VirtAPI is the version that virt-api gives; Admission is the answer to a VM created with dry run in Namespace.
	VirtAPI   Read[version.Info]
	Admission error
	Namespace string
	// Resources are those served below kubevirt.io/v1.
	Resources Read[[]string]

	KubeVirt       Read[*v1.KubeVirt]
	Pods           Read[[]corev1.Pod]
	Authorities    Read[[]Certificate]
	Policies       Read[Policies]
	StorageClasses Read[[]storagev1.StorageClass]
	Nodes          Read[[]corev1.Node]
	// SnapshotDrivers are the drivers of the cluster's VolumeSnapshotClasses. A cluster without that kind is an
	// ErrNoSnapshots.
	SnapshotDrivers Read[[]string]
}

// Program describes this program's surroundings.
type Program struct {
	Version version.Info
	// Name is how it was called. Path has the programs found in PATH, by name: kubectl, kubectl-virt,
	// kubectl_complete-virt, ssh, remote-viewer.
	Name string
	Path map[string]string
	// Context and Server are those of the kubeconfig in use.
	Context, Server string
	// CertNotAfter is when the client's certificate expires; zero without one.
	CertNotAfter time.Time
}

// Read is a fact, or why it is not known.
type Read[T any] struct {
	Value T
	Err   error
}

// Certificate holds the fields of a certificate that matter.
type Certificate struct {
	Subject   string
	NotBefore time.Time
	NotAfter  time.Time
}

// Examine judges the facts.
func Examine(f Facts) *Report {
	e := &examination{Facts: f}
	e.client()
	if f.Server.Err == nil {
		e.cluster()
		e.stack()
		e.nodes()
	}
	r := &Report{TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: Kind}, Status: OK, Checks: e.checks}
	for _, c := range e.checks {
		if c.Status == Failed || c.Status == Warning && r.Status == OK {
			r.Status = c.Status
		}
	}
	return r
}

type examination struct {
	Facts
	checks []Check
}

func (e *examination) add(area Area, name string, status Status, message string, fixes ...string) {
	e.checks = append(e.checks, Check{Area: area, Name: name, Status: status, Message: message, Fixes: fixes})
}

// skip adds a skipped check: its facts could not be read, and err says why, such as a missing right.
func (e *examination) skip(area Area, name, what string, err error) {
	e.add(area, name, Skipped, what+" not looked at: "+e.say(err))
}

// say returns an error in words for the user, on one line.
func (f *Facts) say(err error) string {
	text := err.Error()
	if f.Explain != nil {
		text = f.Explain(err)
	}
	return strings.Join(strings.Fields(text), " ")
}
