package cli

import "math/rand/v2"

// alphanums are the characters of generated names: no vowels, so that no words come out, and none that
// look alike. Kubernetes' own generator uses the same.
const alphanums = "bcdfghjklmnpqrstvwxz2456789"

func randomName(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphanums[rand.IntN(len(alphanums))]
	}
	return string(b)
}
