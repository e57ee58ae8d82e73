package cdi

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// TestRetries has what is sent again, and what ends the upload: each with the error, if there is one.
func TestRetries(t *testing.T) {
	refuse := func(code int, text string, tries int) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || tries == 0 {
				return false
			}
			tries--
			w.WriteHeader(code)
			_, _ = io.WriteString(w, text)
			return true
		}
	}
	cut := func(tries int, at int64) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, _ http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || tries == 0 {
				return false
			}
			tries--
			_, _ = io.CopyN(io.Discard, r.Body, at)
			panic(http.ErrAbortHandler)
		}
	}
	for name, test := range map[string]struct {
		answer func(int, http.ResponseWriter, *http.Request) bool
		err    string
		tokens int
	}{
		"cut before the first byte": {cut(1, 0), "", 2},
		"cut":                       {cut(2, 100_000), "", 3},
		"cut before the last byte":  {cut(1, int64(len(image)-1)), "", 2},
		"cut each time":             {cut(9, 5), "send the image to CDI's upload proxy: ", 3},
		"expired token":             {refuse(401, "", 1), "", 2},
		"token of another": {
			refuse(401, "", 9), "says 401 Unauthorized: it does not take the token that CDI's API server gives", 3,
		},
		"not ready yet": {refuse(503, "the pod is not ready", 2), "", 3},
		"never ready":   {refuse(503, "the\npod", 9), "says 503 Service Unavailable: the pod", 3},
		"never ready, as a probe says": {
			func(_ int, w http.ResponseWriter, r *http.Request) bool {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, "rejecting upload request: the pod is not ready") // not to a HEAD
				return true
			}, "says 503 Service Unavailable: rejecting upload request: the pod is not ready", 3,
		},
		"too large": {
			refuse(400, "Saving stream failed: Virtual image size 2 is larger than available size 1", 9),
			"says 400 Bad Request: Saving stream failed: Virtual image size 2 is larger than available size 1", 1,
		},
		"no image":                 {refuse(500, "Saving stream failed: it is no image", 9), "it is no image", 1},
		"cut before CDI's own pod": {refuse(500, "Saving stream failed: unexpected EOF", 1), "", 2},
		"refused": {
			refuse(403, "no", 9), "says 403 Forbidden: no", 1,
		},
		"redirected": {
			func(_ int, w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, "https://elsewhere.example.com/", http.StatusFound)
				return true
			},
			"says 302 Found: it is at https://elsewhere.example.com/; give that address with --uploadproxy-url", 1,
		},
		"a page": {
			func(_ int, w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Type", "text/html")
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, "<h1>Not here</h1>")
				return true
			}, "says 404 Not Found", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.answer = test.answer
			var again []error
			stage, err := w.upload(func(o *Options) { o.Again = func(why error) { again = append(again, why) } })
			if w.tokens != test.tokens || len(again) != test.tokens-1 {
				t.Errorf("%d tokens, again for %v", w.tokens, again)
			}
			if test.err == "" {
				if err != nil || stage != Done || w.got != image {
					t.Errorf("%v, %v, %d bytes", stage, err, len(w.got))
				}
				return
			}
			if err == nil || stage != Made || !strings.HasPrefix(err.Error(), "upload to claim ns/disk: ") ||
				!strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "<h1>") {
				t.Errorf("%v, %v", stage, err)
			}
		})
	}
}

// An answer that is lost after the image has arrived is no reason to send it again.
func TestAnswerLost(t *testing.T) {
	w := newWorld(t)
	posts := 0
	w.answer = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		posts++
		_, _ = io.Copy(io.Discard, r.Body)
		w.settle()
		panic(http.ErrAbortHandler)
	}
	if stage, err := w.upload(nil); err != nil || stage != Done || posts != 1 {
		t.Errorf("%v, %v, %d times", stage, err, posts)
	}
}

// A pod of CDI's that writes the image, whose answer is lost, takes no other; it says when it has one.
func TestBusy(t *testing.T) {
	w := newWorld(t)
	posts := 0
	w.answer = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		switch posts++; {
		case posts == 1:
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler)
		case posts < 7: // more often than it is sent again
			rw.WriteHeader(http.StatusServiceUnavailable)
		default:
			rw.WriteHeader(http.StatusConflict)
			w.settle()
		}
		return true
	}
	said, again := 0, 0
	stage, err := w.upload(func(o *Options) {
		o.Waits = func(string) { said++ }
		o.Again = func(error) { again++ }
	})
	if err != nil || stage != Done || posts != 7 || said != 1 || again != 1 {
		t.Errorf("%v, %v, %d times, said %d times, again %d times", stage, err, posts, said, again)
	}
}

// A pod of CDI's that began anew while it was sent the image may have it the next time.
func TestPodLost(t *testing.T) {
	w := newWorld(t)
	posts := 0
	w.answer = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		if posts++; posts > 1 {
			return false
		}
		w.annotate(annotationPodRestarts, "1")
		panic(http.ErrAbortHandler)
	}
	var looks atomic.Int32
	w.settle = func() { looks.Store(1) }
	w.looked = func() {
		if looks.Load() > 0 && looks.Add(1) > 3 { // it is written after a while
			w.annotate(annotationPodPhase, succeeded)
		}
	}
	if stage, err := w.upload(nil); err != nil || stage != Done || posts != 2 {
		t.Errorf("%v, %v, %d times", stage, err, posts)
	}
}

// CDI may note only after the next try has begun that its pod began anew in the one before: the pod is asked then.
func TestPodLostLate(t *testing.T) {
	for name, has := range map[string]bool{
		"it has the image": true, "it could not use it": false,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			posts, again := 0, 0
			w.answer = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost {
					return false
				}
				switch posts++; {
				case posts == 1:
					_, _ = io.CopyN(io.Discard, r.Body, 5)
					panic(http.ErrAbortHandler)
				case posts == 3 && has:
					rw.WriteHeader(http.StatusConflict)
					w.annotate(annotationPodPhase, succeeded)
					return true
				}
				return false
			}
			w.settle = func() { w.annotate(annotationPodRestarts, string(rune('0'+posts-1))) }
			stage, err := w.upload(func(o *Options) { o.Again = func(error) { again++ } })
			if posts != 3 || again != 2 || has && (err != nil || stage != Done) ||
				!has && (stage != Sent || !errors.Is(err, errUnused)) {
				t.Errorf("%v, %v, %d times, again %d times", stage, err, posts, again)
			}
		})
	}
}

// A proxy that takes nothing for too long is given up, and that is a timeout.
func TestStalled(t *testing.T) {
	w := newWorld(t)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	w.answer = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			select {
			case <-over:
			case <-r.Context().Done():
			}
		}
		return false
	}
	_, err := w.upload(func(o *Options) { o.Patience, o.Retries = 100*time.Millisecond, 0 })
	var stalled *StalledError
	if !errors.As(err, &stalled) || !errors.Is(err, action.ErrTimeout) {
		t.Error(err)
	}
}
