package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

// Recorder writes what a guest writes as an asciicast of version 2 (docs.asciinema.org), which players show with its
// own timing. What the user types is not recorded: it may be a password. Its methods may be called from several
// goroutines.
type Recorder struct {
	w   io.Writer
	now func() time.Time

	mu      sync.Mutex
	start   time.Time
	partial []byte // the beginning of a character whose rest is to come
	some    bool   // something was recorded
}

// NewRecorder writes the header. The size of the terminal is in characters; title names the machine.
func NewRecorder(w io.Writer, now func() time.Time, width, height int, title string) (*Recorder, error) {
	r := &Recorder{w: w, now: now, start: now()}
	header := struct {
		Version   int    `json:"version"`
		Width     int    `json:"width"`
		Height    int    `json:"height"`
		Timestamp int64  `json:"timestamp"`
		Title     string `json:"title,omitempty"`
	}{2, width, height, r.start.Unix(), title}
	if err := r.line(header); err != nil {
		return nil, err
	}
	return r, nil
}

// Write records output at this moment.
func (r *Recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	data := append(r.partial, p...)
	keep := incomplete(data)
	r.partial = bytes.Clone(data[len(data)-keep:])
	if err := r.event("o", data[:len(data)-keep]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Resize records that the terminal has a new size, in characters.
func (r *Recorder) Resize(width, height int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.event("r", fmt.Appendf(nil, "%dx%d", width, height))
}

// Close records what is left; it does not close the writer.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := r.partial
	r.partial = nil
	return r.event("o", rest)
}

// Empty reports that nothing was recorded.
func (r *Recorder) Empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.some
}

func (r *Recorder) event(code string, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	r.some = true
	at := json.Number(fmt.Sprintf("%.6f", r.now().Sub(r.start).Seconds()))
	return r.line([]any{at, code, string(bytes.ToValidUTF8(data, []byte("�")))})
}

func (r *Recorder) line(value any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("encode the recording: %w", err)
	}
	if _, err := r.w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the recording: %w", err)
	}
	return nil
}

// incomplete returns how many bytes at the end of data are the beginning of a character.
func incomplete(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if c := data[len(data)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(data[len(data)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
