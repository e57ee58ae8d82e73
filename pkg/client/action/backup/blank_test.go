package backup

import (
	"testing"
	"time"
)

// A disk that is blank gets its claim, and nothing is uploaded to it.
func TestImportOfBlankDisks(t *testing.T) {
	c := newTarget(t)
	c.uploads = func() { t.Error("a blank disk is uploaded") }
	disks := make([]Payload, len(c.made.Claims))
	err := Import(t.Context(), c.Client(), disks, c.made, ImportOptions{
		Patience: time.Second, Show: func(string, int64, int64) {}, Note: func(string) {},
	})
	if err != nil || c.machines["new"] == nil || len(c.claims) != len(disks) {
		t.Fatalf("%v; VMs %v, claims %v", err, c.machines, c.claims)
	}
	for name, claim := range c.claims {
		if claim.Labels[LabelImport] != "" {
			t.Errorf("claim %s is still that of an import under way", name)
		}
	}
}
