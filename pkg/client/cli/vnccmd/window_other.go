//go:build !unix

package vnccmd

// windowPixels is a terminal's size in pixels, which the system does not know.
func windowPixels(int) (width, height int) { return 0, 0 }
