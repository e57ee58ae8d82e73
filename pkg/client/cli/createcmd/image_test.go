package createcmd

import (
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// What an image needs to be there is said by a command that can work.
func TestWhence(t *testing.T) {
	for image, want := range map[string]string{
		"debian/13": "image pull debian/13", "debian": "image pull debian", "tin": "image list --available",
		"debian/0": "image list --available",
	} {
		o := &VMOptions{Factory: cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })}
		o.Image = image
		if got := o.whence("shop"); !strings.Contains(got, "`virtctl "+want) || !strings.Contains(got, "shop") {
			t.Errorf("%s: %s", image, got)
		}
	}
}
