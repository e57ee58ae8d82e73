//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// A guest's screen: as a picture, on the page in a real browser, in a terminal, and which of them takes it from whom.
func TestScreen(t *testing.T) {
	t.Parallel()
	c := theCluster
	g := c.create(t,
		newVM(c.namespace(t, "restricted"), "screen", v1.RunStrategyAlways,
			withUserData("#cloud-config\nusers:\n- name: root\n  plain_text_passwd: pilot\n  lock_passwd: false\n")))
	g.waitLogin(t)

	file := filepath.Join(t.TempDir(), "a.png")
	var shot image.Image
	eventually(t, time.Minute, "the screen shows the login", func() string {
		g.virtctl(t, nil, "-n", g.ns, "vnc", "screenshot", g.name, "-f", file)
		shot = readPNG(t, file)
		if n := lit(shot); n < 200 {
			return fmt.Sprintf("%d pixels of %v are lit", n, shot.Bounds())
		}
		return ""
	})
	woken := g.virtctl(t, nil, "-n", g.ns, "vnc", "screenshot", g.name, "-f", "-", "--move-cursor")
	if _, err := png.Decode(strings.NewReader(woken)); err != nil {
		t.Errorf("--move-cursor: %v", err)
	}

	web := g.startVirtctl(t, "vnc", g.name, "--web")
	b := startBrowser(t)
	page := b.page(web.line)
	eventually(t, time.Minute, "the page is connected", func() string {
		if said := b.eval(page, `document.getElementById('status').textContent`); said != "connected" {
			return instead(said)
		}
		return ""
	})
	eventually(t, time.Minute, "the page shows what the guest shows", func() string {
		// The picture is taken anew, as the guest may have written meanwhile.
		g.virtctl(t, nil, "-n", g.ns, "vnc", "screenshot", g.name, "-f", file)
		data := b.eval(page, `document.querySelector('#screen canvas').toDataURL('image/png')`)
		return compare(canvas(t, data), readPNG(t, file))
	})
	if len(b.said) > 0 {
		t.Errorf("the page complains: %s", strings.Join(b.said, "\n"))
	}
	if again := b.eval(page, `fetch(location.pathname).then((answer) => answer.status)`); again != "200" {
		t.Errorf("the browser that has the cookie is refused: %s", again)
	}
	other := startBrowser(t)
	otherPage := other.page(web.line)
	eventually(t, 30*time.Second, "another browser is refused", func() string {
		if said := other.eval(otherPage, `document.body?.innerText`); !strings.Contains(said, "works once") {
			return instead(said)
		}
		return ""
	})
	t.Run("terminal", func(t *testing.T) { testTerminal(t, g) })
	if said := b.eval(page, `document.getElementById('status').textContent`); !strings.Contains(said, "taken over") {
		t.Errorf("the page, whose session the terminal took over, says %q", said)
	}

	response, err := http.Get(strings.SplitAfter(web.line, "token=")[0])
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("without the token: %s", response.Status)
	}
}

// running is a virtctl that goes on.
type running struct {
	cmd *exec.Cmd
	// line is the first that it printed.
	line string
}

// startVirtctl runs virtctl until the test ends, and returns when it has printed a line.
func (g *guest) startVirtctl(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{
		cmd: exec.Command(g.Bin("virtctl"),
			append([]string{"--kubeconfig", g.Kubeconfig, "--context", g.Name, "-n", g.ns}, args...)...),
	}
	var stderr bytes.Buffer
	r.cmd.Stderr = &stderr
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		err := r.cmd.Wait()
		if interrupted := 130; err != nil && r.cmd.ProcessState.ExitCode() != interrupted {
			t.Errorf("virtctl %v: %v\n%s", args, err, stderr.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("virtctl %v: %v", args, err)
	}
	r.line = strings.TrimSpace(line)
	return r
}

func readPNG(t *testing.T, path string) image.Image {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

// canvas decodes a data: URL; nil when it is none yet.
func canvas(t *testing.T, data string) image.Image {
	t.Helper()
	encoded, ok := strings.CutPrefix(data, "data:image/png;base64,")
	if !ok {
		return nil
	}
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(decoded))
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

// lit counts the pixels that are not black.
func lit(picture image.Image) int {
	n := 0
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y++ {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x++ {
			if r, g, b, _ := picture.At(x, y).RGBA(); r+g+b > 0 {
				n++
			}
		}
	}
	return n
}

// compare says how two pictures differ by more than a cursor that blinks, a character's size.
func compare(a, b image.Image) string {
	if a == nil || a.Bounds().Size() != b.Bounds().Size() {
		return fmt.Sprintf("it has another size than the guest's, %v", b.Bounds())
	}
	differ := 0
	for y := range b.Bounds().Dy() {
		for x := range b.Bounds().Dx() {
			r1, g1, b1, _ := a.At(x, y).RGBA()
			r2, g2, b2, _ := b.At(x, y).RGBA()
			if r1 != r2 || g1 != g2 || b1 != b2 {
				differ++
			}
		}
	}
	if differ > 9*16 || lit(a) < 200 {
		return fmt.Sprintf("%d pixels differ, %d and %d are lit", differ, lit(a), lit(b))
	}
	return ""
}
