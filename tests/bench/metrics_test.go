package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestScraped(t *testing.T) {
	for text, ok := range map[string]bool{"up 1\n": true, "": false} {
		answer := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}
		if err := scraped(answer); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	if scraped(&http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody}) == nil {
		t.Error("a refusal is an answer")
	}
}
