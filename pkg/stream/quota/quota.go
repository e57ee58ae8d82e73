// Package quota bounds how many streams a server has open: in all, of one user and to one VM. virt-api and virt-handler
// ask it before they upgrade a request, so that a client over a limit gets an answer and not a connection that ends.
package quota

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits are the numbers of streams that may be open at a time; 0 means any number.
type Limits struct {
	All, PerUser, PerVM int
}

// AddFlags adds --max-streams and its like, with the limits as they are as defaults.
func (l *Limits) AddFlags(f *pflag.FlagSet) {
	f.IntVar(&l.All, "max-streams", l.All, "streams (consoles, screens, forwarded connections, followed logs) that "+
		"may be open at a time; 0 is any number")
	f.IntVar(&l.PerUser, "max-streams-per-user", l.PerUser,
		"streams of one user that may be open at a time; 0 is any number")
	f.IntVar(&l.PerVM, "max-streams-per-vm", l.PerVM,
		"streams to one virtual machine that may be open at a time; 0 is any number")
}

// retryAfter is the time after which a refused client may ask again, seconds.
const retryAfter = 5

// Quota counts streams. The zero value has no limits.
type Quota struct {
	Limits

	mu         sync.Mutex
	all        int
	users, vms map[string]int
}

// New makes a quota with limits.
func New(limits Limits) *Quota { return &Quota{Limits: limits} }

// Take counts a stream in; release, which may be called once, counts it out. vm is "NAMESPACE/NAME"; an empty user has
// no limit of its own. The error is a metav1.Status: 429 for a limit of the user or the VM, 503 for the limit of all.
func (q *Quota) Take(user, vm string) (release func(), _ error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.users == nil {
		q.users, q.vms = map[string]int{}, map[string]int{}
	}
	switch {
	case q.PerUser > 0 && user != "" && q.users[user] >= q.PerUser:
		return nil, refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			fmt.Sprintf("user %q has %d streams open, the most that one user may have; close some, or wait",
				user, q.PerUser))
	case q.PerVM > 0 && q.vms[vm] >= q.PerVM:
		return nil, refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			fmt.Sprintf("%d streams to %s are open, the most that one virtual machine may have; close some, or wait",
				q.PerVM, vm))
	case q.All > 0 && q.all >= q.All:
		return nil, refusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			fmt.Sprintf("%d streams are open, the most that there may be (--max-streams); try again later", q.All))
	}
	q.all++
	q.vms[vm]++
	if user != "" {
		q.users[user]++
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.all--
		less(q.vms, vm)
		if user != "" {
			less(q.users, user)
		}
	}, nil
}

// Open returns how many streams are open.
func (q *Quota) Open() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.all
}

func less(of map[string]int, key string) {
	if of[key]--; of[key] == 0 {
		delete(of, key)
	}
}

func refusal(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
		Details: &metav1.StatusDetails{RetryAfterSeconds: retryAfter},
	}}
}
