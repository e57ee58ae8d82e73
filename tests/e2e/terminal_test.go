//go:build e2e

package e2e

import (
	"fmt"
	"image"
	"image/color"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tmux is a terminal of its own with one program in it.
type tmux struct {
	t      *testing.T
	socket string
}

func startTmux(t *testing.T, columns, rows int, command string) *tmux {
	t.Helper()
	m := &tmux{t: t, socket: filepath.Join(t.TempDir(), "tmux")}
	t.Cleanup(func() {
		// An error is a server that has ended already.
		_ = exec.Command("tmux", "-S", m.socket, "kill-server").Run()
	})
	m.run("-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows), command)
	return m
}

func (m *tmux) run(args ...string) string {
	m.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", m.socket}, args...)...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("tmux %v: %v %s; dev/deps.sh e2e installs it", args, err, out)
	}
	return string(out)
}

func (m *tmux) keys(keys ...string) {
	m.t.Helper()
	m.run(append([]string{"send-keys"}, keys...)...)
}

var graphic = regexp.MustCompile(`\x1b\[([\d;]*)m`)

// picture is what the upper half blocks on the terminal show, of the given size.
func (m *tmux) picture(size image.Point) image.Image {
	m.t.Helper()
	out := image.NewRGBA(image.Rectangle{Max: size})
	lines := strings.Split(m.run("capture-pane", "-e", "-p"), "\n")
	var upper, lower color.RGBA // tmux may carry the colours on to the next line
	for y := range min(len(lines), size.Y/2) {
		x := 0
		for line := lines[y]; line != ""; {
			if at := graphic.FindStringSubmatchIndex(line); at != nil && at[0] == 0 {
				upper, lower = colours(line[at[2]:at[3]], upper, lower)
				line = line[at[1]:]
				continue
			}
			for _, r := range line {
				if r == '▀' {
					out.SetRGBA(x, 2*y, upper)
					out.SetRGBA(x, 2*y+1, lower)
				}
				line = line[len(string(r)):]
				break
			}
			x++
		}
	}
	return out
}

// colours applies one sequence of attributes.
func colours(parameters string, upper, lower color.RGBA) (color.RGBA, color.RGBA) {
	fields := strings.Split(parameters, ";")
	number := func(i int) uint8 {
		n, _ := strconv.Atoi(fields[i])
		return uint8(n)
	}
	for i := 0; i < len(fields); i++ {
		switch {
		case fields[i] == "" || fields[i] == "0":
			upper, lower = color.RGBA{}, color.RGBA{}
		case (fields[i] == "38" || fields[i] == "48") && i+4 < len(fields) && fields[i+1] == "2":
			c := color.RGBA{number(i + 2), number(i + 3), number(i + 4), 255}
			if fields[i] == "38" {
				upper = c
			} else {
				lower = c
			}
			i += 4
		}
	}
	return upper, lower
}

// testTerminal draws the screen in a terminal with as many cells as the guest has pixels, two above each other, so that
// the pictures can be compared, and logs in by what is typed there.
func testTerminal(t *testing.T, g *guest) {
	g.needsIPv4(t, "the guest, from which what was typed is fetched, asks for an IPv4 address only")
	file := filepath.Join(t.TempDir(), "a.png")
	g.virtctl(t, nil, "-n", g.ns, "vnc", "screenshot", g.name, "-f", file)
	before := readPNG(t, file)
	size := before.Bounds().Size()
	command := fmt.Sprintf("%s --kubeconfig %s --context %s -n %s vnc %s --terminal; echo exit=$?; cat",
		g.Bin("virtctl"), g.Kubeconfig, g.Name, g.ns, g.name)
	m := startTmux(t, size.X, size.Y/2+1, "COLORTERM=truecolor "+command)
	same := func() string {
		g.virtctl(t, nil, "-n", g.ns, "vnc", "screenshot", g.name, "-f", file)
		return compare(m.picture(size), readPNG(t, file))
	}
	eventually(t, time.Minute, "the terminal shows what the guest shows", same)
	eventually(t, 20*time.Second, "the terminal says how to leave", func() string {
		if text := m.run("capture-pane", "-p"); !strings.Contains(text, "Ctrl-] leaves") {
			return "it does not"
		}
		return ""
	})

	// The guest throws away what is typed before it asks.
	shown := lines(before)
	typed := func(what string) {
		t.Helper()
		eventually(t, time.Minute, "the guest shows "+what, func() string {
			g.virtctl(t, nil, "-n", g.ns, "vnc", "screenshot", g.name, "-f", file)
			now := lines(readPNG(t, file))
			if now <= shown {
				return fmt.Sprintf("there are %d lines of text, as there were", now)
			}
			shown = now
			return ""
		})
	}
	m.keys("root", "Enter")
	typed("that it asks for the password")
	m.keys("pilot", "Enter")
	typed("the shell")
	m.keys(`echo "Typed & seen!" >/www/typed`, "Enter")
	direct := &http.Client{Timeout: 5 * time.Second}
	eventually(t, 30*time.Second, "what was typed has happened", func() string {
		body, err := get(t.Context(), direct, "http://"+g.pod(t).Status.PodIP+"/typed")
		if err != nil || strings.TrimSpace(body) != "Typed & seen!" {
			return fmt.Sprintf("%q %v", body, err)
		}
		return ""
	})
	eventually(t, time.Minute, "the terminal shows what the guest shows then", same)

	m.keys("C-]")
	eventually(t, 20*time.Second, "the terminal is itself again", func() string {
		text := strings.TrimSpace(m.run("capture-pane", "-p"))
		if text != "exit=0" {
			return instead(text)
		}
		return ""
	})
}

// lines counts the lines of text on a VGA text screen; a cursor alone is none.
func lines(picture image.Image) int {
	const height, word = 16, 60
	n := 0
	for top := 0; top+height <= picture.Bounds().Dy(); top += height {
		band := image.Rect(0, top, picture.Bounds().Dx(), top+height)
		if lit(picture.(interface {
			SubImage(image.Rectangle) image.Image
		}).SubImage(band)) > word {
			n++
		}
	}
	return n
}
