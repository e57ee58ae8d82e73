package written

import "testing"

func TestRecent(t *testing.T) {
	var r recent[int, string]
	has := func(key int, want string) {
		t.Helper()
		if got, ok := r.get(key); got != want || ok != (want != "") {
			t.Errorf("%d: %q, %t", key, got, ok)
		}
	}
	has(0, "")
	for key := range most {
		r.put(key, "first")
	}
	r.put(0, "second")
	has(0, "second")
	has(1, "first")
	r.dropIf(0, "first")
	has(0, "second")
	r.dropIf(0, "second")
	has(0, "")
	r.drop(1)
	has(1, "")
	for key := range most + 1 {
		r.put(-key-1, "later")
	}
	has(2, "")
	has(-1, "later")
	if len(r.young)+len(r.old) > 2*most {
		t.Errorf("%d entries", len(r.young)+len(r.old))
	}
}
