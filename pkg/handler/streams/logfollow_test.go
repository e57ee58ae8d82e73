package streams

import (
	"bufio"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

func (s *setup) writeLog(text string) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.run, names.LogSerial), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func TestLogFollowed(t *testing.T) {
	s := newSetup(t)
	s.writeLog("one\ntwo\n")
	response, err := http.Get(s.http.URL + guestPath + "log/serial?tail=1&follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for _, want := range []string{"two\n", "three\n"} {
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
		if want == "two\n" {
			s.writeLog("three\n")
		}
	}
	s.server.Close()
	if rest, _ := io.ReadAll(lines); len(rest) > 0 { // it ends, one way or the other
		t.Errorf("after the end: %q", rest)
	}
}

// A client that was cut off goes on after what it has read last, which is in no address.
func TestLogResumed(t *testing.T) {
	s := newSetup(t)
	s.writeLog("one\ntwo\nthree\n")
	for _, test := range []struct {
		last string
		code int
		want string
	}{
		{hex.EncodeToString([]byte("two\n")), http.StatusOK, "three\n"},
		{hex.EncodeToString([]byte("three\n")), http.StatusOK, ""},
		{hex.EncodeToString([]byte("cut away since\n")), http.StatusOK, "one\ntwo\nthree\n"},
		{"two", http.StatusBadRequest, ""},
		{strings.Repeat("00", overlap+1), http.StatusBadRequest, ""},
	} {
		request, err := http.NewRequest(http.MethodGet, s.http.URL+guestPath+"log/serial", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(names.HeaderLogResume, test.last)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != test.code || test.code == http.StatusOK && string(got) != test.want {
			t.Errorf("after %.20q: %d %q, %v; want %d %q", test.last, response.StatusCode, got, err, test.code,
				test.want)
		}
	}
}

// What lies in the run directory is the launcher's to make.
func TestLogThatIsAPipe(t *testing.T) {
	s := newSetup(t)
	if err := unix.Mkfifo(filepath.Join(s.run, names.LogSerial), 0o600); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 30 * time.Second}
	response, err := client.Get(s.http.URL + guestPath + "log/serial?follow=true")
	if err != nil {
		t.Fatal("virt-handler waits for somebody to write into a pipe:", err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusConflict {
		t.Errorf("status %d", response.StatusCode)
	}
}

// A client that does not read does not hold up the server's end.
func TestLogNotRead(t *testing.T) {
	s := newSetup(t)
	s.writeLog("x")
	target, err := url.Parse(s.http.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", target.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn,
		"GET "+guestPath+"log/serial?follow=true HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // it has begun
		t.Fatal(err)
	}
	s.writeLog(strings.Repeat("x", 16<<20))
	ended := make(chan struct{})
	go func() { defer close(ended); s.server.Close() }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("virt-handler cannot end")
	}
}

// The logs on their way are bounded together, and one that is followed is on its way no more.
func TestLogsBounded(t *testing.T) {
	s := newSetup(t)
	s.writeLog("one\ntwo\n")
	get := func(query string) (int, io.Reader) {
		response, err := http.Get(s.http.URL + guestPath + "log/serial" + query)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response.StatusCode, response.Body
	}
	_, followed := get("?follow=true")
	lines := bufio.NewReader(followed)
	s.writeLog("three\n")
	for _, want := range []string{"one\n", "two\n", "three\n"} {
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	for deadline := time.Now().Add(time.Minute); !s.server.room.TryAcquire(maxHeld); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("something is held")
		}
	}
	if got, _ := get(""); got != http.StatusTooManyRequests {
		t.Errorf("without room: %d", got)
	}
	s.server.room.Release(maxHeld)
	if got, _ := get(""); got != http.StatusOK {
		t.Errorf("with room: %d", got)
	}
}
