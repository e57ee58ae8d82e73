package main

import (
	"os"
	"testing"
)

func TestDocument(t *testing.T) {
	const page = "../../../../docs/metrics.md"
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want, err := document()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is old: run go generate ./pkg/service/metrics", page)
	}
}
