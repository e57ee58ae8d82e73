//go:build unix

package vnccmd

import "golang.org/x/sys/unix"

// windowPixels returns a terminal's size in pixels, as far as the system knows it.
func windowPixels(fd int) (width, height int) {
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0 // the terminal may say it itself
	}
	return int(size.Xpixel), int(size.Ypixel)
}
