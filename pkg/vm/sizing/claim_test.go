package sizing

import "testing"

func TestFileClaim(t *testing.T) {
	for bytes, want := range map[int64]string{
		0:                 "0",
		1:                 "1Mi",
		17 << 20:          "18Mi",
		17<<20 + 1:        "19Mi",
		1<<30 + DumpRoom:  "1191Mi",
		1<<30 + SavedRoom: "1254Mi",
	} {
		size := FileClaim(bytes)
		if got := size.String(); got != want {
			t.Errorf("a file of %d bytes: %s, want %s", bytes, got, want)
		}
		if size.Value()-size.Value()/fileSystem < bytes {
			t.Errorf("%s has no room for %d bytes beside the file system", size, bytes)
		}
	}
}
