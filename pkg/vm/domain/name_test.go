package domain

import (
	"strings"
	"testing"
)

// libvirt has files NAME.xml.new, NAME.pid and NAME-swtpm.log, whose names the file system bounds.
func TestName(t *testing.T) {
	if got := Name("default", "demo"); got != "default_demo" {
		t.Error(got)
	}
	namespace := strings.Repeat("n", 63)
	if got := Name(namespace, strings.Repeat("a", 63)); got != namespace+"_"+strings.Repeat("a", 63) {
		t.Errorf("a guest that runs is called otherwise: %s", got)
	}
	one, other := Name(namespace, strings.Repeat("a", 252)+"1"), Name(namespace, strings.Repeat("a", 252)+"2")
	if one == other || len(one)+len("-swtpm.log") > 255 || len(one) != maxName {
		t.Errorf("%s (%d) and %s", one, len(one), other)
	}
}
