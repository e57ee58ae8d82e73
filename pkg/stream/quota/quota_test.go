package quota

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestLimits(t *testing.T) {
	q := New(Limits{All: 4, PerUser: 2, PerVM: 3})
	var releases []func()
	take := func(user, vm string) error {
		release, err := q.Take(user, vm)
		if err == nil {
			releases = append(releases, release)
		}
		return err
	}
	for range 2 {
		if err := take("jane", "default/a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := take("jane", "default/b"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a third stream of one user: %v", err)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(take("jane", "default/b")); !ok || seconds <= 0 {
		t.Errorf("it is not said when to ask again: %d, %v", seconds, ok)
	}
	if err := take("joe", "default/a"); err != nil {
		t.Error(err)
	}
	if err := take("jim", "default/a"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a fourth stream to one VM: %v", err)
	}
	if err := take("", "default/b"); err != nil {
		t.Error(err)
	}
	if err := take("jim", "default/c"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a fifth stream: %v", err)
	}
	for _, release := range releases {
		release()
	}
	if q.Open() != 0 || len(q.users) != 0 || len(q.vms) != 0 {
		t.Errorf("after the end %d streams, users %v, VMs %v", q.Open(), q.users, q.vms)
	}
}

func TestNoLimits(t *testing.T) {
	q := new(Quota)
	for range 10_000 {
		if _, err := q.Take("jane", "default/a"); err != nil {
			t.Fatal(err)
		}
	}
}
