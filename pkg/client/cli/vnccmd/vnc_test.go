package vnccmd

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// A port that is in use is named, with what was to be there.
func TestPortInUse(t *testing.T) {
	l, err := listen(t.Context(), "127.0.0.1", 0, "a viewer")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = listen(t.Context(), "127.0.0.1", port, "the page")
	if err == nil || !strings.HasPrefix(err.Error(), "open a port for the page: ") ||
		!strings.Contains(err.Error(), fmt.Sprintf("127.0.0.1:%d: ", port)) ||
		!strings.HasSuffix(err.Error(), "; choose another --port") {
		t.Error(err)
	}
}
