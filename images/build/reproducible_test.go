//go:build e2e

package main

import (
	"bytes"
	"context"
	"testing"
)

// Everything that is published is made twice from nothing, Debian's packages fetched twice included.
func TestReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("not with -short; make test-long has it")
	}
	for _, image := range targets {
		if image.asked {
			continue // not of every release, and another each time, as Debian's own scripts make it
		}
		t.Run(image.name, func(t *testing.T) {
			var made [][]byte
			for range 2 {
				b := testBuild(t)
				if err := image.build(context.Background(), b); err != nil {
					t.Fatal(err)
				}
				made = append(made, read(t, b.archive(image.name)))
			}
			if !bytes.Equal(made[0], made[1]) {
				t.Errorf("two builds of %s differ", image.name)
			}
		})
	}
}
